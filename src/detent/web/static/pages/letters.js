// Dead letters: what was given up, requeued as it was or repaired, or discarded by two people.
import { fill, h, here, jobLink } from "../core/dom.js";
import { get, may, post } from "../core/api.js";
import { ask, reasonField, toast } from "../core/dialog.js";
import { filterBox, parse } from "../core/filter.js";
import { empty, page } from "../core/states.js";
import { table } from "../core/table.js";
import { moment } from "../core/time.js";
import { number, t } from "../core/words.js";
import { fate } from "../core/letter_acts.js";
import "../core/shell.js";

const KEYS = { queue: "queue", type: "job_type", contract: "contract", tenant: "tenant" };
const FATES = ["open", "requeued", "discarded"];
const search = new URLSearchParams(location.search);
let text = search.get("q") ?? "", which = search.get("fate") ?? "open", trail = [];
let room = null, shown = [];

function remember() {
  const url = new URL(location.href);
  for (const [name, value] of [["q", text], ["fate", which === "open" ? "" : which]]) {
    if (value) url.searchParams.set(name, value);
    else url.searchParams.delete(name);
  }
  history.replaceState(null, "", url);
}

async function suggest(key) {
  if (key === "contract") return (await get("contracts")).contracts.map((one) => one.name);
  const names = { queue: "queue", type: "job_type", tenant: "tenant_id" };
  return [...new Set(shown.map((one) => one[names[key]]))].sort();
}

function built(root) {
  const box = filterBox({ value: text, keys: KEYS, suggest, label: t("letters.filter"), placeholder: t("letters.placeholder"), change: (value) => { text = value; trail = []; remember(); again(); } });
  const tabs = h("div", { class: "tabs", role: "group", "aria-label": t("col.state") }, [...FATES, "all"].map((name) => h("button", {
    type: "button", "data-fate": name, on: { click: () => { which = name; trail = []; remember(); again(); } } }, t(`fate.${name}`))));
  const rows = table([
    { label: t("col.type"), cell: (one) => [h("a", { href: here(`dead-letters/${encodeURIComponent(one.dlq_id)}`), "data-focus": "open" }, one.job_type), h("div", { class: "soft small mono" }, one.dlq_id)] },
    { label: t("col.state"), cell: (one) => fate(one) },
    { label: t("col.error"), cell: (one) => [h("code", {}, one.error_code), one.error_message && h("div", { class: "small soft break" }, one.error_message.slice(0, 200))] },
    { label: t("col.queue"), cell: (one) => one.queue }, { label: t("col.tenant"), cell: (one) => one.tenant_id },
    { label: t("col.contract"), cell: (one) => one.contract },
    { label: t("col.retries"), class: "number", cell: (one) => number(one.retry_count) },
    { label: t("col.failed"), class: "nowrap", cell: (one) => moment(one.created_at) },
    { label: t("col.job"), cell: (one) => h("a", { href: jobLink(one.job_id) }, t("letters.job")) },
  ], { label: t("page.letters") });
  const bulk = h("div", { class: "toolbar", hidden: !may("operate") && !may("discard") },
    may("operate") && h("button", { type: "button", "data-act": "requeue-all", on: { click: () => many("requeue") } }, t("letters.requeue-all")),
    may("discard") && h("button", { type: "button", class: "danger", "data-act": "discard-all", on: { click: () => many("discard") } }, t("letters.discard-all")));
  const list = h("div"), foot = h("div", { class: "pages" });
  fill(root, h("div", { class: "toolbar" }, box.node, tabs), bulk, list, foot);
  return { tabs, rows, list, foot, bulk };
}

async function load() {
  const asked = `${text}\n${which}\n${trail.at(-1)}`;
  const told = await get("dlq/items", { ...parse(text, KEYS).query, status: which === "all" ? null : which, cursor: trail.at(-1), limit: 50 });
  return { told, asked };
}

function draw(root, { told, asked }) {
  room ??= built(root);
  if (asked !== `${text}\n${which}\n${trail.at(-1)}`) return;
  shown = told.items;
  for (const one of room.tabs.children) one.setAttribute("aria-pressed", String(one.dataset.fate === which));
  room.bulk.hidden = which !== "open" || !shown.length || !(may("operate") || may("discard"));
  if (shown.length) {
    if (room.rows.node.parentNode !== room.list) fill(room.list, room.rows.node);
    room.rows.show(shown, (one) => one.dlq_id);
  } else fill(room.list, empty(t("letters.none"), told.next_cursor ? t("jobs.looked-far") : t("letters.none.more")));
  fill(room.foot, h("button", { type: "button", disabled: !trail.length, on: { click: () => { trail.pop(); again(); } } }, `← ${t("pages.newer")}`),
    h("button", { type: "button", disabled: !told.next_cursor, on: { click: () => { trail.push(told.next_cursor); again(); } } }, `${t("pages.older")} →`));
}

// A dry run says how many; above a thousand the number is typed.
async function many(act) {
  const chosen = parse(text, KEYS).query;
  let count;
  try {
    count = await post(`dlq/${act}`, { ...chosen, reason: t("letters.dry-run"), dry_run: true });
  } catch (error) {
    return void toast(error.message, { tone: "bad", code: error.code });
  }
  const n = count.matched - count.for_two;
  const others = count.for_two ? ` ${t("letters.for-two", { n: count.for_two })}` : "";
  if (!n) return void toast(`${t("letters.many.none")}${others}`, { tone: "warning" });
  const done = await ask({
    title: t(`letters.${act}.many`, { n }), lead: `${t(`ask.${act}.letter`)}${others}`, button: t(`act.${act}`), danger: act === "discard",
    fields: [reasonField(act === "discard")], typed: n > 1000 ? String(n) : null,
    act: (form) => post(`dlq/${act}`, { ...chosen, reason: form.get("reason") || null, dry_run: false }),
  });
  if (done) toast(t("letters.done", { n: done.done }) + (done.refused ? ` ${t("bulk.refused", { n: done.refused })}` : ""), { tone: done.refused ? "warning" : "good" });
  again();
}

const again = page({ load, draw, every: 1000, poll: 5000, concerns: () => !trail.length && !document.querySelector("dialog[open]") });
