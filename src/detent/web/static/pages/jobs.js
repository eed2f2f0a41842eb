// The list of jobs by filter, newest first, and actions on many of them.

/** @import { Contract, Job, Page, Queue, Table } from "../types.d.ts" */

import { actionButton, button, linkWithId, pager } from "../components/elements.js";
import { filterBox } from "../components/filter_box.js";
import { parseFilter } from "../components/filter_query.js";
import { showRows, table } from "../components/table.js";
import { get, may } from "../core/api.js";
import { loadContracts, statusBadge } from "../core/contracts.js";
import { childElements, fill, h, isDialogOpen } from "../core/dom.js";
import { startPage } from "../core/page.js";
import { emptyState } from "../core/states.js";
import { timeElement } from "../core/time.js";
import { jobUrl, setQueryParams } from "../core/urls.js";
import { formatNumber, t } from "../core/words.js";
import { actOnMany } from "./jobs/bulk_actions.js";
import "../core/shell.js";

const PHASES = ["claimable", "leased", "blocked", "final"];
const PAGE_SIZE = 50;
// The API searches a part of the jobs per request and may find none in it.
const MOST_SEARCH_REQUESTS = 60;

const params = new URLSearchParams(location.search);
let filter = params.get("q") ?? "";
/** Cursors of the pages from the newest to the one shown. */
let cursors = (params.get("at") ?? "").split(",").filter(Boolean);
/** An empty page is followed to the next one, until the viewer turns a page. */
let searching = cursors.length === 0;
/** @type {Set<string>} */
const selectedIds = new Set();
/** @type {Map<string, Contract>} */
const contracts = new Map();
/** @type {Job[]} */
let shown = [];
/** @type {ReturnType<typeof build> | null} */
let view = null;

const query = () => parseFilter(filter).query;
const updateAddress = () => setQueryParams({ q: filter, at: cursors.join(",") });

/** @param {string} key */
async function suggest(key) {
  if (key === "phase") return PHASES;
  if (key === "tenant") return sortedUnique(shown.map((job) => job.tenant_id));
  if (key === "contract" || key === "status") {
    /** @type {Page<{ name: string }>} */
    const { items } = await get("contracts");
    const names = items.map(({ name }) => name);
    if (key === "contract") return names;
    return sortedUnique([...(await loadContracts(names)).values()].flatMap(({ statuses }) => Object.keys(statuses)));
  }
  /** @type {Page<Queue>} */
  const { items } = await get("queues");
  return key === "queue" ? items.map(({ queue }) => queue) : sortedUnique(items.flatMap(({ job_types }) => job_types));
}

/** @param {string[]} values */
const sortedUnique = (values) => [...new Set(values)].sort();

/** @param {HTMLElement} root */
function build(root) {
  const box = filterBox({ value: filter, suggest, label: t("filter.label"), onChange: onFilterChange });
  const tabs = h("div", { class: "tabs", role: "group", "aria-label": t("jobs.phases") });
  /** @type {[value: string, text: string][]} */
  const quickFilters = [["", t("jobs.all")], ...PHASES.map(quickFilter)];
  tabs.append(...quickFilters.map(([value, text]) => button(text, () => box.set(value), { "data-value": value })));
  const selectPage = h("input", { type: "checkbox", "aria-label": t("jobs.select-page") });
  selectPage.addEventListener("change", () => {
    for (const job of shown) select(job.id, selectPage.checked);
    drawSelection();
  });
  const rows = buildTable(selectPage);
  const bulk = h("div", { class: "toolbar selection", hidden: true });
  const list = h("div"), foot = h("div", { class: "pages" });
  fill(root, h("div", { class: "toolbar" }, box.node, tabs), bulk, list, foot);
  return { tabs, rows, selectPage, bulk, list, foot };
}

/**
 * @param {string} phase
 * @returns {[string, string]}
 */
const quickFilter = (phase) => [`phase:${phase}`, t(`phase.${phase}`)];

/** @param {string} text */
function onFilterChange(text) {
  filter = text;
  cursors = [];
  searching = true;
  selectedIds.clear();
  updateAddress();
  refresh();
}

