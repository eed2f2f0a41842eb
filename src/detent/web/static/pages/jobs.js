// The list of jobs by filter, newest first, and actions on many of them.

/** @import { Contract, Found, Job, Page, Queue, Table } from "../types.d.ts" */

import { actionButton, button } from "../components/elements.js";
import { filterBox } from "../components/filter_box.js";
import { parseFilter, termValue, withTerm } from "../components/filter_query.js";
import { liveList, PAGE_SIZE } from "../components/live_list.js";
import { savedViews } from "../components/saved_views.js";
import { showRows, table } from "../components/table.js";
import { get, may } from "../core/api.js";
import { loadContracts } from "../core/contracts.js";
import { childElements, fill, h } from "../core/dom.js";
import { startPage } from "../core/page.js";
import { emptyState, errorState } from "../core/states.js";
import { enqueueUrl, setQueryParams } from "../core/urls.js";
import { t } from "../core/words.js";
import { actOnMany } from "./jobs/bulk_actions.js";
import { chosenColumns, columnMenu, isDefault, jobColumns } from "./jobs/columns.js";
import { exportMenu } from "./jobs/export_menu.js";
import "../core/shell.js";

const PHASES = ["claimable", "leased", "blocked", "final"];
const RANGES = ["15m", "1h", "24h", "7d"];
/** What the columns show. A payload can be a megabyte, and the list is loaded again with each change. */
const FIELDS = [
  "id,job_type,contract,queue,tenant_id,status,phase,priority,execution_no,error_code,error_message,idempotency_key",
  "task_id,trace_id,parent_id,worker,created_at,updated_at,started_at,finished_at,progress",
].join();

const params = new URLSearchParams(location.search);
let filter = params.get("q") ?? "";
/** Whether the viewer has finished typing: a filter that is being typed never empties the list. */
let isFilterDone = true;
let columns = chosenColumns(params.get("columns"));
/** @type {Set<string>} */
const selectedIds = new Set();
/** @type {Map<string, Contract>} */
const contracts = new Map();
/** @type {ReturnType<typeof build> | null} */
let view = null;

const query = () => parseFilter(filter).query;
const list = liveList({
  keyOf: (/** @type {Job} */ { id }) => id,
  loadPage,
  loadRows: async (ids) => (await /** @type {Promise<Page<Job>>} */ (get("jobs", { id: ids, fields: FIELDS }))).items,
  refresh: () => refresh(),
  cursors: (params.get("at") ?? "").split(",").filter(Boolean),
  onCursors: (cursors) => setQueryParams({ at: cursors.join(",") }),
});

/**
 * @param {string | undefined} cursor
 * @returns {Promise<Found<Job>>}
 */
function loadPage(cursor) {
  return get("jobs", { ...query(), cursor, limit: PAGE_SIZE, fields: FIELDS });
}

/** Known values of a key; those of the rows for people who may not see all queues and workers. @param {string} key */
async function suggest(key) {
  /** @type {Record<string, (job: Job) => string | null>} */
  const shownValues = {
    queue: (job) => job.queue,
    type: (job) => job.job_type,
    worker: (job) => job.worker,
    tenant: (job) => job.tenant_id,
    error: (job) => job.error_code,
    parent: (job) => job.parent_id,
    trace: (job) => job.trace_id,
    task: (job) => job.task_id,
  };
  const shown = list.rows().map((job) => shownValues[key]?.(job) ?? "").filter(Boolean);
  return sortedUnique([...await knownValues(key).catch(() => []), ...shown]);
}

/** @param {string} key @returns {Promise<string[]>} */
async function knownValues(key) {
  if (key === "phase") return PHASES;
  if (key === "contract" || key === "status") {
    /** @type {Page<{ name: string }>} */
    const { items } = await get("contracts");
    const names = items.map(({ name }) => name);
    if (key === "contract") return names;
    return [...(await loadContracts(names)).values()].flatMap(({ statuses }) => Object.keys(statuses));
  }
  if (key === "queue" || key === "type") {
    /** @type {Page<Queue>} */
    const { items } = await get("queues");
    return items.flatMap(({ queue, job_types }) => key === "queue" ? queue : job_types);
  }
  if (key !== "worker") return [];
  /** @type {Page<{ id: string }>} */
  const { items } = await get("workers");
  return items.map(({ id }) => id);
}

/** @param {string[]} values */
const sortedUnique = (values) => [...new Set(values)].sort();

/** @param {HTMLElement} root */
function build(root) {
  const box = filterBox({ value: filter, suggest, label: t("filter.label"), onChange: onFilterChange });
  const tabs = h("div", { class: "tabs", role: "group", "aria-label": t("jobs.phases") });
  for (const phase of [null, ...PHASES]) {
    const choose = () => box.set(withTerm(box.text(), "phase", phase));
    tabs.append(button(t(phase ? `phase.${phase}` : "jobs.all"), choose, { "data-value": phase ?? "" }));
  }
  const range = h(
    "select",
    { id: "time-range", "aria-label": t("list.range") },
    h("option", { value: "" }, t("list.range.any")),
    RANGES.map((span) => h("option", { value: span }, t(`list.range.${span}`))),
    h("option", { value: "other", hidden: true }, t("list.range.other")),
  );
  range.addEventListener("change", () => box.set(withTerm(box.text(), "since", range.value || null)));
  const selectPage = h("input", { type: "checkbox", "aria-label": t("jobs.select-page") });
  selectPage.addEventListener("change", () => {
    for (const job of list.rows()) select(job.id, selectPage.checked);
    drawSelection();
  });
  const tools = h(
    "div",
    { class: "toolbar" },
    tabs,
    range,
    h("span", { class: "grow" }),
    h("span", {}, list.pauseButton),
    savedViews("jobs", "jobs", () => new URLSearchParams({ q: filter, columns: columns.join() }).toString()),
    columnMenu(() => columns, onColumnsChange),
    exportMenu(query),
    may("submit") && h("a", { class: "button primary", href: enqueueUrl() }, t("action.enqueue")),
  );
  const bulk = h("div", { class: "toolbar selection", hidden: true });
  const note = h("p", { class: "soft small", role: "status", id: "filter-note" });
  const content = h("div"), foot = h("div", { class: "pages" });
  fill(root, h("div", { class: "toolbar" }, box.node), tools, bulk, note, list.announcement, content, foot);
  return { tabs, range, rows: buildTable(selectPage), selectPage, bulk, note, content, foot };
}

