// Overview: jobs by phase and status, throughput and latency, queues, job types, workers, dead letters, alerts.

/** @import { Alert, Column, Contract, GroupSeries, Overview, Page, Phase, Queue, QueueStateName, Series, SeriesGroups, Table } from "../types.d.ts" */

import { shareBar } from "../charts/share_bar.js";
import { card, cardWithHead } from "../components/elements.js";
import { filterTerm } from "../components/filter_query.js";
import { showRows, table } from "../components/table.js";
import { get, tenant } from "../core/api.js";
import { loadContracts, statusBadge, statusTone } from "../core/contracts.js";
import { fill, h, updateKeyed } from "../core/dom.js";
import { startPage } from "../core/page.js";
import { emptyState } from "../core/states.js";
import { timeElement } from "../core/time.js";
import { contractUrl, jobsUrl, jobTypeUrl, queueUrl, urlFor } from "../core/urls.js";
import { formatNumber, t } from "../core/words.js";
import { alertText } from "./alerts/alert_text.js";
import { seriesCards } from "./metrics/series_cards.js";
import { currentSpan } from "./metrics/spans.js";
import { groupSeries, PERCENTILE_COLUMNS } from "./queues/group_columns.js";
import { queueState } from "./queues/state_badge.js";
import "../core/shell.js";

/**
 * @typedef {object} OverviewData
 * @property {Overview} overview
 * @property {Series | null} series
 * @property {GroupSeries[]} types
 * @property {GroupSeries[]} tenants
 * @property {Alert[] | null} alerts
 * @property {Map<string, Contract>} contracts
 */
/** @typedef {{ tone: string, value: string, label: string, href: string }} Tile */
/** @typedef {{ contract: string, status: string | null, count: number, parts: [string, number][] }} StatusLine */
/** @typedef {{ name: string | null, series: GroupSeries }} GroupRow */

/** @type {Phase[]} */
const PHASES = ["claimable", "leased", "blocked", "final"];
/** Queues in the order of how much they need attention. @type {QueueStateName[]} */
const STATES = ["no_worker", "paused", "draining", "at_limit", "active", "idle"];
const SHOWN_QUEUES = 15, SHOWN_TYPES = 10;
/** @type {ReturnType<typeof build> | null} */
let view = null;

/** @param {HTMLElement} root */
function build(root) {
  const tiles = h("div", { class: "tiles" });
  const alerts = h("section", { class: "card block", hidden: true });
  const series = seriesCards(() => refresh()), queues = buildQueues();
  const types = buildGroups("types", jobTypeUrl);
  const tenants = buildGroups("tenants", (name) => jobsUrl(filterTerm("tenant", name)));
  const queueList = h("div"), statuses = h("div", { class: "bars" });
  const allQueues = h("a", { href: urlFor("queues") }),
    allTypes = h("a", { href: urlFor("types") }, t("overview.all-types"));
  const typesCard = h("div", { class: "span-12" }, cardWithHead(t("overview.types"), allTypes, types.node));
  const tenantsCard = h("div", { class: "span-12" }, cardWithHead(t("overview.tenants"), null, tenants.node));
  const lists = h(
    "div",
    { class: "grid" },
    !tenant && typesCard,
    !tenant && tenantsCard,
    !tenant && h("div", { class: "span-6" }, cardWithHead(t("overview.queues"), allQueues, queueList)),
    h("div", { class: "span-6" }, card(t("overview.statuses"), statuses)),
  );
  const lead = tenant && h("p", { class: "soft" }, t("overview.one-tenant", { tenant }));
  fill(root, lead, tiles, alerts, series.node, lists);
  return { tiles, alerts, series, statuses, queues, queueList, types, typesCard, tenants, tenantsCard, allQueues };
}

/** @returns {Table<Queue>} */
const buildQueues = () =>
  table(t("page.queues"), [
    { label: t("col.queue"), cell: ({ queue }) => h("a", { href: queueUrl(queue) }, queue) },
    { label: t("col.state"), cell: queueState },
    { label: t("col.ready"), class: "number", cell: ({ due }) => formatNumber(due) },
    { label: t("col.running"), class: "number", cell: ({ held }) => formatNumber(held) },
    { label: t("col.oldest"), class: "nowrap", cell: ({ oldest_due_at }) => timeElement(oldest_due_at) },
  ]);

