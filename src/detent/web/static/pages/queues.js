// Queues: what is due, comes later and is held; pausing and resuming.
import { fill, h, here } from "../core/dom.js";
import { get, may, post } from "../core/api.js";
import { ask, field, reasonField, toast, told } from "../core/dialog.js";
import { term } from "../core/filter.js";
import { empty, page } from "../core/states.js";
import { table } from "../core/table.js";
import { moment } from "../core/time.js";
import { number, t } from "../core/words.js";
import { limitsCard } from "../core/limits.js";
import "../core/shell.js";

const KINDS = ["queue", "job_type", "tenant"];
let room = null;

async function pause(kind, name) {
  const done = await ask({ title: t("ask.pause", { name }), lead: t("ask.pause.more"), button: t("act.pause"), fields: [reasonField()],
    act: (form) => post(`queues/${encodeURIComponent(name)}/pause?kind=${kind}`, { reason: form.get("reason") || null }) });
  if (done) toast(t("did.pause", { name }));
  again();
}

async function pauseAny() {
  const kind = h("select", { name: "kind" }, KINDS.map((one) => h("option", { value: one }, t(`kind.${one}`))));
  const done = await ask({ title: t("queues.pause-any"), lead: t("ask.pause.more"), button: t("act.pause"),
    fields: [field(t("queues.kind"), kind), field(t("field.name"), h("input", { name: "name", required: true, maxlength: 200 })), reasonField()],
    act: (form) => post(`queues/${encodeURIComponent(form.get("name"))}/pause?kind=${form.get("kind")}`, { reason: form.get("reason") || null }) });
  if (done) toast(t("did.pause", { name: done.name }));
  again();
}

async function resume(kind, name) {
  try {
    await post(`queues/${encodeURIComponent(name)}/resume?kind=${kind}`);
    toast(t("did.resume", { name }));
  } catch (error) { told(error); }
  again();
}

const button = (act, run) => h("button", { type: "button", class: "tiny", "data-act": act, "data-focus": act, on: { click: run } }, t(`act.${act}`));

function built(root) {
  const rows = table([
    { label: t("col.queue"), cell: (one) => h("a", { href: here(`jobs?q=${encodeURIComponent(term("queue", one.queue))}`) }, one.queue) },
    { label: t("col.state"), cell: (one) => one.paused
      ? [h("span", { class: "badge warning" }, h("span", {}, t("queues.paused"))), h("div", { class: "small soft break" }, one.paused.actor, one.paused.reason && `: ${one.paused.reason}`)]
      : h("span", { class: "badge good" }, h("span", {}, t("queues.flowing"))) },
    { label: t("col.due"), class: "number", cell: (one) => number(one.due) },
    { label: t("col.later"), class: "number", cell: (one) => number(one.later) },
    { label: t("col.held"), class: "number", cell: (one) => number(one.held) },
    { label: t("col.oldest"), class: "nowrap", cell: (one) => moment(one.oldest_due_at) },
    { label: t("col.workers"), class: "number", cell: (one) => number(one.workers) },
    { label: t("col.types"), cell: (one) => h("div", { class: "row" }, one.job_types.slice(0, 12).map((name) => h("span", { class: "tag" }, name)), one.job_types.length > 12 && "…") },
    may("operate") && { label: t("col.actions"), class: "tight", cell: (one) => (one.paused ? button("resume", () => resume("queue", one.queue)) : button("pause", () => pause("queue", one.queue))) },
  ].filter(Boolean), { label: t("page.queues") });
  const others = table([
    { label: t("queues.kind"), cell: (one) => t(`kind.${one.kind}`) }, { label: t("col.name"), cell: (one) => one.name },
    { label: t("col.who"), cell: (one) => one.actor }, { label: t("col.reason"), cell: (one) => one.reason },
    { label: t("col.since"), cell: (one) => moment(one.at) },
    may("operate") && { label: t("col.actions"), class: "tight", cell: (one) => button("resume", () => resume(one.kind, one.name)) },
  ].filter(Boolean), { label: t("queues.pauses") });
  const list = h("div"), pauses = h("section", { class: "card lone" }, h("h2", {}, t("queues.pauses")), others.node), limits = h("div");
  fill(root, may("operate") && h("div", { class: "toolbar" }, h("button", { type: "button", on: { click: pauseAny } }, t("queues.pause-any"))), h("div", { class: "lone" }, list), pauses, limits);
  return { rows, others, list, pauses, limits };
}

async function load() {
  const [told, limits] = await Promise.all([get("queues"), get("limits")]);
  return { ...told, ...limits };
}

function draw(root, told) {
  room ??= built(root);
  if (told.queues.length) {
    if (room.rows.node.parentNode !== room.list) fill(room.list, room.rows.node);
    room.rows.show(told.queues, (one) => one.queue);
  } else fill(room.list, empty(t("queues.none"), t("jobs.none.more")));
  const other = told.pauses.filter((one) => one.kind !== "queue");
  room.pauses.hidden = !other.length;
  room.others.show(other, (one) => `${one.kind}/${one.name}`);
  limitsCard(room.limits, told.limits, () => again());
}

const again = page({ load, draw, poll: 3000, every: 1000 });
