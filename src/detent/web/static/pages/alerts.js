// What fires, what is about to, what is over; and whom it was told.
import { fill, h } from "../core/dom.js";
import { get } from "../core/api.js";
import { empty, page } from "../core/states.js";
import { table } from "../core/table.js";
import { moment } from "../core/time.js";
import { alertText } from "../core/alert_text.js";
import { named, t } from "../core/words.js";
import "../core/shell.js";

const TONES = { firing: "bad", pending: "warning", resolved: "good" };
let room = null;

function built(root) {
  const rows = table([
    { label: t("col.rule"), cell: (one) => [h("strong", {}, one.rule), one.subject && h("div", { class: "small soft break" }, one.subject)] },
    { label: t("col.state"), cell: (one) => h("span", { class: `badge ${TONES[one.state] ?? "gone"}` }, h("span", {}, named("alert", one.state))) },
    { label: t("col.severity"), cell: (one) => one.severity },
    { label: t("col.summary"), cell: (one) => h("div", { class: "break", title: one.summary }, alertText(one)) },
    { label: t("col.since"), class: "nowrap", cell: (one) => moment(one.since ?? one.fired_at) },
    { label: t("alert.over"), class: "nowrap", cell: (one) => moment(one.resolved_at) },
  ], { label: t("page.alerts") });
  const told = table([
    { label: t("col.when"), class: "nowrap", cell: (one) => moment(one.created_at) }, { label: t("col.rule"), cell: (one) => one.rule },
    { label: t("alert.sink"), cell: (one) => one.sink }, { label: t("col.state"), cell: (one) => (one.delivered_at ? t("alert.told") : one.last_error ?? t("alert.waiting")) },
  ], { label: t("alert.deliveries") });
  const list = h("div", { class: "lone" }), card = h("section", { class: "card" }, h("h2", {}, t("alert.deliveries")), told.node);
  fill(root, list, card);
  return { rows, told, list, card };
}

function draw(root, data) {
  room ??= built(root);
  const order = ["firing", "pending", "resolved"];
  const alerts = [...data.alerts].sort((one, other) => order.indexOf(one.state) - order.indexOf(other.state));
  if (alerts.length) {
    if (room.rows.node.parentNode !== room.list) fill(room.list, room.rows.node);
    room.rows.show(alerts, (one) => `${one.rule}/${one.subject}`);
  } else fill(room.list, empty(t("alert.none"), t("alert.none.more")));
  const deliveries = data.deliveries ?? [];
  room.card.hidden = !deliveries.length;
  room.told.show(deliveries.slice(0, 50), (one) => one.id ?? `${one.rule}${one.created_at}`);
}

async function load() {
  const [{ alerts }, { deliveries }] = await Promise.all([get("alerts"), get("alerts/deliveries")]);
  return { alerts, deliveries };
}

page({ load, draw, every: 1000, poll: 3000, concerns: () => false });
