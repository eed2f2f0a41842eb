// Columns that lists of queues and of job types share.

/** @import { Column, GroupSeries, JobGroup, SeriesGroups } from "../../types.d.ts" */

import { sparkline } from "../../charts/sparkline.js";
import { h } from "../../core/dom.js";
import { timeElement } from "../../core/time.js";
import { formatNumber, t } from "../../core/words.js";
import { failureShare, formatSeconds, perMinute, throughputOf } from "../metrics/series_cards.js";

/** @typedef {JobGroup & { series: GroupSeries | null }} GroupRow */

/** @type {Column<GroupRow>[]} */
export const NUMBER_COLUMNS = [
  { label: t("col.ready"), class: "number", cell: ({ due }) => formatNumber(due) },
  { label: t("col.scheduled"), class: "number", cell: ({ later }) => formatNumber(later) },
  { label: t("col.running"), class: "number", cell: ({ held }) => formatNumber(held) },
  { label: t("col.oldest"), class: "nowrap", cell: ({ oldest_due_at }) => timeElement(oldest_due_at) },
  { label: t("col.workers"), class: "number", cell: ({ workers }) => formatNumber(workers) },
];

/** @param {GroupSeries} series */
const spark = (series) => sparkline(series.finished, t("overview.throughput"), "leased");

/** @param {GroupSeries} series */
const rate = (series) => perMinute(throughputOf(series, series.seconds));

/** @type {Column<{ series: GroupSeries | null }>[]} */
const COMMON_COLUMNS = [
  {
    label: t("overview.throughput"),
    class: "number",
    cell: ({ series }) => series && h("div", { class: "spark" }, spark(series), h("span", {}, rate(series))),
  },
  { label: t("group.failed"), class: "number", cell: ({ series }) => series && failureShare(series) },
  {
    label: t("col.wait-p95"),
    class: "number nowrap",
    cell: ({ series }) => series && formatSeconds(series.wait.p95_seconds),
  },
];

/**
 * @param {"p50" | "p95" | "p99"} percentile
 * @returns {Column<{ series: GroupSeries | null }>}
 */
const runColumn = (percentile) => ({
  label: t(`col.run-${percentile}`),
  class: "number nowrap",
  cell: ({ series }) => series && formatSeconds(series.run[`${percentile}_seconds`]),
});

export const SERIES_COLUMNS = [...COMMON_COLUMNS, runColumn("p95")];
export const PERCENTILE_COLUMNS = [...COMMON_COLUMNS, runColumn("p50"), runColumn("p95"), runColumn("p99")];

/** @param {SeriesGroups} groups @returns {GroupSeries[]} */
export const groupSeries = ({ items, seconds }) => items.map((group) => ({ ...group, seconds }));

/**
 * The rows with their series.
 * @template Item
 * @param {Item[]} items
 * @param {SeriesGroups} groups
 * @param {(item: Item) => string} nameOf
 */
export function withSeries(items, groups, nameOf) {
  const byName = new Map(groupSeries(groups).map((group) => [group.name, group]));
  return items.map((item) => ({ ...item, series: byName.get(nameOf(item)) ?? null }));
}
