// Jobs by filter, page after page, however many there are; and one act on many of them.
import { fill, h, jobLink } from "../core/dom.js";
import { get, may, post } from "../core/api.js";
import { badge, contracts } from "../core/contract.js";
import { ask, reasonField, toast } from "../core/dialog.js";
import { filterBox, parse } from "../core/filter.js";
import { empty, page } from "../core/states.js";
import { table } from "../core/table.js";
import { moment } from "../core/time.js";
import { number, t } from "../core/words.js";
import "../core/shell.js";

const SURE_ABOVE = 1000;
const address = () => new URL(location.href).searchParams;
let text = address().get("q") ?? "";
let trail = (address().get("at") ?? "").split(",").filter(Boolean);
const selected = new Map();
let room = null, shown = [], next = null;
let searching = trail.length === 0;  // a look that found nothing yet goes on by itself, as long as nobody turned a page
const FAR = 60;

function remember() {
  const url = new URL(location.href);
  for (const [name, value] of [["q", text], ["at", trail.join(",")]]) {
    if (value) url.searchParams.set(name, value);
    else url.searchParams.delete(name);
  }
  history.replaceState(null, "", url);
}

async function suggest(key) {
  if (key === "phase") return ["claimable", "leased", "blocked", "final"];
  if (key === "tenant") return [...new Set(shown.map((job) => job.tenant_id))].sort();
  const all = (await get("contracts")).contracts.map((one) => one.name);
  if (key === "contract") return all;
  if (key === "status") return [...new Set([...(await contracts(all)).values()].flatMap((one) => Object.keys(one.statuses)))].sort();
  const { queues } = await get("queues");
  if (key === "queue") return queues.map((one) => one.queue);
  return [...new Set(queues.flatMap((one) => one.job_types))].sort();
}

function built(root) {
  const box = filterBox({
    value: text, suggest, label: t("filter.label"),
    change: (value) => { text = value; trail = []; searching = true; selected.clear(); remember(); again(); },
  });
  const quick = h("div", { class: "tabs", role: "group", "aria-label": t("jobs.quick") },
    [["", "jobs.all"], ["phase:claimable", "phase.claimable"], ["phase:leased", "phase.leased"], ["phase:blocked", "phase.blocked"], ["phase:final", "phase.final"]]
      .map(([value, label]) => h("button", { type: "button", "data-value": value, on: { click: () => box.set(value) } }, t(label))));
  const all = h("input", { type: "checkbox", "aria-label": t("jobs.select-page"), on: { change: (event) => {
    for (const job of shown) if (event.target.checked) selected.set(job.id, job); else selected.delete(job.id);
    mark();
  } } });
  const rows = table([
    may("operate") && { label: "", head: all, class: "tight", cell: (job) => h("input", {
      type: "checkbox", "aria-label": t("jobs.select", { id: job.id }), "data-focus": "select", checked: selected.has(job.id),
      on: { change: (event) => { if (event.target.checked) selected.set(job.id, job); else selected.delete(job.id); mark(); } },
    }) },
    { label: t("col.type"), cell: (job) => [h("a", { href: jobLink(job.id), "data-focus": "open" }, job.job_type), h("div", { class: "soft small mono" }, job.id)] },
    { label: t("col.status"), cell: (job) => badge(room.tables.get(job.contract), job.status, job.phase) },
    { label: t("col.queue"), cell: (job) => job.queue },
    { label: t("col.tenant"), cell: (job) => job.tenant_id },
    { label: t("col.contract"), cell: (job) => job.contract },
    { label: t("col.execution"), class: "number", cell: (job) => number(job.execution_no) },
    { label: t("col.error"), cell: (job) => job.error_code && h("span", { title: job.error_message ?? "" }, h("code", {}, job.error_code)) },
    { label: t("col.updated"), class: "nowrap", cell: (job) => moment(job.updated_at) },
  ].filter(Boolean), { label: t("page.jobs") });
  const bulk = h("div", { class: "toolbar selection", hidden: true });
  const foot = h("div", { class: "pages" });
  const list = h("div");
  fill(root, h("div", { class: "toolbar" }, box.node, quick), bulk, list, foot);
  return { box, quick, rows, all, bulk, foot, list, tables: new Map() };
}

const query = () => parse(text).query;

async function load() {
  const asked = { text, at: trail.at(-1) };
  let page = await get("jobs", { ...query(), cursor: asked.at, limit: 50 });
  for (let far = 0; searching && !page.jobs.length && page.next_cursor && far < FAR && text === asked.text; far += 1) {
    trail.push(page.next_cursor);
    page = await get("jobs", { ...query(), cursor: page.next_cursor, limit: 50 });
  }
  if (searching && text === asked.text) {
    searching = false;
    if (!page.jobs.length && !page.next_cursor) trail = [];
    asked.at = trail.at(-1);
    if (trail.length) remember();
  }
  return { page, asked, tables: await contracts(page.jobs.map((job) => job.contract)) };
}

