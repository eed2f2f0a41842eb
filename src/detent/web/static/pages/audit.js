// The audit log: who did what, when and why.

/** @import { AuditEntry, LimitScope, Page, Table } from "../types.d.ts" */

import { cursorPages } from "../components/elements.js";
import { filterTerm } from "../components/filter_query.js";
import { jsonTree } from "../components/json_tree.js";
import { showRows, table } from "../components/table.js";
import { get } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { startPage } from "../core/page.js";
import { emptyState } from "../core/states.js";
import { timeElement } from "../core/time.js";
import { deadLetterUrl, jobsUrl, jobUrl, setQueryParams, urlFor } from "../core/urls.js";
import { joined, t } from "../core/words.js";
import { scopeText } from "./queues/limit_scope.js";
import "../core/shell.js";

let subject = new URLSearchParams(location.search).get("subject") ?? "";
const pages = cursorPages(() => refresh());
/** @type {ReturnType<typeof build> | null} */
let view = null;

/** What an action is about -> the page that shows it. @type {Record<string, (subject: string) => string>} */
const SUBJECT_URLS = {
  job: jobUrl,
  dlq: deadLetterUrl,
  schedule: (id) => urlFor(`schedules?q=${encodeURIComponent(id)}`),
  token: () => urlFor("tokens"),
  session: () => urlFor("tokens"),
  worker: () => urlFor("workers"),
  limit: () => urlFor("queues"),
  queue: (name) => jobsUrl(filterTerm("queue", name)),
  job_type: (name) => jobsUrl(filterTerm("type", name)),
  tenant: (name) => jobsUrl(filterTerm("tenant", name)),
  webhook: () => urlFor("webhooks"),
  alert: () => urlFor("alerts"),
  verify: () => urlFor("verify"),
};

/** The name of what was changed, with a link to it, and its id. @param {AuditEntry} entry */
function subjectCell({ act, subject, subject_name, data }) {
  const url = SUBJECT_URLS[act.split(".")[0]]?.(subject);
  const noted = typeof data?.name === "string" ? data.name : null;
  const limit = act.startsWith("limit.") && data
    ? scopeText(/** @type {LimitScope} */ (/** @type {unknown} */ (data)))
    : null;
  const name = limit ?? subject_name ?? noted ?? subject;
  return [
    url ? h("a", { class: "break", href: url, "data-focus": "open" }, name) : h("span", { class: "break" }, name),
    limit === null && name !== subject && h("div", { class: "soft small mono break uuid" }, subject),
  ];
}

/** Fields without a value are left out. @param {AuditEntry} entry */
function dataCell({ data }) {
  const fields = Object.entries(data ?? {}).filter(([, value]) => value !== null);
  if (!fields.length) return null;
  const names = joined(fields.map(([name]) => name));
  return h("details", {}, h("summary", { class: "small" }, names), jsonTree(Object.fromEntries(fields)));
}

/** @param {HTMLElement} root */
function build(root) {
  /** @type {Table<AuditEntry>} */
  const rows = table(t("page.audit"), [
    { label: t("col.when"), class: "nowrap", cell: ({ at }) => timeElement(at) },
    { label: t("col.actor"), cell: ({ actor }) => h("strong", {}, actor) },
    { label: t("col.action"), class: "wide", cell: ({ act }) => h("code", {}, act) },
    { label: t("col.subject"), cell: subjectCell },
    { label: t("col.tenant"), cell: ({ tenant_id }) => tenant_id },
    { label: t("col.reason"), class: "wide", cell: ({ reason }) => reason },
    { label: t("col.data"), cell: dataCell },
  ], Infinity);
  const label = t("audit.subject");
  const input = h("input", { type: "search", id: "filter", value: subject, placeholder: label, "aria-label": label });
  input.addEventListener("change", () => {
    subject = input.value.trim();
    setQueryParams({ subject });
    pages.restart();
  });
  const list = h("div");
  fill(root, h("div", { class: "toolbar" }, h("div", { class: "filter" }, input)), list, pages.foot);
  return { rows, list };
}

/**
 * @param {HTMLElement} root
 * @param {Page<AuditEntry>} page
 */
function draw(root, { items, next_cursor }) {
  view ??= build(root);
  showRows(view.list, view.rows, items, ({ n }) => n, () => emptyState(t("audit.none"), t("audit.none.more")));
  pages.draw(next_cursor);
}

const refresh = startPage({
  load: () => get("audit", { subject, cursor: pages.cursor(), limit: 50 }),
  draw,
  every: 2000,
  poll: 5000,
  concerns: () => !pages.cursor(),
});
