/** @import { JobView } from "../../types.d.ts" */

import { errorClass } from "../../components/elements.js";
import { h } from "../../core/dom.js";
import { sentenceGap, t } from "../../core/words.js";
import { executionsOf } from "./executions_card.js";

/** The error of the job's last failed execution, with its traceback; null if there is none. @param {JobView} view */
export function errorCard(view) {
  const { job, contract } = view;
  if (!job.error_code) return null;
  const failed = executionsOf(view).findLast(({ error }) => error);
  const traceback = failed?.error?.traceback;
  const isFinal = contract.statuses[job.status] === "final";
  return h(
    "div",
    { class: "job-error", id: "job-error" },
    h("strong", {}, t(isFinal ? "job.error" : "job.last-error"), sentenceGap),
    h("code", {}, job.error_code),
    " ",
    errorClass(failed?.error?.error_class, job.error_message),
    job.error_message && h("pre", { class: "break" }, job.error_message),
    Boolean(traceback) && h(
      "details",
      {},
      h("summary", { class: "small" }, t("job.traceback")),
      h("pre", { class: "trace", tabindex: "0" }, String(traceback)),
    ),
  );
}
