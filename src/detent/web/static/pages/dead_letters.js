// Dead letters: jobs that failed permanently, grouped by error or as a list. They can be requeued as new jobs or discarded.

/** @import { DeadLetter, ErrorGroup, ErrorGroupList, Found, Page, Table } from "../types.d.ts" */
/** @import { Query } from "../components/filter_query.js" */

import { button, errorClass, linkWithId } from "../components/elements.js";
import { filterBox } from "../components/filter_box.js";
import { DEAD_LETTER_FILTER_KEYS, parseFilter } from "../components/filter_query.js";
import { liveList, newRowsAnnouncement, PAGE_SIZE } from "../components/live_list.js";
import { savedViews } from "../components/saved_views.js";
import { showRows, table } from "../components/table.js";
import { get, may } from "../core/api.js";
import { childElements, fill, h } from "../core/dom.js";
import { startPage } from "../core/page.js";
import { emptyState, errorState } from "../core/states.js";
import { timeElement } from "../core/time.js";
import { deadLetterUrl, jobUrl, setQueryParams } from "../core/urls.js";
import { formatNumber, richText, t } from "../core/words.js";
import { actOnMatching } from "./dead_letters/bulk_actions.js";
import { deadLetterState } from "./dead_letters/dead_letter_actions.js";
import { groupTable, keyOfGroup, PERIODS, sortedGroups } from "./dead_letters/groups.js";
import "../core/shell.js";

const STATUSES = ["open", "requeued", "discarded", "all"];
const LONGEST_MESSAGE = 200;
const params = new URLSearchParams(location.search);
let filter = params.get("q") ?? "", status = params.get("status") ?? "open", isFilterDone = true;
let shownAs = params.get("view") ?? "groups", period = params.get("since") ?? "24h";
/** @type {Set<string>} */
const selectedIds = new Set();
/** @type {Partial<DeadLetter>[]} */
let shownGroups = [];
/** The groups in the order in which they stand on the page, and the request that they answer. */
let groupOrder = { key: "", groups: /** @type {string[]} */ ([]) };
const newGroups = newRowsAnnouncement(() => {
  groupOrder.key = "";
  refresh();
});
/** @type {ReturnType<typeof build> | null} */
let view = null;
const selectPage = h("input", { type: "checkbox", "aria-label": t("jobs.select-page"), id: "select-page" });

const query = () => parseFilter(filter, DEAD_LETTER_FILTER_KEYS).query;
const statusQuery = () => (status === "all" ? {} : { status });
const isGrouped = () => shownAs === "groups";

/** Errors that were first seen later are new: a time, or so long ago. */
function newSince() {
  const seconds = PERIODS[/** @type {keyof typeof PERIODS} */ (period)];
  const chosen = seconds === undefined ? new Date(period) : new Date(Date.now() - seconds * 1000);
  return (Number.isNaN(chosen.getTime()) ? new Date(Date.now() - 86_400_000) : chosen).toISOString();
}

/** What the columns show, which is less than the payload. */
const FIELDS = [
  "dlq_id,tenant_id,job_id,contract,job_type,queue,error_class,error_code,error_message,retry_count,status,created_at",
  "first_failed_at,requeued_as,proposed_by,proposed_reason,error_group",
].join();

const list = liveList({
  keyOf: (/** @type {DeadLetter} */ { dlq_id }) => dlq_id,
  loadPage: (cursor) => /** @type {Promise<Found<DeadLetter>>} */ (get("dlq/items", {
    ...query(),
    ...statusQuery(),
    cursor,
    limit: PAGE_SIZE,
    fields: FIELDS,
  })),
  loadRows: async (ids) => {
    /** @type {Page<DeadLetter>} */
    const { items } = await get("dlq/items", { id: ids, fields: FIELDS });
    return items;
  },
  refresh: () => refresh(),
});

function onSelectionChange() {
  setQueryParams({
    q: filter,
    status: status === "open" ? "" : status,
    view: isGrouped() ? "" : shownAs,
    since: period === "24h" ? "" : period,
  });
  list.restart();
}

