// The executions of a job, the last one first, with their errors and tracebacks.

/** @import { JobEvent, JobView } from "../../types.d.ts" */

import { card } from "../../components/elements.js";
import { h } from "../../core/dom.js";
import { formatDuration, millisecondsBetween, timeElement } from "../../core/time.js";
import { t } from "../../core/words.js";

/**
 * `end`: the event that ended the execution. `error`: the data of the event that reported its error.
 * @typedef {object} Execution
 * @property {number} number
 * @property {string} startedAt
 * @property {string | null} worker
 * @property {JobEvent | null} end
 * @property {Record<string, unknown> | null} error
 */

/** @param {JobEvent[]} history */
export function executionsOf(history) {
  /** @type {Map<number, Execution>} */
  const executions = new Map();
  for (const event of history) {
    const { execution_no: number, note, at, actor, data } = event;
    if (number < 1 || note) continue;
    const execution = executions.get(number);
    if (!execution) executions.set(number, { number, startedAt: at, worker: actor, end: null, error: null });
    else {
      execution.end ??= event;
      if (data.error_code) execution.error ??= data;
    }
  }
  return [...executions.values()].reverse();
}

/**
 * @param {Execution[]} executions
 * @param {JobView} view
 */
export const executionsCard = (executions, { job }) =>
  card(
    t("job.executions"),
    h("div", { class: "stack" }, executions.map((execution) => executionNode(execution, job.phase === "leased"))),
  );

/**
 * @param {Execution} execution
 * @param {boolean} isRunning
 */
function executionNode({ number, startedAt, worker, end, error }, isRunning) {
  const result = end ? ` · ${end.event}` : isRunning ? ` · ${t("job.running")}` : "";
  return h(
    "div",
    {},
    h(
      "div",
      { class: "row between" },
      h("strong", {}, t("job.execution", { n: number })),
      h(
        "span",
        { class: "soft small" },
        end ? formatDuration(millisecondsBetween(startedAt, end.at)) : timeElement(startedAt),
      ),
    ),
    h("div", { class: "small soft break" }, worker, result),
    error && h(
      "div",
      { class: "small break" },
      h("code", {}, String(error.error_code)),
      " ",
      String(error.error_message ?? ""),
    ),
    Boolean(error?.traceback) && h(
      "details",
      {},
      h("summary", { class: "small" }, t("job.traceback")),
      h("pre", { class: "trace", tabindex: "0" }, String(error?.traceback)),
    ),
  );
}