/** @param {string} text @param {boolean} isDone */
function onFilterChange(text, isDone) {
  const changed = text !== filter;
  filter = text;
  isFilterDone = isDone;
  if (changed) selectedIds.clear();
  setQueryParams({ q: filter });
  list.restart();
}

/** @param {string[]} names */
function onColumnsChange(names) {
  columns = names;
  setQueryParams({ columns: isDefault(columns) ? "" : columns.join() });
  if (!view) return;
  view.rows = buildTable(view.selectPage);
  drawRows();
}

/**
 * @param {HTMLInputElement} selectPage
 * @returns {Table<Job>}
 */
const buildTable = (selectPage) =>
  table(t("page.jobs"), [
    may("operate") && { label: "", head: selectPage, class: "tight", cell: selectCell },
    ...jobColumns(columns, contracts),
  ]);

/** @param {Job} job */
function selectCell({ id }) {
  const label = t("jobs.select", { id });
  const checked = selectedIds.has(id);
  const box = h("input", { type: "checkbox", "aria-label": label, "data-focus": "select", checked });
  box.addEventListener("change", () => {
    select(id, box.checked);
    drawSelection();
  });
  return box;
}

/**
 * @param {string} id
 * @param {boolean} selected
 */
function select(id, selected) {
  if (selected) selectedIds.add(id);
  else selectedIds.delete(id);
}

async function load() {
  const data = await list.load();
  for (const [name, contract] of await loadContracts(data.rows.map((job) => job.contract))) {
    contracts.set(name, contract);
  }
  return data;
}

/**
 * @param {HTMLElement} root
 * @param {Awaited<ReturnType<typeof load>>} data
 */
function draw(root, data) {
  view ??= build(root);
  const hadRows = view.rows.body.childElementCount > 0 && view.rows.node.isConnected;
  if (!list.apply(data)) return;
  for (const tab of childElements(view.tabs)) {
    tab.setAttribute("aria-pressed", String(tab.dataset.value === termValue(filter, "phase")));
  }
  const since = termValue(filter, "since");
  view.range.value = since === "" || RANGES.includes(since) ? since : "other";
  const keepRows = !data.rows.length && hadRows && (!isFilterDone || list.isSearching());
  view.content.classList.toggle("stale", keepRows);
  view.note.textContent = keepRows ? t("list.no-match-yet", { filter }) : "";
  if (!keepRows) drawRows();
  fill(view.foot, list.foot());
  drawSelection();
}

function drawRows() {
  if (view) showRows(view.content, view.rows, list.rows(), ({ id }) => id, noJobs);
}

function noJobs() {
  const key = filter ? "jobs.no-match" : "jobs.none";
  const hint = !filter && may("submit") ? "jobs.none.submit" : `${key}.more`;
  return emptyState(t(key), t(list.hasMore() ? "jobs.searched-part" : hint));
}

function drawSelection() {
  if (!view) return;
  for (const row of childElements(view.rows.body)) {
    const selected = selectedIds.has(row.dataset.key ?? "");
    row.setAttribute("aria-selected", String(selected));
    const box = /** @type {HTMLInputElement | null} */ (row.querySelector("input[type=checkbox]"));
    if (box) box.checked = selected;
  }
  const { selectPage, bulk } = view;
  const shown = list.rows();
  selectPage.checked = shown.length > 0 && shown.every((job) => selectedIds.has(job.id));
  selectPage.indeterminate = !selectPage.checked && shown.some((job) => selectedIds.has(job.id));
  if (!may("operate")) return;
  const n = selectedIds.size;
  const { invalid } = parseFilter(filter); // its other terms match more jobs than the viewer means
  bulk.hidden = n === 0 && (!Object.keys(query()).length || invalid.length > 0 || !shown.length);
  const clear = () => {
    selectedIds.clear();
    drawSelection();
  };
  if (bulk.dataset.shown === String(n) && bulk.childElementCount) return;
  bulk.dataset.shown = String(n);
  fill(
    bulk,
    h("strong", {}, n ? t("jobs.selected", { n }) : t("jobs.all-matching")),
    h("span", { class: "grow" }),
    actionButton("cancel", () => bulkAction("cancel"), { class: "danger", "data-action": "bulk-cancel" }),
    actionButton("requeue", () => bulkAction("requeue"), { "data-action": "bulk-requeue" }),
    n > 0 && button(t("jobs.clear-selection"), clear, { class: "plain" }),
  );
}

/** @param {"cancel" | "requeue"} action */
async function bulkAction(action) {
  const target = selectedIds.size ? { ids: [...selectedIds] } : { filter, query: query() };
  if (!await actOnMany(action, target)) return;
  selectedIds.clear();
  drawSelection();
  list.reload();
}

const refresh = startPage({
  load,
  draw,
  drawRefusal: (root, problem) => {
    view ??= build(root);
    fill(view.content, errorState(problem, refresh));
  },
  every: 1000,
  isPaused: list.isPaused,
  onProgress: (jobId, progress) => {
    if (list.change(jobId, { progress })) drawRows();
  },
});
