// Alerts that are firing, pending or resolved: acknowledge, silence, the cause; silences, rules and notifications.

/** @import { Alert, AlertDelivery, AlertRule, Page, Silence, Table } from "../types.d.ts" */

import { actionButton, badge, card } from "../components/elements.js";
import { showRows, table } from "../components/table.js";
import { get, may } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { startPage } from "../core/page.js";
import { emptyState } from "../core/states.js";
import { formatDuration, timeElement } from "../core/time.js";
import { formatPercent, hasText, richText, t, translated } from "../core/words.js";
import { acknowledge, endSilence, silence } from "./alerts/alert_actions.js";
import { alertText, causeUrl } from "./alerts/alert_text.js";
import "../core/shell.js";

/** In the order in which they are listed. @type {Record<string, string>} */
const TONES = { firing: "bad", pending: "warning", resolved: "good" };
const ORDER = Object.keys(TONES);
/** The kinds of rules that count events of a window of time. */
const WINDOWED = new Set(["dlq_arrivals", "illegal_transitions", "lease_losses", "error_rate"]);
const SHOWN_DELIVERIES = 50;
/** @type {ReturnType<typeof build> | null} */
let view = null;

/** @param {HTMLElement} root */
function build(root) {
  /** @type {Table<Alert>} */
  const alerts = table(t("page.alerts"), [
    { label: t("col.rule"), cell: ruleCell },
    { label: t("col.state"), cell: stateCell },
    { label: t("col.severity"), cell: ({ severity }) => severity },
    { label: t("col.summary"), cell: summaryCell },
    { label: t("col.since"), class: "nowrap", cell: ({ since, fired_at }) => timeElement(since ?? fired_at) },
    { label: t("alert.resolved-at"), class: "nowrap", cell: ({ resolved_at }) => timeElement(resolved_at) },
    may("operate") && { label: t("col.actions"), class: "tight", cell: actionsCell },
  ]);
  /** @type {Table<Silence>} */
  const silences = table(t("alert.silences"), [
    { label: t("col.rule"), cell: ({ rule }) => rule },
    { label: t("col.subject"), cell: ({ subject }) => subject || t("alert.all-subjects") },
    { label: t("alert.until"), class: "nowrap", cell: ({ until }) => timeElement(until) },
    { label: t("col.actor"), cell: ({ actor }) => actor },
    { label: t("col.reason"), class: "wide", cell: ({ reason }) => reason },
    may("operate") && {
      label: t("col.actions"),
      class: "tight",
      cell: (row) => actionButton("end-silence", () => endSilence(row).then(refresh), { class: "tiny" }),
    },
  ]);
  /** @type {Table<AlertRule>} */
  const rules = table(t("alert.rules"), [
    { label: t("col.rule"), cell: ({ name }) => name },
    { label: t("col.severity"), cell: ({ severity, enabled }) => (enabled ? severity : "–") },
    {
      label: t("alert.threshold"),
      class: "number wide",
      cell: thresholdCell,
    },
    {
      label: t("alert.for"),
      class: "nowrap",
      cell: ({ for_seconds }) => for_seconds ? formatDuration(for_seconds * 1000) : "–",
    },
    {
      label: t("alert.meaning"),
      class: "wide",
      cell: ({ kind, meaning }) => hasText(`alert-kind.${kind}`) ? t(`alert-kind.${kind}`) : meaning,
    },
  ]);
  /** @type {Table<AlertDelivery>} */
  const deliveries = table(t("alert.deliveries"), [
    { label: t("col.when"), class: "nowrap", cell: ({ created_at }) => timeElement(created_at) },
    { label: t("col.rule"), cell: ruleCell },
    { label: t("col.state"), cell: ({ news }) => badge(TONES[news] ?? "neutral", translated("alert", news)) },
    { label: t("alert.channel"), cell: ({ sink }) => sink },
    { label: t("alert.delivery"), cell: deliveryCell },
  ]);
  const list = h("div", { class: "block" });
  const deliveriesCard = card(t("alert.deliveries"), deliveries.node);
  const silencesCard = card(t("alert.silences"), silences.node);
  const rulesCard = card(t("alert.rules"), rules.node);
  for (const section of [silencesCard, deliveriesCard]) section.classList.add("block");
  fill(root, list, silencesCard, deliveriesCard, rulesCard);
  return { alerts, deliveries, silences, rules, list, deliveriesCard, silencesCard };
}

