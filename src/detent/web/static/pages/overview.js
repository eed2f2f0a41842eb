// Overview: jobs by phase, contract and status; throughput and latency; queues, workers, dead letters, alerts.

/** @import { Alert, Contract, Overview, Page, Phase, Queue, Series, Span, Table } from "../types.d.ts" */

import { lineChart } from "../charts/line_chart.js";
import { shareBar } from "../charts/share_bar.js";
import { badge, button, card, cardWithHead } from "../components/elements.js";
import { filterTerm } from "../components/filter_query.js";
import { table } from "../components/table.js";
import { get, tenant } from "../core/api.js";
import { loadContracts, statusBadge, statusTone } from "../core/contracts.js";
import { childElements, fill, h, updateKeyed } from "../core/dom.js";
import { startPage } from "../core/page.js";
import { emptyState } from "../core/states.js";
import { formatDuration, timeElement } from "../core/time.js";
import { contractUrl, jobsUrl, urlFor } from "../core/urls.js";
import { formatNumber, t } from "../core/words.js";
import { alertText } from "./alerts/alert_text.js";
import "../core/shell.js";

/**
 * @typedef {object} OverviewData
 * @property {Overview} overview
 * @property {Series | null} series
 * @property {Alert[] | null} alerts
 * @property {Map<string, Contract>} contracts
 */
/** @typedef {{ tone: string, value: string, label: string, href: string }} Tile */
/** @typedef {{ contract: string, status: string | null, count: number, parts: [string, number][] }} StatusLine */

/** @type {Phase[]} */
const PHASES = ["claimable", "leased", "blocked", "final"];
/** @type {Record<Span, number>} */
const SPAN_MS = { hour: 3_600_000, day: 86_400_000, week: 604_800_000 };
const SPAN_KEY = "detent.span";
let span = sessionStorage.getItem(SPAN_KEY) ?? "hour";
/** @type {ReturnType<typeof build> | null} */
let view = null;

/** @param {HTMLElement} root */
function build(root) {
  const tiles = h("div", { class: "tiles" });
  const alerts = h("section", { class: "card", hidden: true });
  const throughput = buildThroughput(), latency = buildLatency(), queues = buildQueues();
  const charts = h(
    "div",
    { class: "grid", hidden: true },
    h("div", { class: "span-6" }, cardWithHead(t("overview.throughput"), spanTabs(), throughput.node)),
    h("div", { class: "span-6" }, cardWithHead(t("overview.latency"), null, latency.node)),
  );
  const statuses = h("div", { class: "bars" });
  const lists = h(
    "div",
    { class: "grid" },
    h("div", { class: "span-6" }, card(t("overview.statuses"), statuses)),
    h("div", { class: "span-6" }, card(t("overview.queues"), queues.node)),
  );
  fill(root, tiles, alerts, charts, lists);
  return { tiles, alerts, charts, throughput, latency, statuses, queues };
}

/** @param {number} value */
function perMinute(value) {
  const text = value >= 10 || value === 0 ? formatNumber(Math.round(value)) : value.toFixed(1);
  return `${text}/${t("unit.minute")}`;
}

/** @typedef {{ at: number, submitted: number, succeeded: number, failed: number }} CountPoint */
/** @typedef {{ at: number, wait: number | null, run: number | null }} LatencyPoint */

const buildThroughput = () =>
  lineChart({
    label: t("overview.throughput"),
    format: perMinute,
    series: [
      {
        name: t("overview.submitted"),
        tone: "claimable",
        value: (/** @type {CountPoint} */ point) => point.submitted,
      },
      { name: t("overview.succeeded"), tone: "good", value: (point) => point.succeeded },
      { name: t("overview.failed"), tone: "bad", value: (point) => point.failed },
    ],
  });

const buildLatency = () =>
  lineChart({
    label: t("overview.latency"),
    format: (value) => (value === 0 ? "0" : formatDuration(value)),
    series: [
      { name: t("overview.wait"), tone: "blocked", value: (/** @type {LatencyPoint} */ point) => point.wait },
      { name: t("overview.run"), tone: "leased", value: (point) => point.run },
    ],
  });

/** @returns {Table<Queue>} */
const buildQueues = () =>
  table(t("page.queues"), [
    { label: t("col.queue"), cell: ({ queue }) => h("a", { href: jobsUrl(filterTerm("queue", queue)) }, queue) },
    { label: t("col.ready"), class: "number", cell: ({ due }) => formatNumber(due) },
    { label: t("col.running"), class: "number", cell: ({ held }) => formatNumber(held) },
    { label: t("col.oldest"), cell: ({ oldest_due_at }) => timeElement(oldest_due_at) },
    {
      label: t("col.workers"),
      class: "number",
      cell: ({ paused, workers }) => (paused ? badge("warning", t("queues.paused")) : formatNumber(workers)),
    },
  ]);

function spanTabs() {
  const tabs = h("div", { class: "tabs", role: "group", "aria-label": t("overview.span") });
  const mark = () => {
    for (const tab of childElements(tabs)) tab.setAttribute("aria-pressed", String(tab.dataset.span === span));
  };
  tabs.append(
    ...Object.keys(SPAN_MS).map((name) => {
      const onClick = () => {
        span = name;
        sessionStorage.setItem(SPAN_KEY, name);
        mark();
        refresh();
      };
      return button(t(`overview.${name}`), onClick, { "data-span": name });
    }),
  );
  mark();
  return tabs;
}

