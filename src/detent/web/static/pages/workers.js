// Who works here, what they hold, and telling them to stop in good order.
import { fill, h, jobLink } from "../core/dom.js";
import { get, may, post } from "../core/api.js";
import { shares } from "../core/chart.js";
import { ask, reasonField, toast } from "../core/dialog.js";
import { empty, page } from "../core/states.js";
import { table } from "../core/table.js";
import { moment } from "../core/time.js";
import { named, t } from "../core/words.js";
import "../core/shell.js";

let room = null;

async function order(one, act) {
  const done = await ask({ title: t(`workers.${act}`, { name: one.id }), lead: t(`workers.${act}.more`), button: t(`act.${act}`), danger: act === "stop", fields: [reasonField()],
    act: (form) => post(`workers/${encodeURIComponent(one.id)}/${act}`, { reason: form.get("reason") || null }) });
  if (done) toast(t("did.order"));
  again();
}

function built(root) {
  const rows = table([
    { label: t("col.worker"), cell: (one) => [h("strong", { class: "break" }, one.id), h("div", { class: "small soft" }, `${one.host} · ${one.pid} · ${one.version}`)] },
    { label: t("col.state"), cell: (one) => [h("span", { class: `badge ${one.live ? (one.order ? "warning" : "good") : "gone"}` }, h("span", {}, one.live ? named("worker", one.state) : t("workers.gone"))), one.order && h("div", { class: "small soft" }, `${named("act", one.order.act)} · ${one.order.actor}`)] },
    { label: t("col.load"), cell: (one) => [`${one.busy} / ${one.slots}`, h("div", { class: "load" }, shares([["leased", one.busy], ["none", Math.max(0, one.slots - one.busy)]]))] },
    { label: t("col.queues"), cell: (one) => (one.queues?.length ? one.queues.join(", ") : t("workers.every")) },
    { label: t("col.types"), cell: (one) => h("div", { class: "row" }, (one.job_types ?? []).slice(0, 10).map((name) => h("span", { class: "tag" }, name))) },
    { label: t("col.holds"), cell: (one) => one.held?.length > 0 && h("details", {}, h("summary", {}, t("workers.holds", { n: one.held.length })), h("ul", {}, one.held.slice(0, 50).map((job) => h("li", {}, h("a", { href: jobLink(job.id) }, job.job_type))))) },
    { label: t("col.seen"), class: "nowrap", cell: (one) => moment(one.seen_at) },
    may("operate") && { label: t("col.actions"), class: "tight", cell: (one) => one.live && !one.order && h("div", { class: "actions" }, ["drain", "stop"].map((act) => h("button", { type: "button", class: `tiny${act === "stop" ? " danger" : ""}`, "data-act": act, on: { click: () => order(one, act) } }, t(`act.${act}`)))) },
  ].filter(Boolean), { label: t("page.workers") });
  const list = h("div");
  fill(root, list);
  return { rows, list };
}

function draw(root, { workers }) {
  room ??= built(root);
  if (workers.length) {
    if (room.rows.node.parentNode !== room.list) fill(room.list, room.rows.node);
    room.rows.show(workers, (one) => one.id);
  } else fill(room.list, empty(t("workers.none"), t("workers.none.more")));
}

const again = page({ load: () => get("workers"), draw, every: 1000, poll: 2000, concerns: () => false });