/** The threshold, and the time in which its events are counted. @param {AlertRule} rule */
function thresholdCell(rule) {
  const text = thresholdText(rule);
  if (!WINDOWED.has(rule.kind)) return text;
  return t("alert.within", { threshold: text, span: formatDuration(rule.window_seconds * 1000) });
}

/** @param {AlertRule} rule */
function thresholdText({ threshold, unit }) {
  if (unit === "share") return formatPercent(threshold);
  if (unit === "seconds") return threshold ? formatDuration(threshold * 1000) : `0 ${t("unit.second")}`;
  return hasText(`alert-unit.${unit}`) ? t(`alert-unit.${unit}`, { n: threshold }) : `${threshold} ${unit}`;
}

/** @param {Alert | AlertDelivery} alert */
const ruleCell = ({ rule, subject }) => [
  h("strong", {}, rule),
  subject && h("div", { class: "small soft break" }, subject),
];

/** @param {Alert} alert */
const stateCell = ({ state, acknowledged_by, silenced_until }) => [
  badge(TONES[state] ?? "neutral", translated("alert", state)),
  acknowledged_by && h("div", { class: "small soft" }, t("alert.acknowledged", { name: acknowledged_by })),
  silenced_until &&
  h("div", { class: "small soft" }, richText("alert.silenced", { time: timeElement(silenced_until) })),
];

/** @param {Alert} alert */
const summaryCell = (alert) => [
  h("div", { class: "break", title: alert.summary }, alertText(alert)),
  causeUrl(alert) && h("a", { class: "small", href: causeUrl(alert) }, t("alert.cause")),
];

/** @param {Alert} alert */
const actionsCell = (alert) =>
  alert.state !== "resolved" && h(
    "div",
    { class: "actions" },
    !alert.acknowledged_by &&
      actionButton("acknowledge", () => acknowledge(alert).then(refresh), { class: "tiny" }),
    !alert.silenced_until && actionButton("silence", () => silence(alert).then(refresh), { class: "tiny" }),
  );

/** @param {AlertDelivery} delivery */
const deliveryCell = ({ state, last_error }) => [
  state === "due" ? t("alert.not-delivered") : t(state === "delivered" ? "alert.delivered" : "webhooks.given-up"),
  state !== "delivered" && last_error && h("div", { class: "small error break" }, last_error),
];

/**
 * @param {HTMLElement} root
 * @param {{ alerts: Alert[], deliveries: AlertDelivery[], silences: Silence[], rules: AlertRule[] }} data
 */
function draw(root, { alerts, deliveries, silences, rules }) {
  view ??= build(root);
  const sorted = [...alerts].sort((first, second) => ORDER.indexOf(first.state) - ORDER.indexOf(second.state));
  const empty = () => emptyState(t("alert.none"), t("alert.none.more"));
  showRows(view.list, view.alerts, sorted, ({ rule, subject }) => `${rule}/${subject}`, empty);
  view.deliveriesCard.hidden = !deliveries.length;
  view.silencesCard.hidden = !silences.length;
  view.silences.show(silences, ({ id }) => id);
  view.rules.show(rules, ({ name }) => name);
  view.deliveries.show(deliveries.slice(0, SHOWN_DELIVERIES), ({ id }) => id);
}

async function load() {
  /** @type {[Page<Alert>, Page<AlertDelivery>, Page<Silence>, Page<AlertRule>]} */
  const [alerts, deliveries, silences, rules] = await Promise.all([
    get("alerts"),
    get("alerts/deliveries"),
    get("alerts/silences"),
    get("alerts/rules"),
  ]);
  return { alerts: alerts.items, deliveries: deliveries.items, silences: silences.items, rules: rules.items };
}

const refresh = startPage({ load, draw, poll: 3000, concerns: () => false });
