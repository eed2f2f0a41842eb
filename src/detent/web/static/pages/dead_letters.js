// The list of dead letters: jobs that failed permanently. They can be requeued as new jobs or discarded.

/** @import { DeadLetter, Page, Table } from "../types.d.ts" */

import { button, linkWithId, pager } from "../components/elements.js";
import { filterBox } from "../components/filter_box.js";
import { parseFilter } from "../components/filter_query.js";
import { showRows, table } from "../components/table.js";
import { get, may } from "../core/api.js";
import { childElements, fill, h, isDialogOpen } from "../core/dom.js";
import { startPage } from "../core/page.js";
import { emptyState } from "../core/states.js";
import { timeElement } from "../core/time.js";
import { deadLetterUrl, jobUrl, setQueryParams } from "../core/urls.js";
import { formatNumber, t } from "../core/words.js";
import { actOnMatching } from "./dead_letters/bulk_actions.js";
import { deadLetterState } from "./dead_letters/dead_letter_actions.js";
import "../core/shell.js";

const KEYS = { queue: "queue", type: "job_type", contract: "contract", tenant: "tenant" };
const STATUSES = ["open", "requeued", "discarded", "all"];
const LONGEST_MESSAGE = 200;
const params = new URLSearchParams(location.search);
let filter = params.get("q") ?? "", status = params.get("status") ?? "open";
/** Cursors of the pages from the newest to the one shown. @type {string[]} */
let cursors = [];
/** @type {DeadLetter[]} */
let shown = [];
/** @type {ReturnType<typeof build> | null} */
let view = null;

const query = () => parseFilter(filter, KEYS).query;
/** Identifies what is requested; a response to an older request is not drawn. */
const requestKey = () => `${filter}\n${status}\n${cursors.at(-1)}`;

function onFilterChange() {
  cursors = [];
  setQueryParams({ q: filter, status: status === "open" ? "" : status });
  refresh();
}

/** @param {string} key */
async function suggest(key) {
  if (key === "contract") {
    /** @type {Page<{ name: string }>} */
    const { items } = await get("contracts");
    return items.map(({ name }) => name);
  }
  const values = shown.map((item) => (key === "queue" ? item.queue : key === "type" ? item.job_type : item.tenant_id));
  return [...new Set(values)].sort();
}

/** @param {"requeue" | "discard"} action */
async function bulkAction(action) {
  await actOnMatching(action, query());
  refresh();
}

/** @param {HTMLElement} root */
function build(root) {
  const box = filterBox({
    value: filter,
    keys: KEYS,
    suggest,
    label: t("dead-letters.filter"),
    placeholder: t("dead-letters.placeholder"),
    onChange: (text) => {
      filter = text;
      onFilterChange();
    },
  });
  const tabs = h(
    "div",
    { class: "tabs", role: "group", "aria-label": t("col.state") },
    STATUSES.map((name) => {
      const onClick = () => {
        status = name;
        onFilterChange();
      };
      return button(t(`dead-letter.${name}`), onClick, { "data-status": name });
    }),
  );
  const bulk = h(
    "div",
    { class: "toolbar" },
    may("operate") &&
      button(t("dead-letters.requeue-all"), () => bulkAction("requeue"), { "data-action": "requeue-all" }),
    may("discard") && button(t("dead-letters.discard-all"), () => bulkAction("discard"), {
      class: "danger",
      "data-action": "discard-all",
    }),
  );
  const rows = buildTable(), list = h("div"), foot = h("div", { class: "pages" });
  fill(root, h("div", { class: "toolbar" }, box.node, tabs), bulk, list, foot);
  return { tabs, bulk, rows, list, foot };
}

/** @returns {Table<DeadLetter>} */
const buildTable = () =>
  table(t("page.dead_letters"), [
    { label: t("col.type"), cell: ({ dlq_id, job_type }) => linkWithId(deadLetterUrl(dlq_id), job_type, dlq_id) },
    { label: t("col.state"), cell: deadLetterState },
    {
      label: t("col.error"),
      cell: ({ error_code, error_message }) => [
        h("code", {}, error_code),
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

async function load() {
  const key = requestKey();
  /** @type {Page<DeadLetter>} */
  const page = await get("dlq/items", {
    ...query(),
    status: status === "all" ? null : status,
    cursor: cursors.at(-1),
    limit: 50,
  });
  return { page, key };
}

/**
 * @param {HTMLElement} root
 * @param {{ page: Page<DeadLetter>, key: string }} data
 */
function draw(root, { page, key }) {
  view ??= build(root);
  if (key !== requestKey()) return;
  const { next_cursor } = page;
  shown = page.items;
  for (const tab of childElements(view.tabs)) tab.setAttribute("aria-pressed", String(tab.dataset.status === status));
  view.bulk.hidden = status !== "open" || !shown.length || !(may("operate") || may("discard"));
  showRows(
    view.list,
    view.rows,
    shown,
    ({ dlq_id }) => dlq_id,
    () => emptyState(t("dead-letters.none"), t(next_cursor ? "jobs.searched-part" : "dead-letters.none.more")),
  );
  const onNewer = () => {
    cursors.pop();
    refresh();
  };
  const onOlder = next_cursor && (() => {
    cursors.push(next_cursor);
    refresh();
  });
  fill(view.foot, pager(cursors.length ? onNewer : null, onOlder || null));
}

const refresh = startPage({ load, draw, poll: 5000, concerns: () => !cursors.length && !isDialogOpen() });
