// Who did what.
import { fill, h, here, jobLink } from "../core/dom.js";
import { get } from "../core/api.js";
import { empty, page } from "../core/states.js";
import { table } from "../core/table.js";
import { moment } from "../core/time.js";
import { tree } from "../core/tree.js";
import { t } from "../core/words.js";
import "../core/shell.js";

const search = new URLSearchParams(location.search);
let subject = search.get("subject") ?? "", trail = [], room = null;

// What was left as it is by default says nothing.
const said = (data) => Object.fromEntries(Object.entries(data).filter(([, value]) => value !== null));

function subjectLink(one) {
  if (one.act.startsWith("job.")) return h("a", { class: "break", href: jobLink(one.subject) }, one.subject);
  if (one.act.startsWith("dlq.")) return h("a", { class: "break", href: here(`dead-letters/${encodeURIComponent(one.subject)}`) }, one.subject);
  return h("span", { class: "break" }, one.subject);
}

function built(root) {
  const rows = table([
    { label: t("col.when"), class: "nowrap", cell: (one) => moment(one.at) }, { label: t("col.who"), cell: (one) => h("strong", {}, one.actor) },
    { label: t("col.what"), cell: (one) => h("code", {}, one.act) }, { label: t("col.subject"), cell: subjectLink },
    { label: t("col.tenant"), cell: (one) => one.tenant_id }, { label: t("col.reason"), cell: (one) => one.reason },
    { label: t("col.data"), cell: (one) => one.data && Object.keys(said(one.data)).length > 0 && h("details", {}, h("summary", { class: "small" }, Object.keys(said(one.data)).join(", ")), tree(said(one.data))) },
  ], { label: t("page.audit") });
  const input = h("input", { type: "search", id: "filter", value: subject, placeholder: t("audit.subject"), "aria-label": t("audit.subject"), on: { change: () => {
    subject = input.value.trim();
    trail = [];
    const url = new URL(location.href);
    if (subject) url.searchParams.set("subject", subject); else url.searchParams.delete("subject");
    history.replaceState(null, "", url);
    again();
  } } });
  const list = h("div"), foot = h("div", { class: "pages" });
  fill(root, h("div", { class: "toolbar" }, h("div", { class: "filter" }, input)), list, foot);
  return { rows, list, foot };
}

function draw(root, told) {
  room ??= built(root);
  if (told.items.length) {
    if (room.rows.node.parentNode !== room.list) fill(room.list, room.rows.node);
    room.rows.show(told.items, (one) => one.n);
  } else fill(room.list, empty(t("audit.none"), t("audit.none.more")));
  fill(room.foot, h("button", { type: "button", disabled: !trail.length, on: { click: () => { trail.pop(); again(); } } }, `← ${t("pages.newer")}`),
    h("button", { type: "button", disabled: !told.next_cursor, on: { click: () => { trail.push(told.next_cursor); again(); } } }, `${t("pages.older")} →`));
}

const again = page({ load: () => get("audit", { subject, cursor: trail.at(-1), limit: 50 }), draw, every: 2000, poll: 5000, concerns: () => !trail.length });
