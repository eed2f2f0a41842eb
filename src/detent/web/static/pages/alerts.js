// Alerts that are firing, pending or resolved, and their deliveries to the notification channels.

/** @import { Alert, AlertDelivery, Page, Table } from "../types.d.ts" */

import { badge, card } from "../components/elements.js";
import { showRows, table } from "../components/table.js";
import { get } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { startPage } from "../core/page.js";
import { emptyState } from "../core/states.js";
import { timeElement } from "../core/time.js";
import { t, translated } from "../core/words.js";
import { alertText } from "./alerts/alert_text.js";
import "../core/shell.js";

/** In the order in which they are listed. @type {Record<string, string>} */
const TONES = { firing: "bad", pending: "warning", resolved: "good" };
const ORDER = Object.keys(TONES);
const SHOWN_DELIVERIES = 50;
/** @type {ReturnType<typeof build> | null} */
let view = null;

/** @param {HTMLElement} root */
function build(root) {
  /** @type {Table<Alert>} */
  const alerts = table(t("page.alerts"), [
    {
      label: t("col.rule"),
      cell: ({ rule, subject }) => [h("strong", {}, rule), subject && h("div", { class: "small soft break" }, subject)],
    },
    { label: t("col.state"), cell: ({ state }) => badge(TONES[state] ?? "neutral", translated("alert", state)) },
    { label: t("col.severity"), cell: ({ severity }) => severity },
    { label: t("col.summary"), cell: (alert) => h("div", { class: "break", title: alert.summary }, alertText(alert)) },
    { label: t("col.since"), class: "nowrap", cell: ({ since, fired_at }) => timeElement(since ?? fired_at) },
    { label: t("alert.resolved-at"), class: "nowrap", cell: ({ resolved_at }) => timeElement(resolved_at) },
  ]);
  /** @type {Table<AlertDelivery>} */
  const deliveries = table(t("alert.deliveries"), [
    { label: t("col.when"), class: "nowrap", cell: ({ created_at }) => timeElement(created_at) },
    { label: t("col.rule"), cell: ({ rule }) => rule },
    { label: t("alert.channel"), cell: ({ sink }) => sink },
    { label: t("col.state"), cell: deliveryState },
  ]);
  const list = h("div", { class: "block" });
  const deliveriesCard = card(t("alert.deliveries"), deliveries.node);
  fill(root, list, deliveriesCard);
  return { alerts, deliveries, list, deliveriesCard };
}

/** @param {AlertDelivery} delivery */
const deliveryState = ({ delivered_at, last_error }) =>
  delivered_at ? t("alert.delivered") : last_error ?? t("alert.not-delivered");

/**
 * @param {HTMLElement} root
 * @param {{ alerts: Alert[], deliveries: AlertDelivery[] }} data
 */
function draw(root, { alerts, deliveries }) {
  view ??= build(root);
  const sorted = [...alerts].sort((first, second) => ORDER.indexOf(first.state) - ORDER.indexOf(second.state));
  const empty = () => emptyState(t("alert.none"), t("alert.none.more"));
  showRows(view.list, view.alerts, sorted, ({ rule, subject }) => `${rule}/${subject}`, empty);
  view.deliveriesCard.hidden = !deliveries.length;
  view.deliveries.show(deliveries.slice(0, SHOWN_DELIVERIES), ({ id }) => id);
}

async function load() {
  /** @type {[Page<Alert>, Page<AlertDelivery>]} */
  const [alerts, deliveries] = await Promise.all([get("alerts"), get("alerts/deliveries")]);
  return { alerts: alerts.items, deliveries: deliveries.items };
}

startPage({ load, draw, poll: 3000, concerns: () => false });