/**
 * @param {HTMLInputElement} selectPage
 * @returns {Table<Job>}
 */
function buildTable(selectPage) {
  return table(t("page.jobs"), [
    may("operate") && { label: "", head: selectPage, class: "tight", cell: selectCell },
    { label: t("col.type"), cell: ({ id, job_type }) => linkWithId(jobUrl(id), job_type, id) },
    { label: t("col.status"), cell: (job) => statusBadge(contracts.get(job.contract), job.status, job.phase) },
    { label: t("col.queue"), cell: ({ queue }) => queue },
    { label: t("col.tenant"), cell: ({ tenant_id }) => tenant_id },
    { label: t("col.contract"), cell: ({ contract }) => contract },
    { label: t("col.executions"), class: "number", cell: ({ execution_no }) => formatNumber(execution_no) },
    {
      label: t("col.error"),
      cell: ({ error_code, error_message }) =>
        error_code && h("span", { title: error_message ?? "" }, h("code", {}, error_code)),
    },
    { label: t("col.updated"), class: "nowrap", cell: ({ updated_at }) => timeElement(updated_at) },
  ]);
}

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
  const requested = { filter, cursor: cursors.at(-1) };
  let page = await loadPage(requested.cursor);
  for (let requests = 1; searching && requests <= MOST_SEARCH_REQUESTS && filter === requested.filter; requests += 1) {
    if (page.items.length || !page.next_cursor) break;
    cursors.push(page.next_cursor);
    page = await loadPage(page.next_cursor);
  }
  if (searching && filter === requested.filter) {
    searching = false;
    if (!page.items.length && !page.next_cursor) cursors = [];
    requested.cursor = cursors.at(-1);
    if (cursors.length) updateAddress();
  }
  for (const [name, contract] of await loadContracts(page.items.map((job) => job.contract))) {
    contracts.set(name, contract);
  }
  return { page, requested };
}

/**
 * @param {string | undefined} cursor
 * @returns {Promise<Page<Job>>}
 */
const loadPage = (cursor) => get("jobs", { ...query(), cursor, limit: PAGE_SIZE });

/**
 * @param {HTMLElement} root
 * @param {{ page: Page<Job>, requested: { filter: string, cursor: string | undefined } }} data
 */
function draw(root, { page, requested }) {
  view ??= build(root);
  if (requested.filter !== filter || requested.cursor !== cursors.at(-1)) return;
  const { next_cursor } = page;
  shown = page.items;
  for (const tab of childElements(view.tabs)) tab.setAttribute("aria-pressed", String(tab.dataset.value === filter));
  showRows(view.list, view.rows, shown, ({ id }) => id, () => noJobs(next_cursor));
  const onNewer = () => {
    cursors.pop();
    showPage();
  };
  const onOlder = next_cursor && (() => {
    cursors.push(next_cursor);
    showPage();
  });
  const pageNumber = h("span", { class: "soft" }, t("pages.number", { n: cursors.length + 1 }));
  fill(view.foot, pager(cursors.length ? onNewer : null, onOlder || null, pageNumber));
  drawSelection();
}

/** @param {string | null} nextCursor */
function noJobs(nextCursor) {
  const key = filter ? "jobs.no-match" : "jobs.none";
  return emptyState(t(key), t(nextCursor ? "jobs.searched-part" : `${key}.more`));
}

function showPage() {
  updateAddress();
  refresh();
  window.scrollTo({ top: 0 });
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
  selectPage.checked = shown.length > 0 && shown.every((job) => selectedIds.has(job.id));
  selectPage.indeterminate = !selectPage.checked && shown.some((job) => selectedIds.has(job.id));
  if (!may("operate")) return;
  const n = selectedIds.size;
  bulk.hidden = n === 0 && !Object.keys(query()).length;
  const clear = () => {
    selectedIds.clear();
    drawSelection();
  };
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
  refresh();
}

const refresh = startPage({ load, draw, every: 700, concerns: () => cursors.length === 0 && !isDialogOpen() });