function draw(root, { page: told, asked, tables }) {
  room ??= built(root);
  if (asked.text !== text || asked.at !== trail.at(-1)) return;
  for (const [name, one] of tables) room.tables.set(name, one);
  shown = told.jobs;
  next = told.next_cursor;
  for (const one of room.quick.children) one.setAttribute("aria-pressed", String(one.dataset.value === text));
  const none = empty(t(text ? "jobs.no-match" : "jobs.none"), next ? t("jobs.looked-far") : t(text ? "jobs.no-match.more" : "jobs.none.more"));
  if (shown.length) {
    if (room.rows.node.parentNode !== room.list) fill(room.list, room.rows.node);
    room.rows.show(shown, (job) => job.id);
  } else fill(room.list, none);
  fill(room.foot,
    h("button", { type: "button", disabled: !trail.length, on: { click: () => { trail.pop(); turn(); } } }, `← ${t("pages.newer")}`),
    h("span", { class: "soft" }, t("pages.at", { n: trail.length + 1 })),
    h("button", { type: "button", disabled: !next, on: { click: () => { trail.push(next); turn(); } } }, `${t("pages.older")} →`));
  mark();
}

function turn() { remember(); again(); window.scrollTo({ top: 0 }); }

function mark() {
  for (const row of room.rows.body.children) {
    const chosen = selected.has(row.dataset.key);
    row.setAttribute("aria-selected", String(chosen));
    const box = row.querySelector("input[type=checkbox]");
    if (box) box.checked = chosen;
  }
  room.all.checked = shown.length > 0 && shown.every((job) => selected.has(job.id));
  room.all.indeterminate = !room.all.checked && shown.some((job) => selected.has(job.id));
  if (!may("operate")) return;
  room.bulk.hidden = selected.size === 0 && !Object.keys(query()).length;
  fill(room.bulk,
    h("strong", {}, selected.size ? t("jobs.selected", { n: selected.size }) : t("jobs.everything")),
    h("span", { class: "grow" }),
    h("button", { type: "button", class: "danger", on: { click: () => act("cancel") } }, t("act.cancel")),
    h("button", { type: "button", on: { click: () => act("requeue") } }, t("act.requeue")),
    selected.size > 0 && h("button", { type: "button", class: "plain", on: { click: () => { selected.clear(); mark(); } } }, t("jobs.unselect")));
}

// Count first, say the number, then act page by page; the loop ends when the dialog is closed.
async function act(name) {
  const chosen = [...selected.keys()];
  const which = chosen.length ? null : query();
  const pages = chosen.length ? Array.from({ length: Math.ceil(chosen.length / 500) }, (_, index) => ({ ids: chosen.slice(index * 500, index * 500 + 500) })) : null;
  let count;
  try {
    count = await through(name, pages, which, { dry_run: true });
  } catch (error) {
    return void toast(error.message, { tone: "bad", code: error.code });
  }
  if (!count.fitting) return void toast(t(`bulk.${name}.none`, { n: count.matched }), { tone: "bad" });
  const bar = h("progress", { max: count.fitting, value: 0, hidden: true, "aria-label": t("bulk.progress") });
  const done = await ask({
    title: t(`bulk.${name}`, { n: count.fitting }), button: t(`act.${name}`), danger: name === "cancel",
    lead: which ? t("bulk.matching", { filter: text, n: count.matched }) : t("bulk.selected", { n: count.matched }),
    fields: [reasonField(), bar], typed: count.fitting > SURE_ABOVE ? String(count.fitting) : null,
    act: async (form, { dialog }) => {
      bar.hidden = false;
      return through(name, pages, which, { dry_run: false, reason: form.get("reason") || null }, (sum) => {
        bar.value = sum.done + sum.refused;
        return dialog.open;
      });
    },
  });
  selected.clear();
  mark();
  again();
  if (done) toast(t(`bulk.${name}.done`, { n: done.done }) + (done.refused ? ` ${t("bulk.refused", { n: done.refused })}` : ""), { tone: done.refused ? "warning" : "good" });
}

async function through(name, pages, which, options, going = () => true) {
  const sum = { matched: 0, fitting: 0, done: 0, refused: 0 };
  let cursor = null, index = 0;
  do {
    const body = { ...(pages ? pages[index] : { ...which, cursor }), ...options };
    const told = await post(`bulk/${name}`, body);
    for (const key of Object.keys(sum)) sum[key] += told[key];
    cursor = told.next_cursor;
    index += 1;
  } while (going(sum) && (pages ? index < pages.length : cursor));
  return sum;
}

const again = page({ load, draw, every: 700, concerns: () => trail.length === 0 && !document.querySelector("dialog[open]") });