/** Values of the newest dead letters; errors and types of all groups that are shown. @param {string} key */
async function suggest(key) {
  if (key === "contract") {
    /** @type {Page<{ name: string }>} */
    const { items } = await get("contracts");
    return items.map(({ name }) => name);
  }
  /** @type {Record<string, (item: Partial<DeadLetter>) => string | null | undefined>} */
  const values = {
    queue: (item) => item.queue,
    type: (item) => item.job_type,
    tenant: (item) => item.tenant_id,
    error: (item) => item.error_code,
    class: (item) => item.error_class,
    group: (item) => item.error_group,
    proposed: (item) => item.proposed_by,
  };
  /** @type {Page<DeadLetter>} */
  const { items } = await get("dlq/items", { ...statusQuery(), limit: 200, fields: FIELDS });
  const known = [...items, ...list.rows(), ...shownGroups];
  return [...new Set(known.map((item) => values[key]?.(item) ?? "").filter(Boolean))].sort();
}

/** @param {"requeue" | "discard"} action @param {Query} target @param {string} [subject] */
async function act(action, target, subject) {
  if (!await actOnMatching(action, target, subject)) return;
  selectedIds.clear();
  list.reload();
}

/**
 * Buttons of which one is pressed.
 * @param {string} label
 * @param {[value: string, text: string][]} choices
 * @param {(value: string) => void} choose
 */
const choiceButtons = (label, choices, choose) =>
  h(
    "div",
    { class: "tabs", role: "group", "aria-label": label },
    choices.map(([value, text]) => button(text, () => choose(value), { "data-value": value })),
  );

/** @param {HTMLElement} root */
function build(root) {
  const box = filterBox({
    value: filter,
    keys: DEAD_LETTER_FILTER_KEYS,
    suggest,
    label: t("dead-letters.filter"),
    placeholder: t("dead-letters.placeholder"),
    onChange: (text, isDone) => {
      filter = text;
      isFilterDone = isDone;
      selectedIds.clear();
      onSelectionChange();
    },
  });
  const statuses = choiceButtons(t("col.state"), STATUSES.map((name) => [name, t(`dead-letter.${name}`)]), (name) => {
    status = name;
    onSelectionChange();
  });
  const views = choiceButtons(t("dead-letters.view"), [
    ["groups", t("dead-letters.groups")],
    ["list", t("dead-letters.list")],
  ], (name) => {
    shownAs = name;
    onSelectionChange();
  });
  const since = buildPeriod();
  const tools = h(
    "div",
    { class: "toolbar" },
    statuses,
    views,
    since,
    h("span", { class: "grow" }),
    h("span", {}, list.pauseButton),
    savedViews("dead_letters", "dead-letters", () => new URL(location.href).search.slice(1)),
  );
  const bulk = h("div", { class: "toolbar selection", hidden: true });
  const note = h("p", { class: "soft small", role: "status", id: "filter-note" });
  const content = h("div"), foot = h("div", { class: "pages" });
  fill(
    root,
    h("div", { class: "toolbar" }, box.node),
    tools,
    bulk,
    note,
    list.announcement,
    newGroups.node,
    content,
    foot,
  );
  const groups = groupTable({
    since: newSince,
    filter: () => filter,
    canAct: () => status === "open",
    act: (action, group, subject) => act(action, { ...query(), ...group }, subject),
  });
  return { statuses, views, since, bulk, note, content, foot, groups, rows: buildTable() };
}

/** Since when an error counts as new: a period, or the time of a deploy. */
function buildPeriod() {
  const isTime = !Object.hasOwn(PERIODS, period);
  const time = h("input", {
    type: "datetime-local",
    step: 1, // with seconds
    "aria-label": t("dead-letters.new-since"),
    hidden: !isTime,
    value: isTime ? period : "",
    id: "new-since-time",
  });
  const select = h(
    "select",
    { "aria-label": t("dead-letters.new-since"), id: "new-since" },
    Object.keys(PERIODS).map((name) =>
      h("option", { value: name, selected: name === period }, t(`dead-letters.new.${name}`))
    ),
    h("option", { value: "time", selected: isTime }, t("dead-letters.new.time")),
  );
  const change = () => {
    time.hidden = select.value !== "time";
    if (select.value === "time" && !time.value) return void time.focus();
    period = select.value === "time" ? time.value : select.value;
    onSelectionChange();
  };
  select.addEventListener("change", change);
  time.addEventListener("change", change);
  return h("span", { class: "row" }, select, time);
}

