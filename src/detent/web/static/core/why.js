// Why a job is where it is, in the viewer's language: made from the code and the data of the answer, not from its sentence.
import { h, here } from "./dom.js";
import { limitScope } from "./limits.js";
import { moment, span } from "./time.js";
import { known, named, rich, t } from "./words.js";

const list = (names) => (names ?? []).join(t("list.comma")) || t("list.nothing");
const until = (told) => told.until && rich("why.until", { when: moment(told.until) });
const cause = (reason) => reason && rich("why.cause", { reason });
const swept = (told, then) => t(told.sweeping ? then : "why.nobody-sweeps");
const code = (name) => h("code", {}, name);

const SAY = {
  FINISHED: (told, job) => [rich("why.ended", { status: told.status, when: moment(told.finished_at) }),
    told.error_code && rich("why.ended.error", { code: code(told.error_code), message: job.error_message ?? "" }),
    told.dlq_id && rich("why.ended.letter", { letter: h("a", { href: here(`dead-letters/${encodeURIComponent(told.dlq_id)}`) }, told.dlq_id) })],
  HELD: (told) => [rich("why.held", { worker: code(told.worker ?? "?"), when: moment(told.lease_until) }), !told.holder_seen && t("why.silent")],
  LEASE_EXPIRED: (told) => [rich("why.expired", { worker: code(told.worker ?? "?"), when: moment(told.lease_until) }), swept(told, "why.taken-back")],
  CANCEL_REQUESTED: (told) => [rich("why.cancel", { who: told.actor, when: moment(told.at) }), cause(told.reason)],
  STEP_ORPHANED: (told) => rich("why.orphans", { steps: list(told.steps) }),
  DUE_TO_WAKE: (told) => [rich("why.moment-came", { when: moment(told.until) }), swept(told, "why.woken")],
  WAITS_FOR_APPROVAL: (told) => asked(told),
  WAITS_FOR_CHILDREN: (told) => [rich("why.children", { counts: list(Object.entries(told.children).map(([status, n]) => `${n} ${status}`)) }), until(told)],
  WAITS_FOR_SIGNAL: (told) => [rich("why.signal", { name: code(told.waits_for) }), until(told)],
  WAITS_FOR_MOMENT: (told) => rich("why.moment", { when: moment(told.until) }),
  BLOCKED: (told) => rich("why.rests", { status: told.status }),
  NOT_DUE: (told) => [rich("why.not-due", { when: moment(told.due_at) }), told.error_code && rich("why.again-after", { code: code(told.error_code) })],
  PAUSED: (told) => [rich("why.paused", { kind: t(`kind.${told.kind}`), name: code(told.name), who: told.actor, when: moment(told.at) }), cause(told.reason)],
  LIMITED: (told) => [told.opens_at
    ? rich("why.rate", { limit: limitScope(told), n: told.rate, span: span(told.period_seconds * 1000), when: moment(told.opens_at) })
    : rich("why.concurrency", { limit: limitScope(told), held: told.held, most: told.concurrency })],
  TOO_LATE: (told) => [rich("why.deadline", { when: moment(told.deadline_at) }), swept(told, "why.ended-soon")],
  NO_WORKER: () => rich("why.no-worker", { command: code("detent worker APP") }),
  NO_WORKER_FOR_TYPE: (told, job) => rich("why.no-type", { type: code(job.job_type), types: list(told.live_types) }),
  NO_WORKER_FOR_QUEUE: (told, job) => rich("why.no-queue", { queue: code(job.queue), queues: list(told.live_queues) }),
  NO_WORKER_FOR_BOTH: (told, job) => rich("why.no-both", { type: code(job.job_type), queue: code(job.queue) }),
  SLOTS_FULL: (told) => [rich("why.slots", { workers: told.workers.length, busy: told.busy, slots: told.slots }), told.ahead > 0 && rich("why.ahead", { n: told.ahead })],
  JOBS_AHEAD: (told) => rich("why.ahead", { n: told.ahead }),
  ANY_MOMENT: () => t("why.any-moment"),
};

function asked(told) {
  const { approval } = told;
  const votes = (approval?.votes ?? []).map((vote) => t(vote.approved ? "why.approved" : "why.rejected", { who: vote.person }));
  return [rich("why.approval", { since: moment(told.since) }), approval && rich("why.question", { question: approval.summary }),
    approval?.roles.length > 0 && t("approvals.roles", { roles: approval.roles.map((role) => named("role", role)).join(", ") }),
    approval?.quorum > 1 && t("why.quorum", { n: approval.missing, quorum: approval.quorum }), votes.length > 0 && `${list(votes)}${t("list.stop")}`, until(told)];
}

const sentence = (why, job) => (SAY[why.reason] ? [SAY[why.reason]({ ...why.details }, job)].flat().filter(Boolean).flatMap((part) => [" ", part]) : ` ${why.sentence}`);
const line = (why, job) => [known(`why.${why.reason}`) && h("strong", {}, t(`why.${why.reason}`)), sentence(why, job)];

export function whyCard(why, job) {
  const also = (why.details.also ?? []).map((other) => h("li", {}, line(other, job)));
  return h("div", { class: "why", id: "why" }, h("p", {}, line(why, job)), also.length > 0 && h("ul", {}, also));
}
