// How things stand: jobs by phase, by contract and status, queues with their oldest job, workers, and how it has been going.
import { fill, h, here, keyed } from "../core/dom.js";
import { get, tenant } from "../core/api.js";
import { badge, contracts, tone } from "../core/contract.js";
import { chart, shares } from "../core/chart.js";
import { alertText } from "../core/alert_text.js";
import { term } from "../core/filter.js";
import { empty, page } from "../core/states.js";
import { table } from "../core/table.js";
import { moment, span } from "../core/time.js";
import { number, t } from "../core/words.js";
import "../core/shell.js";

const PHASES = ["claimable", "leased", "blocked", "final"];
const SPANS = { hour: 3_600_000, day: 86_400_000, week: 604_800_000 };
const find = (...terms) => here(`jobs?q=${encodeURIComponent(terms.join(" "))}`);
let room = null;
let chosen = sessionStorage.getItem("detent.span") ?? "hour";

function built(root) {
  const tiles = h("div", { class: "tiles" });
  const alerts = h("section", { class: "card", hidden: true });
  const throughput = chart({
    label: t("overview.throughput"), format: (value) => `${value >= 10 || value === 0 ? number(Math.round(value)) : value.toFixed(1)}/${t("unit.minute")}`,
    series: [
      { name: t("overview.submitted"), tone: "claimable", value: (point) => point.submitted },
      { name: t("overview.succeeded"), tone: "good", value: (point) => point.succeeded },
      { name: t("overview.failed"), tone: "bad", value: (point) => point.failed },
    ],
  });
  const latency = chart({
    label: t("overview.latency"), format: (value) => (value === 0 ? "0" : span(value)),
    series: [
      { name: t("overview.wait"), tone: "blocked", value: (point) => point.wait_ms },
      { name: t("overview.run"), tone: "leased", value: (point) => point.run_ms },
    ],
  });
  const tabs = h("div", { class: "tabs", role: "group", "aria-label": t("overview.span") }, Object.keys(SPANS).map((name) => h("button", {
    type: "button", "aria-pressed": String(name === chosen), "data-span": name,
    on: { click: () => {
      chosen = name;
      sessionStorage.setItem("detent.span", name);
      for (const one of tabs.children) one.setAttribute("aria-pressed", String(one.dataset.span === name));
      again();
    } },
  }, t(`overview.${name}`))));
  const lines = h("div", { class: "bars" });
  const queues = table([
    { label: t("col.queue"), cell: (row) => h("a", { href: find(term("queue", row.queue)) }, row.queue) },
    { label: t("col.due"), class: "number", cell: (row) => number(row.due) },
    { label: t("col.held"), class: "number", cell: (row) => number(row.held) },
    { label: t("col.oldest"), cell: (row) => moment(row.oldest_due_at) },
    { label: t("col.workers"), class: "number", cell: (row) => (row.paused ? h("span", { class: "badge warning" }, h("span", {}, t("queues.paused"))) : number(row.workers)) },
  ], { label: t("page.queues") });
  const charts = h("div", { class: "grid", hidden: true },
    h("section", { class: "card span-6" }, h("div", { class: "head" }, h("h2", {}, t("overview.throughput")), tabs), throughput.node),
    h("section", { class: "card span-6" }, h("div", { class: "head" }, h("h2", {}, t("overview.latency"))), latency.node));
  fill(root, tiles, alerts, charts, h("div", { class: "grid" },
    h("section", { class: "card span-6" }, h("h2", {}, t("overview.where")), lines),
    h("section", { class: "card span-6" }, h("h2", {}, t("overview.oldest")), queues.node)));
  return { tiles, alerts, charts, throughput, latency, lines, queues };
}

function tile(kind, value, label, href) {
  return { kind, value, label, href };
}

async function load() {
  if (tenant) return { tenant };
  const [told, series, alerts] = await Promise.all([
    get("overview"), get("series", { span: chosen }).catch(() => null), get("alerts").catch(() => null)]);
  return { told, series, alerts, tables: await contracts(Object.keys(told.statuses ?? {})) };
}

function draw(root, { told, series, alerts, tables, tenant: bound }) {
  if (bound) return void fill(root, empty(t("overview.bound", { tenant: bound }), t("overview.bound.more"), h("a", { class: "button", href: here("jobs") }, t("page.jobs"))));
  room ??= built(root);
  const phases = told.phases ?? {};
  const firing = (alerts?.alerts ?? []).filter((one) => one.state === "firing");
  const tiles = [
    ...PHASES.map((phase) => tile(phase, told.phases ? number(phases[phase]) : "…", t(`phase.${phase}`), find(term("phase", phase)))),
    tile(told.dead_letters.open ? "bad" : "good", number(told.dead_letters.open ?? 0), t("overview.letters"), here("dead-letters")),
    tile(told.workers.live ? "good" : "bad", `${told.workers.live}`, t("overview.workers", { busy: told.workers.busy, slots: told.workers.slots }), here("workers")),
    alerts && tile(firing.length ? "bad" : "good", number(firing.length), t("overview.alerts"), here("alerts")),
  ].filter(Boolean);
  keyed(room.tiles, tiles, (one) => one.label, (one) => h("a", { class: `tile card ${one.kind}`, href: one.href }, h("b", {}, one.value), h("span", {}, one.label)));
  room.alerts.hidden = !firing.length;
  fill(room.alerts, h("h2", {}, t("overview.alerts")), h("ul", {}, firing.map((one) => h("li", {}, h("a", { href: here("alerts"), title: one.summary }, alertText(one))))));
  drawSeries(series);
  drawLines(told, tables);
  room.queues.show(told.queues, (row) => row.queue);
}

function drawSeries(series) {
  room.charts.hidden = !series;
  if (!series) return;
  const minutes = series.bucket_seconds / 60;
  const points = series.points.map((point) => ({
    at: new Date(point.at).getTime(), submitted: point.submitted / minutes, succeeded: point.ended_well / minutes, failed: point.ended_badly / minutes,
    wait_ms: point.wait_ms, run_ms: point.run_ms,
  }));
  const to = new Date(series.at).getTime();
  room.throughput.show(points, to - SPANS[series.span], to);
  room.latency.show(points, to - SPANS[series.span], to);
}

function drawLines(told, tables) {
  const rows = Object.entries(told.statuses ?? {}).flatMap(([name, statuses]) => [
    { name, head: true, parts: Object.entries(statuses).map(([status, n]) => [tone(tables.get(name), status), n]), n: Object.values(statuses).reduce((a, b) => a + b, 0) },
    ...Object.entries(statuses).map(([status, n]) => ({ name, status, n })),
  ]);
  if (!rows.length) return void keyed(room.lines, [{}], () => "none", () => empty(t(told.statuses ? "jobs.none" : "overview.counting"), told.statuses ? t("jobs.none.more") : ""));
  keyed(room.lines, rows, (row) => `${row.name}/${row.status ?? ""}`, (row) => row.head
    ? h("div", { class: "bar-line" }, h("a", { href: here(`contracts/${encodeURIComponent(row.name)}`) }, h("strong", {}, row.name)), shares(row.parts), h("strong", { class: "number" }, number(row.n)))
    : h("div", { class: "bar-line" }, h("a", { href: find(term("contract", row.name), term("status", row.status)) }, badge(tables.get(row.name), row.status)), h("span"), h("span", { class: "number" }, number(row.n))));
}

const again = page({ load, draw, poll: 5000, every: 1000 });
