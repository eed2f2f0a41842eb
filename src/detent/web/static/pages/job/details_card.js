/** @import { Child, DeadLetter, Job, JobView, Page } from "../../types.d.ts" */

import { detailsList } from "../../components/table.js";
import { get } from "../../core/api.js";
import { h } from "../../core/dom.js";
import { timeElement } from "../../core/time.js";
import { contractUrl, deadLetterUrl, jobUrl } from "../../core/urls.js";
import { formatNumber, t } from "../../core/words.js";

/** @param {string} id */
const jobLink = (id) => h("a", { href: jobUrl(id) }, id);
/** Ids of dead letters, or not; asked once. @type {Map<string, Promise<boolean>>} */
const deadLetterIds = new Map();

/** @param {string} id */
async function isDeadLetter(id) {
  /** @type {Page<DeadLetter>} */
  const { items } = await get("dlq/items", { id: [id] });
  return items.length > 0;
}

/** A link to what a job was requeued from: a dead letter, or a job that has none. @param {string} id */
function originLink(id) {
  const link = h("a", { href: deadLetterUrl(id), "data-origin": true }, id);
  const asked = deadLetterIds.get(id) ?? isDeadLetter(id).catch(() => true);
  deadLetterIds.set(id, asked);
  asked.then((found) => {
    if (!found) link.href = jobUrl(id);
  });
  return link;
}

/** @param {string} text */
const code = (text) => h("code", {}, text);

/**
 * What the contract calls its counters, times and states, where the job has no such field.
 * @param {Job} job
 * @returns {[string, Child][]}
 */
const fieldsOfContract = (job) =>
  Object.entries(job.view)
    .filter(([name, value]) => value !== null && typeof value !== "object" && value !== Reflect.get(job, name))
    .map(([name, value]) => [name, name.endsWith("_at") ? timeElement(String(value)) : code(String(value))]);

/** The job's attributes; those without a value are left out. @param {JobView} view */
export function jobDetails({ job, detail }) {
  const { wait } = detail;
  const executions = { n: job.execution_no, retries: detail.retries, max: job.max_retries };
  return detailsList([
    [t("col.contract"), h("a", { href: contractUrl(job.contract) }, job.contract)],
    [t("col.queue"), job.queue],
    [t("col.tenant"), job.tenant_id],
    [t("job.priority"), formatNumber(job.priority)],
    [t("job.version"), formatNumber(job.version)],
    [t("col.executions"), t("job.execution-count", executions)],
    [t("job.created"), timeElement(job.created_at)],
    [t("job.started"), timeElement(job.started_at)],
    [t("job.finished"), timeElement(job.finished_at)],
    job.due_at && [t("job.due"), timeElement(job.due_at)],
    job.worker && [t("col.worker"), job.worker],
    job.lease_until && [t("job.lease"), timeElement(job.lease_until)],
    wait && [t("job.waits-for"), [
      h("strong", {}, wait.name),
      wait.until && [" ", t("job.until"), " ", timeElement(wait.until)],
    ]],
    job.idempotency_key && [t("job.idempotency-key"), code(job.idempotency_key)],
    job.task_id && [t("job.task"), code(job.task_id)],
    job.trace_id && [t("job.trace"), code(job.trace_id)],
    job.error_code && [t("col.error"), [code(job.error_code), job.error_message && [h("br"), job.error_message]]],
    job.dlq_id && [t("job.dead-letter"), h("a", { href: deadLetterUrl(job.dlq_id) }, job.dlq_id)],
    job.requeued_from && [t("job.requeued-from"), originLink(job.requeued_from)],
    job.parent_id && [t("job.parent"), jobLink(job.parent_id)],
    ...fieldsOfContract(job),
  ]);
}