/** Null for a token of one tenant: the overview covers all tenants. @returns {Promise<OverviewData | null>} */
async function load() {
  if (tenant) return null;
  /** @type {[Overview, Series | null, Page<Alert> | null]} */
  const [overview, series, alerts] = await Promise.all([
    get("overview"),
    get("series", { span }).catch(() => null),
    get("alerts").catch(() => null),
  ]);
  const contracts = await loadContracts(Object.keys(overview.statuses ?? {}));
  return { overview, series, alerts: alerts?.items ?? null, contracts };
}

/**
 * @param {HTMLElement} root
 * @param {OverviewData | null} data
 */
function draw(root, data) {
  if (!data) {
    const link = h("a", { class: "button", href: urlFor("jobs") }, t("page.jobs"));
    return void fill(root, emptyState(t("overview.one-tenant", { tenant }), t("overview.one-tenant.more"), link));
  }
  view ??= build(root);
  const firing = (data.alerts ?? []).filter(({ state }) => state === "firing");
  updateKeyed(view.tiles, tilesOf(data, firing.length), ({ label }) => label, tileNode);
  view.alerts.hidden = !firing.length;
  const alertLinks = firing.map((alert) =>
    h("li", {}, h("a", { href: urlFor("alerts"), title: alert.summary }, alertText(alert)))
  );
  fill(view.alerts, h("h2", {}, t("overview.alerts")), h("ul", {}, alertLinks));
  view.charts.hidden = !data.series;
  if (data.series) drawSeries(view, data.series);
  drawStatuses(view.statuses, data);
  view.queues.show(data.overview.queues, ({ queue }) => queue);
}

/**
 * @param {OverviewData} data
 * @param {number} firing
 * @returns {Tile[]}
 */
function tilesOf({ overview, alerts }, firing) {
  const { phases, workers } = overview;
  const open = overview.dead_letters.open ?? 0;
  const tiles = PHASES.map((phase) => ({
    tone: String(phase),
    value: phases ? formatNumber(phases[phase]) : "…",
    label: t(`phase.${phase}`),
    href: jobsUrl(filterTerm("phase", phase)),
  }));
  tiles.push(
    {
      tone: open ? "bad" : "good",
      value: formatNumber(open),
      label: t("overview.dead-letters"),
      href: urlFor("dead-letters"),
    },
    {
      tone: workers.live ? "good" : "bad",
      value: String(workers.live),
      label: t("overview.workers", { busy: workers.busy, slots: workers.slots }),
      href: urlFor("workers"),
    },
  );
  const alertTone = firing ? "bad" : "good";
  if (alerts) {
    tiles.push({ tone: alertTone, value: formatNumber(firing), label: t("overview.alerts"), href: urlFor("alerts") });
  }
  return tiles;
}

/** @param {Tile} tile */
const tileNode = ({ tone, value, label, href }) =>
  h("a", { class: `tile card ${tone}`, href }, h("b", {}, value), h("span", {}, label));

/**
 * @param {ReturnType<typeof build>} view
 * @param {Series} series
 */
function drawSeries({ throughput, latency }, { points, bucket_seconds, at, span }) {
  const minutes = bucket_seconds / 60;
  const to = new Date(at).getTime(), from = to - SPAN_MS[span];
  const times = points.map((point) => new Date(point.at).getTime());
  const counts = points.map((point, index) => ({
    at: times[index],
    submitted: point.submitted / minutes,
    succeeded: point.ended_well / minutes,
    failed: point.ended_badly / minutes,
  }));
  throughput.show(counts, from, to);
  latency.show(points.map((point, index) => ({ at: times[index], wait: point.wait_ms, run: point.run_ms })), from, to);
}

/**
 * One line for each contract, then one for each of its statuses.
 * @param {HTMLElement} container
 * @param {OverviewData} data
 */
function drawStatuses(container, { overview, contracts }) {
  const { statuses } = overview;
  /** @type {StatusLine[]} */
  const lines = Object.entries(statuses ?? {}).flatMap(([contract, counts]) => {
    const parts = Object.entries(counts);
    const total = parts.reduce((sum, [, count]) => sum + count, 0);
    const tones = parts.map(([status, count]) => /** @type {[string, number]} */ ([
      statusTone(contracts.get(contract), status),
      count,
    ]));
    return [
      { contract, status: null, count: total, parts: tones },
      ...parts.map(([status, count]) => ({ contract, status, count, parts: [] })),
    ];
  });
  if (!lines.length) {
    const title = t(statuses ? "jobs.none" : "overview.counting"), text = statuses ? t("jobs.none.more") : "";
    return updateKeyed(container, [title], () => "none", () => emptyState(title, text));
  }
  updateKeyed(container, lines, ({ contract, status }) => `${contract}/${status ?? ""}`, (line) => {
    const { contract, status, count, parts } = line;
    if (status === null) {
      return h(
        "div",
        { class: "bar-line" },
        h("a", { href: contractUrl(contract) }, h("strong", {}, contract)),
        shareBar(parts),
        h("strong", { class: "number" }, formatNumber(count)),
      );
    }
    const href = jobsUrl(`${filterTerm("contract", contract)} ${filterTerm("status", status)}`);
    return h(
      "div",
      { class: "bar-line" },
      h("a", { href }, statusBadge(contracts.get(contract), status)),
      h("span"),
      h("span", { class: "number" }, formatNumber(count)),
    );
  });
}

const refresh = startPage({ load, draw, poll: 5000 });
