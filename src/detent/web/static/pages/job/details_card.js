/** @import { Child, JobView } from "../../types.d.ts" */

import { detailsList } from "../../components/table.js";
import { mayOpen } from "../../core/api.js";
import { h } from "../../core/dom.js";
import { timeElement } from "../../core/time.js";
import { contractUrl, deadLetterUrl, jobTypeUrl, jobUrl, queueUrl, workerUrl } from "../../core/urls.js";
import { formatNumber, t } from "../../core/words.js";

/** @param {string} id */
const jobLink = (id) => h("a", { href: jobUrl(id) }, id);
/** @param {{ kind: "dead_letter" | "job", id: string }} origin */
const originLink = ({ kind, id }) =>
  h(
    "a",
    { href: kind === "dead_letter" ? deadLetterUrl(id) : jobUrl(id), "data-origin": true },
    id,
  );
/** @param {string} text */
const code = (text) => h("code", {}, text);

/**
 * What the contract calls its counters, times and states, but for names and values of Detent's own, which the page shows.
 * @param {Pick<JobView, "job" | "detail">} view
 * @returns {[Child, Child][]}
 */
function fieldsOfContract({ job, detail }) {
  const { retries, cancel_requested, wait } = detail;
  const shown = { ...job, job_id: job.id, retries, retry_count: retries, failures: retries, cancel_requested };
  return Object.entries(job.view)
    .filter(([name, value]) => value !== null && typeof value !== "object" && value !== Reflect.get(shown, name))
    .filter(([, value]) => value !== wait?.name)
    .map(([name, value]) => [code(name), name.endsWith("_at") ? timeElement(String(value)) : code(String(value))]);
}

/** The job's attributes; those without a value are left out. @param {JobView} view */
export function jobDetails({ job, detail }) {
  const { wait } = detail;
  const executions = { n: job.execution_no, retries: detail.retries, max: job.max_retries };
  return detailsList([
    [t("col.type"), mayOpen("job_types") ? h("a", { href: jobTypeUrl(job.job_type) }, job.job_type) : job.job_type],
    [t("col.contract"), h("a", { href: contractUrl(job.contract) }, job.contract)],
    [t("col.queue"), mayOpen("queues") ? h("a", { href: queueUrl(job.queue) }, job.queue) : job.queue],
    [t("col.tenant"), job.tenant_id],
    [t("job.priority"), formatNumber(job.priority)],
    [t("job.version"), formatNumber(job.version)],
    [t("col.executions"), t(`job.execution-count${job.max_retries ? "" : ".no-retries"}`, executions)],
    [t("job.created"), timeElement(job.created_at)],
    [t("job.started"), timeElement(job.started_at)],
    [t("job.finished"), timeElement(job.finished_at)],
    job.due_at && !wait && [t("job.due"), timeElement(job.due_at)],
    job.worker &&
    [t("col.worker"), mayOpen("workers") ? h("a", { href: workerUrl(job.worker) }, job.worker) : job.worker],
    job.lease_until && [t("job.lease"), timeElement(job.lease_until)],
    wait && [t("job.waits-for"), [
      h("strong", {}, wait.kind === "children" ? t("children.title") : wait.name),
      wait.until && [" ", t("job.until"), " ", timeElement(wait.until)],
    ]],
    job.idempotency_key && [t("job.idempotency-key"), code(job.idempotency_key)],
    job.task_id && [t("job.task"), code(job.task_id)],
    job.trace_id && [t("job.trace"), code(job.trace_id)],
    job.dlq_id && [t("job.dead-letter"), h("a", { href: deadLetterUrl(job.dlq_id) }, job.dlq_id)],
    detail.requeued_from && [t("job.requeued-from"), originLink(detail.requeued_from)],
    detail.requeued_as && [t("dead-letters.requeued-as"), jobLink(detail.requeued_as)],
    job.parent_id && [t("job.parent"), jobLink(job.parent_id)],
    ...fieldsOfContract({ job, detail }),
  ]);
}