/** @returns {Table<DeadLetter>} */
function buildTable() {
  const canAct = may("operate") || may("discard");
  selectPage.addEventListener("change", () => {
    for (const { dlq_id, status } of list.rows()) {
      if (selectPage.checked && status === "open") selectedIds.add(dlq_id);
      else selectedIds.delete(dlq_id);
    }
    drawSelection();
  });
  return table(t("page.dead_letters"), [
    canAct && { label: "", head: selectPage, class: "tight", cell: selectCell },
    { label: t("col.type"), cell: ({ dlq_id, job_type }) => linkWithId(deadLetterUrl(dlq_id), job_type, dlq_id) },
    { label: t("col.state"), cell: deadLetterState },
    {
      label: t("col.error"),
      cell: ({ error_code, error_class, error_message }) => [
        h("code", {}, error_code),
        h("div", { class: "small" }, errorClass(error_class, error_message)),
        error_message && h("div", { class: "small soft break" }, error_message.slice(0, LONGEST_MESSAGE)),
      ],
    },
    { label: t("col.queue"), cell: ({ queue }) => queue },
    { label: t("col.tenant"), cell: ({ tenant_id }) => tenant_id },
    { label: t("col.contract"), cell: ({ contract }) => contract },
    { label: t("col.retries"), class: "number", cell: ({ retry_count }) => formatNumber(retry_count) },
    { label: t("col.failed"), class: "nowrap", cell: ({ created_at }) => timeElement(created_at) },
    { label: t("col.job"), class: "nowrap", cell: ({ job_id }) => h("a", { href: jobUrl(job_id) }, t("link.job")) },
  ]);
}

/** @param {DeadLetter} deadLetter */
function selectCell({ dlq_id, status }) {
  const props = { "aria-label": t("dead-letters.select", { id: dlq_id }), "data-focus": "select" };
  const box = h("input", { type: "checkbox", ...props, checked: selectedIds.has(dlq_id), disabled: status !== "open" });
  box.addEventListener("change", () => {
    if (box.checked) selectedIds.add(dlq_id);
    else selectedIds.delete(dlq_id);
    drawSelection();
  });
  return box;
}

/** The actions on the selected dead letters, or on all that match. */
function drawSelection() {
  if (!view) return;
  const { bulk, rows } = view;
  for (const row of childElements(rows.body)) {
    const selected = selectedIds.has(row.dataset.key ?? "");
    row.setAttribute("aria-selected", String(selected));
    const box = /** @type {HTMLInputElement | null} */ (row.querySelector("input[type=checkbox]"));
    if (box) box.checked = selected;
  }
  const open = list.rows().filter((item) => item.status === "open");
  selectPage.checked = open.length > 0 && open.every(({ dlq_id }) => selectedIds.has(dlq_id));
  selectPage.indeterminate = !selectPage.checked && open.some(({ dlq_id }) => selectedIds.has(dlq_id));
  const n = selectedIds.size;
  const { invalid } = parseFilter(filter, DEAD_LETTER_FILTER_KEYS);
  const canAct = status === "open" && list.rows().length > 0 && (may("operate") || may("discard"));
  bulk.hidden = isGrouped() || !canAct || (n === 0 && invalid.length > 0);
  if (bulk.dataset.shown === String(n) && bulk.childElementCount) return;
  bulk.dataset.shown = String(n);
  /** @returns {Query} */
  const target = () => (selectedIds.size ? { ids: [...selectedIds] } : query());
  fill(
    bulk,
    h("strong", {}, n ? t("jobs.selected", { n }) : t("dead-letters.all-matching")),
    h("span", { class: "grow" }),
    may("operate") &&
      button(
        t(n ? "action.requeue" : "dead-letters.requeue-all"),
        () => act("requeue", target(), selectedIds.size ? "" : filter),
        {
          "data-action": "requeue-all",
        },
      ),
    may("discard") &&
      button(
        t(n ? "action.discard" : "dead-letters.discard-all"),
        () => act("discard", target(), selectedIds.size ? "" : filter),
        {
          class: "danger",
          "data-action": "discard-all",
        },
      ),
  );
}

