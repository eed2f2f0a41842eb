// The columns of the list of jobs, and which of them the viewer wants to see.

/** @import { Child, Column, Contract, Job } from "../../types.d.ts" */

import { linkWithId } from "../../components/elements.js";
import { dropDown } from "../../components/menu.js";
import { progressBar } from "../../components/progress_bar.js";
import { statusBadge } from "../../core/contracts.js";
import { h } from "../../core/dom.js";
import { formatDuration, millisecondsBetween, timeElement } from "../../core/time.js";
import { jobsUrl, jobUrl } from "../../core/urls.js";
import { formatNumber, t } from "../../core/words.js";
import { filterTerm } from "../../components/filter_query.js";

const STORED_AS = "detent-job-columns";
const DEFAULT = ["status", "queue", "tenant", "attempts", "duration", "error", "updated"];

/** A link to the list of jobs with this term as the filter. @param {string} key @param {string} value @param {string} [text] */
const filterLink = (key, value, text = value) => h("a", { href: jobsUrl(filterTerm(key, value)) }, text);

/** From the first start to the end, or until now. @param {Job} job */
function duration({ started_at, finished_at, phase }) {
  if (!started_at) return null;
  const text = formatDuration(millisecondsBetween(started_at, finished_at ?? new Date().toISOString()));
  return phase === "leased" ? h("span", { class: "soft" }, text) : text;
}

/** @param {string | null} id */
const shortLink = (id) => id && h("a", { href: jobUrl(id), class: "mono small", title: id }, `…${id.slice(-8)}`);

/** @type {Record<string, { label: string, class?: string, cell: (job: Job, contracts: Map<string, Contract>) => Child }>} */
const COLUMNS = {
  status: {
    label: "col.status",
    cell: (job, contracts) => [
      statusBadge(contracts.get(job.contract), job.status, job.phase),
      job.phase === "leased" && progressBar(job.progress),
    ],
  },
  queue: { label: "col.queue", cell: ({ queue }) => queue },
  tenant: { label: "col.tenant", cell: ({ tenant_id }) => tenant_id },
  contract: { label: "col.contract", cell: ({ contract }) => contract },
  attempts: { label: "col.attempts", class: "number", cell: ({ execution_no }) => formatNumber(execution_no) },
  duration: { label: "col.duration", class: "number nowrap", cell: duration },
  error: {
    label: "col.error",
    class: "wide",
    cell: ({ error_code, error_message }) =>
      error_code && h("span", { title: error_message ?? "" }, h("code", {}, error_code)),
  },
  worker: { label: "col.worker", cell: ({ worker }) => worker && filterLink("worker", worker) },
  parent: { label: "col.parent", cell: ({ parent_id }) => shortLink(parent_id) },
  trace: {
    label: "col.trace",
    cell: ({ trace_id }) => trace_id && h("span", { class: "mono small break" }, filterLink("trace", trace_id)),
  },
  key: { label: "col.key", cell: ({ idempotency_key }) => idempotency_key && h("code", {}, idempotency_key) },
  priority: { label: "col.priority", class: "number", cell: ({ priority }) => formatNumber(priority) },
  created: { label: "col.created", class: "nowrap", cell: ({ created_at }) => timeElement(created_at) },
  started: { label: "col.started", class: "nowrap", cell: ({ started_at }) => timeElement(started_at) },
  finished: { label: "col.finished", class: "nowrap", cell: ({ finished_at }) => timeElement(finished_at) },
  updated: { label: "col.updated", class: "nowrap", cell: ({ updated_at }) => timeElement(updated_at) },
};

/** @param {string | null} text names of columns, from the address or from this browser */
const namesOf = (text) => (text ?? "").split(",").filter((name) => Object.hasOwn(COLUMNS, name));

/** @param {string | null} inAddress */
export function chosenColumns(inAddress) {
  const chosen = namesOf(inAddress);
  if (chosen.length) return chosen;
  const stored = namesOf(localStorage.getItem(STORED_AS));
  return stored.length ? stored : DEFAULT;
}

/** @param {string[]} names */
export const isDefault = (names) => names.join() === DEFAULT.join();

/**
 * @param {string[]} names
 * @param {Map<string, Contract>} contracts
 * @returns {Column<Job>[]}
 */
export const jobColumns = (names, contracts) => [
  { label: t("col.type"), cell: ({ id, job_type }) => linkWithId(jobUrl(id), job_type, id) },
  ...names.map((name) => {
    const { label, class: style, cell } = COLUMNS[name];
    return { label: t(label), class: style, cell: (/** @type {Job} */ job) => cell(job, contracts) };
  }),
];

/**
 * A menu with a check box for each column.
 * @param {() => string[]} chosen
 * @param {(names: string[]) => void} onChange
 */
export function columnMenu(chosen, onChange) {
  /** @param {string} name */
  const line = (name) => {
    const box = h("input", { type: "checkbox", checked: chosen().includes(name), "data-column": name });
    box.addEventListener("change", () => {
      const names = Object.keys(COLUMNS).filter((one) => one === name ? box.checked : chosen().includes(one));
      localStorage.setItem(STORED_AS, names.join());
      onChange(names);
    });
    return h("label", { class: "check" }, box, t(COLUMNS[name].label));
  };
  return dropDown(t("list.columns"), () => Object.keys(COLUMNS).map(line), "columns").node;
}
