// Schedules: when they fire next, pause and resume, add, backfill.
import { fill, h, jobLink } from "../core/dom.js";
import { get, may, payloads, post, send } from "../core/api.js";
import { ask, field, openDialog, reasonField, toast, told } from "../core/dialog.js";
import { askSchedule } from "../core/schedule_form.js";
import { empty, page } from "../core/states.js";
import { table } from "../core/table.js";
import { exact, moment, zone } from "../core/time.js";
import { number, t } from "../core/words.js";
import "../core/shell.js";

let room = null;
const path = (one) => `schedules/${encodeURIComponent(one.id)}`;

async function pause(one) {
  const done = await ask({ title: t("ask.pause", { name: one.name }), lead: t("schedules.pause.more"), button: t("act.pause"), fields: [reasonField()],
    act: (form) => post(`${path(one)}/pause`, { reason: form.get("reason") || null }) });
  if (done) toast(t("did.pause", { name: one.name }));
  again();
}

async function resume(one) {
  await post(`${path(one)}/resume`).then(() => toast(t("did.resume", { name: one.name })), told);
  again();
}

async function remove(one) {
  const done = await ask({ title: t("schedules.remove", { name: one.name }), lead: t("schedules.remove.more"), button: t("act.remove"), danger: true, typed: one.name,
    act: () => send("DELETE", path(one)) });
  if (done) toast(t("did.remove", { name: one.name }));
  again();
}

async function coming(one) {
  try {
    const { fires, timezone } = await get(`${path(one)}/preview`, { count: 20 });
    openDialog(t("schedules.coming", { name: one.name }), h("div", {}, h("p", { class: "soft" }, t("schedules.zone", { zone: timezone, yours: zone })),
      h("ol", {}, fires.map((fire) => h("li", {}, exact(fire.fire_at), " · ", moment(fire.fire_at))))));
  } catch (error) { told(error); }
}

// The browser's local times become UTC; a dry run says how many jobs there would be.
async function backfill(one) {
  const from = h("input", { type: "datetime-local", name: "first", required: true }), to = h("input", { type: "datetime-local", name: "last", required: true });
  const range = () => ({ first: new Date(from.value).toISOString(), last: new Date(to.value).toISOString() });
  const count = await ask({ title: t("schedules.backfill", { name: one.name }), lead: t("schedules.backfill.more"), button: t("schedules.count"),
    fields: [field(`${t("field.from")} (${zone})`, from), field(`${t("field.to")} (${zone})`, to)],
    act: async () => ({ range: range(), told: await post(`${path(one)}/backfill`, { ...range(), dry_run: true }) }) });
  if (!count) return;
  const n = count.told.made;
  if (!n) return void toast(t("schedules.backfill.none", { name: one.name, n: count.told.fires }), { tone: "warning" });
  const done = await ask({ title: t("schedules.backfill.sure", { n, name: one.name }), button: t("act.backfill"), typed: n > 1000 ? String(n) : null, fields: [reasonField()],
    act: (form) => post(`${path(one)}/backfill`, { ...count.range, reason: form.get("reason") || null, dry_run: false }) });
  if (done) toast(t("did.backfill", { n: done.job_ids.length }));
  again();
}

async function add() {
  const done = await askSchedule();
  if (done) toast(t("did.add", { name: done.name }));
  again();
}

async function edit(one) {
  const done = await askSchedule(one);
  if (done) toast(t("did.edit", { name: done.name }));
  again();
}

const button = (act, run, danger) => h("button", { type: "button", class: `tiny${danger ? " danger" : ""}`, "data-act": act, "data-focus": act, on: { click: run } }, t(`act.${act}`));

function built(root) {
  const rows = table([
    { label: t("col.name"), cell: (one) => [h("strong", {}, one.name), one.declared && [" ", h("span", { class: "tag" }, t("schedules.declared"))], h("div", { class: "small soft" }, `${one.job_type} · ${one.queue}`)] },
    { label: t("col.timing"), cell: (one) => [h("code", {}, one.expression), h("div", { class: "small soft" }, `${one.schedule_type} · ${one.timezone ?? "UTC"}`)] },
    { label: t("col.state"), cell: (one) => [h("span", { class: `badge ${one.paused ? "warning" : "good"}` }, h("span", {}, t(one.paused ? "queues.paused" : "schedules.active"))), one.last_error && payloads && h("div", { class: "small trouble" }, one.last_error)] },
    { label: t("col.next"), class: "nowrap", cell: (one) => h("button", { type: "button", class: "plain", title: t("schedules.coming", { name: one.name }), on: { click: () => coming(one) } }, moment(one.next_fire_at)) },
    { label: t("col.last"), class: "nowrap", cell: (one) => [moment(one.last_fire_at), one.last_job_id && [" ", h("a", { href: jobLink(one.last_job_id) }, t("letters.job"))]] },
    { label: t("schedules.fires"), class: "number", cell: (one) => [number(one.fires), one.misfires > 0 && h("div", { class: "small soft" }, t("schedules.misfires", { n: one.misfires }))] },
    { label: t("col.tenant"), cell: (one) => one.tenant_id },
    may("operate") && { label: t("col.actions"), class: "tight", cell: (one) => h("div", { class: "actions" }, one.paused ? button("resume", () => resume(one)) : button("pause", () => pause(one)), button("edit", () => edit(one)), button("backfill", () => backfill(one)), button("remove", () => remove(one), true)) },
  ].filter(Boolean), { label: t("page.schedules") });
  const list = h("div");
  fill(root, may("operate") && h("div", { class: "toolbar" }, h("button", { type: "button", class: "primary", on: { click: add } }, t("schedules.add"))), list);
  return { rows, list };
}

function draw(root, { schedules }) {
  room ??= built(root);
  if (schedules.length) {
    if (room.rows.node.parentNode !== room.list) fill(room.list, room.rows.node);
    room.rows.show(schedules, (one) => one.id);
  } else fill(room.list, empty(t("schedules.none"), t("schedules.none.more")));
}

const again = page({ load: () => get("schedules", { limit: 200 }), draw, every: 2000, poll: 5000, concerns: () => !document.querySelector("dialog[open]") });
