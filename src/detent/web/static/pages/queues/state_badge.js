// The state of a queue or job type, as the server decides it.

/** @import { JobGroup, JobType, Queue } from "../../types.d.ts" */

import { badge } from "../../components/elements.js";
import { h } from "../../core/dom.js";
import { joined, t, withReason } from "../../core/words.js";
import { scopeText } from "./limit_scope.js";

const TONES = {
  active: "good",
  idle: "neutral",
  paused: "warning",
  draining: "warning",
  no_worker: "bad",
  at_limit: "warning",
};

/** @param {JobGroup} group @param {string} key @param {string[]} unserved */
function stateCell({ state, paused, paused_by, limited_by, due_paused }, key, unserved) {
  const label = state === "no_worker" ? t(key, { n: unserved.length }) : t(`queues.state.${state}`);
  const limits = state === "at_limit" ? limited_by.map(scopeText).join(" · ") : "";
  const pauses = paused_by.map(({ kind, name }) => t("limits.named", { kind: t(`kind.${kind}`), name }));
  const pausedBy = paused && withReason(t("queues.paused-by", { person: paused.actor }), paused.reason);
  const more = pausedBy || joined(pauses) || joined(unserved) || limits;
  const ofTenants = due_paused ? t("queues.due-paused", { n: due_paused }) : "";
  return [
    badge(TONES[state], label),
    ...[more, ofTenants].map((line) => line && h("div", { class: "small soft break" }, line)),
  ];
}

/** @param {Queue} queue */
export const queueState = (queue) => stateCell(queue, "queues.no-worker-types", queue.unserved_types);

/** @param {JobType} jobType */
export const jobTypeState = (jobType) => stateCell(jobType, "queues.no-worker-queues", jobType.unserved_queues);
