// Why a job is in its status, in the viewer's language. Built from the reason code and its details; the server's English
// sentence is used for an unknown code, and where the details are hidden because tenants share what they are about.

/** @import { Approval, Child, Job, Why, WhyDetails } from "../../types.d.ts" */

import { h } from "../../core/dom.js";
import { formatDuration, timeElement } from "../../core/time.js";
import { deadLetterUrl } from "../../core/urls.js";
import { hasText, joined, richText, sentenceGap, t, translated } from "../../core/words.js";
import { scopeText } from "../queues/limit_scope.js";

/** @param {string[] | undefined} names */
const list = (names) => joined(names ?? []) || t("list.none");
/** @param {WhyDetails} details */
const until = (details) => details.until && richText("why.until", { time: timeElement(details.until) });
/** @param {WhyDetails} details */
const cause = (details) => details.reason && richText("why.cause", { reason: details.reason });
/**
 * What the next sweep will do; without a live worker nothing sweeps.
 * @param {WhyDetails} details
 * @param {string} key
 */
const nextSweep = (details, key) => t(details.sweeping ? key : "why.no-sweeper");
/** @param {string | null} name */
const code = (name) => h("code", {}, name ?? "?");

/**
 * The sentences for each reason code; a falsy one is left out, null means that the details are hidden.
 * @type {Record<string, (details: WhyDetails, job: Job) => Child[] | null>}
 */
const SENTENCES = {
  FINISHED: (details) => finished(details),
  HELD: (details) => [
    richText("why.held", { worker: code(details.worker), time: timeElement(details.lease_until) }),
    !details.holder_seen && t("why.no-heartbeat"),
  ],
  LEASE_EXPIRED: (details) => [
    richText("why.lease-expired", { worker: code(details.worker), time: timeElement(details.lease_until) }),
    nextSweep(details, "why.sweep-reclaims"),
  ],
  CANCEL_REQUESTED: (details) => [
    richText("why.cancel-requested", { actor: details.actor, time: timeElement(details.at) }),
    cause(details),
  ],
  STEP_ORPHANED: (details) => [richText("why.unused-steps", { steps: list(details.steps) })],
  DUE_TO_WAKE: (details) => [
    richText("why.wake-time", { time: timeElement(details.until) }),
    nextSweep(details, "why.sweep-wakes"),
  ],
  WAITS_FOR_APPROVAL: (details) => [
    richText("why.approval", { time: timeElement(details.since) }),
    ...(details.approval ? approvalSentences(details.approval) : []),
    until(details),
  ],
  WAITS_FOR_CHILDREN: (details) => [
    t("why.children", { counts: list(Object.entries(details.children).map(([status, n]) => `${n} ${status}`)) }),
    until(details),
  ],
  WAITS_FOR_SIGNAL: (details) => [richText("why.signal", { name: code(details.waits_for) }), until(details)],
  WAITS_FOR_MOMENT: ({ kind, until: time }) => [
    richText(kind ? "why.time" : "why.not-due", { time: timeElement(time) }),
  ],
  BLOCKED: (details) => [t("why.blocked", { status: details.status })],
  NOT_DUE: (details) => [
    richText("why.not-due", { time: timeElement(details.due_at) }),
    details.error_code && richText("why.retry-after", { code: code(details.error_code) }),
  ],
  HANDED_BACK: (details) => [
    richText("why.handed-back", { worker: code(details.worker), time: timeElement(details.give_up_at) }),
    details.problem,
  ],
  PAUSED: (details) => [
    richText("why.paused", {
      kind: t(`kind.${details.kind}`),
      name: code(details.name),
      actor: details.actor,
      time: timeElement(details.at),
    }),
    cause(details),
  ],
  LIMITED: (details) => details.held === undefined ? null : limited(details),
  LOOP_BLOCKED: ({ blocking_job_id: id, since, location }) =>
    location
      ? [richText("why.loop-blocked", { job: code(id), time: timeElement(since), location: code(location) })]
      : null,
  TOO_LATE: (details) => [
    richText("why.deadline", { time: timeElement(details.deadline_at) }),
    nextSweep(details, "why.sweep-expires"),
  ],
  WORKERS_DRAINING: ({ workers }) => [
    t("why.draining"),
    workers && workers.length > 0 && t("why.draining-workers", { workers: list(workers) }),
  ],
  NO_WORKER: () => [richText("why.no-worker", { command: code("detent worker APP") })],
  NO_WORKER_FOR_TYPE: ({ live_types: types }, job) =>
    types && [richText("why.no-worker-for-type", { type: code(job.job_type), types: list(types) })],
  NO_WORKER_FOR_QUEUE: ({ live_queues: queues }, job) =>
    queues && [richText("why.no-worker-for-queue", { queue: code(job.queue), queues: list(queues) })],
  NO_WORKER_FOR_BOTH: (_details, job) => [
    richText("why.no-worker-for-both", { type: code(job.job_type), queue: code(job.queue) }),
  ],
  SLOTS_FULL: ({ workers, busy, slots, ahead }) =>
    workers &&
    [
      t("why.slots", { n: workers.length, workers: workers.length, busy, slots }),
      ahead > 0 && t("why.ahead", { n: ahead }),
    ],
  JOBS_AHEAD: (details) => [t("why.ahead", { n: details.ahead })],
  ANY_MOMENT: () => [t("why.any-moment")],
};

/** The error is shown above. @param {WhyDetails} details */
function finished({ status, finished_at, dlq_id }) {
  const link = dlq_id && h("a", { href: deadLetterUrl(dlq_id) }, dlq_id);
  return [
    richText("why.finished", { status, time: timeElement(finished_at) }),
    link && richText("why.finished.dead-letter", { link }),
  ];
}

/** @param {WhyDetails} details */
function limited(details) {
  const limit = scopeText(details);
  if (!details.opens_at) return [t("why.concurrency", { limit, running: details.held, max: details.concurrency })];
  const duration = formatDuration((details.period_seconds ?? 0) * 1000);
  return [richText("why.rate", { limit, n: details.rate, duration, time: timeElement(details.opens_at) })];
}

/** @param {Approval} approval */
function approvalSentences({ summary, roles, quorum, missing, votes }) {
  const roleNames = joined(roles.map((role) => translated("role", role)));
  const voteTexts = votes.map(({ approved, person }) => t(approved ? "why.approved" : "why.rejected", { person }));
  return [
    t("why.question", { question: summary }),
    roles.length > 0 && t("approvals.roles", { roles: roleNames }),
    quorum > 1 && t("why.votes", { n: quorum - missing, quorum }),
    voteTexts.length > 0 && `${list(voteTexts)}${t("list.stop")}`,
  ];
}

/**
 * @param {Why} why
 * @param {Job} job
 * @returns {Child}
 */
function line(why, job) {
  const sentences = SENTENCES[why.reason]?.(why.details, job) ?? [why.sentence];
  const isScheduled = why.reason === "WAITS_FOR_MOMENT" && !why.details.kind; // it has never started
  const title = `why.${isScheduled ? "NOT_DUE" : why.reason}`;
  return [
    hasText(title) && h("strong", {}, t(title)),
    sentences.filter(Boolean).map((sentence) => [sentenceGap, sentence]),
  ];
}

/**
 * @param {Why} why
 * @param {Job} job
 */
export function whyCard(why, job) {
  const others = (why.details.also ?? []).map((other) => h("li", {}, line(other, job)));
  return h("div", { class: "why", id: "why" }, h("p", {}, line(why, job)), others.length > 0 && h("ul", {}, others));
}