/** @returns {Promise<{ groups: ErrorGroupList | null, listed: Awaited<ReturnType<typeof list.load>> | null, key: string }>} */
async function load() {
  const key = requestKey();
  if (!isGrouped()) return { groups: null, listed: await list.load(), key };
  const groups = await get("dlq/groups", { ...query(), status, slots_since: newSince() });
  return { groups: /** @type {ErrorGroupList} */ (groups), listed: null, key };
}

/**
 * Rows do not move while somebody reads: the groups that are shown keep their places, and new ones are announced.
 * @param {ErrorGroup[]} sorted
 * @param {string} key of the request
 */
function stillGroups(sorted, key) {
  const byKey = new Map(sorted.map((group) => [keyOfGroup(group), group]));
  const isShown = key === groupOrder.key && groupOrder.groups.some((name) => byKey.has(name));
  if (!isShown) groupOrder = { key, groups: [...byKey.keys()] };
  const shown = groupOrder.groups.flatMap((name) => byKey.get(name) ?? []);
  newGroups.announce(byKey.size - shown.length);
  return shown;
}

/** Identifies what is requested; a response to an older request is not drawn. */
const requestKey = () => [filter, status, shownAs, period].join("\n");

/**
 * @param {HTMLElement} root
 * @param {Awaited<ReturnType<typeof load>>} data
 */
function draw(root, { groups, listed, key }) {
  view ??= build(root);
  if (key !== requestKey()) return;
  if (listed && !list.apply(listed)) return;
  for (const tab of childElements(view.statuses)) {
    tab.setAttribute("aria-pressed", String(tab.dataset.value === status));
  }
  for (const tab of childElements(view.views)) tab.setAttribute("aria-pressed", String(tab.dataset.value === shownAs));
  view.since.hidden = !isGrouped();
  if (!isGrouped()) newGroups.announce(0);
  const number = groups ? groups.items.length : list.rows().length;
  const keepRows = (!isFilterDone || (listed !== null && list.isSearching())) && !number &&
    view.content.querySelector("tbody tr") !== null;
  view.content.classList.toggle("stale", keepRows);
  view.note.textContent = keepRows ? t("list.no-match-yet", { filter }) : "";
  shownGroups = (groups?.items ?? []).map(({ job_type, error_code, error_class, group }) => ({
    job_type,
    error_code,
    error_class,
    error_group: group,
  }));
  if (!keepRows && groups) {
    // The link and the actions of a row depend on the filter, too.
    const keyOf = (/** @type {ErrorGroup} */ group) => `${key}\n${keyOfGroup(group)}`;
    view.groups.node.classList.toggle("without-actions", status !== "open");
    showRows(view.content, view.groups, stillGroups(sortedGroups(groups, newSince()), key), keyOf, none);
  }
  if (!keepRows && listed) showRows(view.content, view.rows, list.rows(), ({ dlq_id }) => dlq_id, none);
  fill(view.foot, groups ? groupsFoot(groups) : list.foot());
  drawSelection();
}

/** @param {ErrorGroupList} groups */
const groupsFoot = ({ more_groups, searched_until }) => [
  more_groups > 0 && h("span", { class: "soft" }, t("dead-letters.more-groups", { n: more_groups })),
  searched_until &&
  h("span", { class: "soft" }, richText("list.searched-until", { time: timeElement(searched_until) })),
];

function none() {
  if (list.hasMore() && !isGrouped()) return emptyState(t("dead-letters.no-match"), t("jobs.searched-part"));
  if (filter.trim()) return emptyState(t("dead-letters.no-match"), t("jobs.no-match.more"));
  return emptyState(t("dead-letters.none"), t("dead-letters.none.more"));
}

const refresh = startPage({
  load,
  draw,
  drawRefusal: (root, problem) => {
    view ??= build(root);
    fill(view.content, errorState(problem, refresh));
  },
  poll: 5000,
  isPaused: list.isPaused,
});
