// Charts of throughput, and of waiting and running time with their percentiles, over the chosen span.

/** @import { Latency, Series, SeriesSums } from "../../types.d.ts" */

import { lineChart } from "../../charts/line_chart.js";
import { cardWithHead } from "../../components/elements.js";
import { h } from "../../core/dom.js";
import { formatDuration, formatTick } from "../../core/time.js";
import { formatNumber, formatPercent, t } from "../../core/words.js";
import { spanSeconds, spanTabs } from "./spans.js";

/** @typedef {{ at: number, submitted: number, succeeded: number, failed: number }} CountPoint */
/** @typedef {{ at: number, p50: number | null, p95: number | null, p99: number | null }} LatencyPoint */

/** @param {number} value */
export function perMinute(value) {
  const text = value >= 10 || value === 0 ? formatNumber(Math.round(value)) : value.toFixed(value < 0.095 ? 2 : 1);
  return `${value > 0 && value < 0.005 ? "< 0.01" : text}/${t("unit.minute")}`;
}

/**
 * Finished jobs per minute.
 * @param {SeriesSums} sums
 * @param {number} seconds
 */
export const throughputOf = ({ ended_well, ended_badly }, seconds) => ((ended_well + ended_badly) * 60) / seconds;

/** @param {number | null} seconds */
export const formatSeconds = (seconds) => (seconds === null ? "–" : formatDuration(seconds * 1000));

/** @param {SeriesSums} sums */
export function failureShare({ ended_well, ended_badly }) {
  const ended = ended_well + ended_badly;
  return ended ? formatPercent(ended_badly / ended) : "–";
}

const throughputChart = () =>
  lineChart({
    label: t("overview.throughput"),
    format: perMinute,
    wide: true,
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

/** @param {string} label */
const percentileChart = (label) =>
  lineChart({
    label,
    format: formatTick,
    series: [
      { name: "p50", tone: "leased", value: (/** @type {LatencyPoint} */ point) => point.p50 },
      { name: "p95", tone: "blocked", value: (point) => point.p95, base: (point) => point.p50 },
      { name: "p99", tone: "bad", value: (point) => point.p99, base: (point) => point.p95 },
    ],
  });

/** @param {number | null} seconds */
const milliseconds = (seconds) => (seconds === null ? null : seconds * 1000);

/**
 * @param {number} at
 * @param {Latency} latency
 * @returns {LatencyPoint}
 */
const latencyPoint = (at, { p50_seconds, p95_seconds, p99_seconds }) => ({
  at,
  p50: milliseconds(p50_seconds),
  p95: milliseconds(p95_seconds),
  p99: milliseconds(p99_seconds),
});

/**
 * The charts with the buttons that choose the span.
 * @param {() => void} onSpan
 */
export function seriesCards(onSpan) {
  const throughput = throughputChart(), wait = percentileChart(t("overview.wait"));
  const run = percentileChart(t("overview.run"));
  const node = h(
    "div",
    { class: "grid", id: "series" },
    h("div", { class: "span-12" }, cardWithHead(t("overview.throughput"), spanTabs(onSpan), throughput.node)),
    h("div", { class: "span-6" }, cardWithHead(t("overview.wait"), summary("wait"), wait.node)),
    h("div", { class: "span-6" }, cardWithHead(t("overview.run"), summary("run"), run.node)),
  );

  /** @param {Series} series */
  function show({ points, at, span, total }) {
    const to = new Date(at).getTime(), from = to - spanSeconds(span) * 1000;
    const times = points.map((point) => new Date(point.at).getTime());
    const counts = points.map(({ seconds, submitted, ended_well, ended_badly }, index) => ({
      at: times[index],
      submitted: (submitted * 60) / seconds,
      succeeded: (ended_well * 60) / seconds,
      failed: (ended_badly * 60) / seconds,
    }));
    throughput.show(counts, from, to);
    wait.show(points.map((point, index) => latencyPoint(times[index], point.wait)), from, to);
    run.show(points.map((point, index) => latencyPoint(times[index], point.run)), from, to);
    for (const kind of /** @type {const} */ (["wait", "run"])) {
      const { p50_seconds, p95_seconds, p99_seconds } = total[kind];
      const texts = [["p50", p50_seconds], ["p95", p95_seconds], ["p99", p99_seconds]];
      const text = texts.map(([name, value]) => `${name} ${formatSeconds(/** @type {number | null} */ (value))}`);
      const target = node.querySelector(`[data-total="${kind}"]`);
      if (target) target.textContent = text.join(" · ");
    }
  }
  return { node, show };
}

/** @param {string} kind */
const summary = (kind) => h("span", { class: "soft small", "data-total": kind });