/**
 * Metrics by job type or tenant.
 * @param {"types" | "tenants"} kind
 * @param {(name: string) => string} urlOf
 * @returns {Table<GroupRow>}
 */
function buildGroups(kind, urlOf) {
  /** @type {(Column<GroupRow> | false)[]} */
  const columns = [
    {
      label: t(kind === "types" ? "col.type" : "col.tenant"),
      cell: ({ name }) => (name === null ? t("overview.others") : h("a", { href: urlOf(name) }, name)),
    },
    ...PERCENTILE_COLUMNS,
  ];
  return table(t(`overview.${kind}`), columns);
}

/** @param {GroupSeries[]} groups @returns {GroupRow[]} */
const rowsOf = (groups) => groups.map((series) => ({ name: series.name, series }));

/** A tenant has no queues, types and alerts of its own: all tenants share them. @returns {Promise<OverviewData>} */
async function load() {
  const span = currentSpan();
  /** @type {[Overview, Series | null, SeriesGroups | null, SeriesGroups | null, Page<Alert> | null]} */
  const [overview, series, types, tenants, alerts] = await Promise.all([
    get("overview"),
    get("series", { span }).catch(() => null),
    tenant ? null : get("series/groups", { by: "job_type", span }).catch(() => null),
    tenant ? null : get("series/groups", { by: "tenant", span }).catch(() => null),
    tenant ? null : get("alerts").catch(() => null),
  ]);
  const contracts = await loadContracts(Object.keys(overview.statuses ?? {}));
  const groups = { types: types ? groupSeries(types) : [], tenants: tenants ? groupSeries(tenants) : [] };
  return { overview, series, ...groups, alerts: alerts?.items ?? null, contracts };
}

/**
 * @param {HTMLElement} root
 * @param {OverviewData} data
 */
function draw(root, data) {
  view ??= build(root);
  const firing = (data.alerts ?? []).filter(({ state }) => state === "firing");
  updateKeyed(view.tiles, tilesOf(data, firing.length), ({ label }) => label, tileNode);
  view.alerts.hidden = !firing.length;
  const alertLinks = firing.map((alert) =>
    h("li", {}, h("a", { href: urlFor("alerts"), title: alert.summary }, alertText(alert)))
  );
  fill(view.alerts, h("h2", {}, t("overview.alerts")), h("ul", {}, alertLinks));
  view.series.node.hidden = !data.series;
  if (data.series) view.series.show(data.series);
  drawStatuses(view.statuses, data);
  const { queues } = data.overview;
  showRows(
    view.queueList,
    view.queues,
    mostUrgent(queues),
    ({ queue }) => queue,
    () => emptyState(t("queues.none"), ""),
  );
  view.allQueues.hidden = !queues.length;
  view.allQueues.textContent = t("overview.all-queues", { n: queues.length });
  view.typesCard.hidden = !data.types.length;
  view.types.show(rowsOf(data.types.slice(0, SHOWN_TYPES)), ({ name }) => name ?? "");
  view.tenantsCard.hidden = data.tenants.length < 2; // the overview is that of the only one
  view.tenants.show(rowsOf(data.tenants), ({ name }) => name ?? "");
}

/** @param {Queue[]} queues */
const mostUrgent = (queues) =>
  [...queues]
    .sort((a, b) => STATES.indexOf(a.state) - STATES.indexOf(b.state) || b.due + b.held - a.due - a.held)
    .slice(0, SHOWN_QUEUES);

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
  tiles.push({
    tone: open ? "bad" : "good",
    value: formatNumber(open),
    label: t("overview.dead-letters"),
    href: urlFor("dead-letters"),
  });
  if (workers) {
    tiles.push({
      tone: workers.live ? "good" : "bad",
      value: String(workers.live),
      label: t("overview.workers", { busy: workers.busy, slots: workers.slots }),
      href: urlFor("workers"),
    });
  }
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

const refresh = startPage({ load, draw, every: 2000, poll: 5000 });
