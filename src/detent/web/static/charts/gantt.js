// Bars on a common axis of time.

import { h, s } from "../core/dom.js";
import { formatDuration, formatExact, formatTick } from "../core/time.js";

const WIDTH = 1000, HEIGHT = 14, NARROWEST = 8;

/** @typedef {{ from: number, to: number }} TimeRange in milliseconds since 1970 */

/**
 * @param {TimeRange} bar
 * @param {TimeRange} axis
 * @param {string} tone
 */
export function ganttBar(bar, axis, tone) {
  const span = Math.max(1, axis.to - axis.from);
  /** @param {number} time */
  const place = (time) => Math.min(WIDTH, Math.max(0, ((time - axis.from) / span) * WIDTH));
  const left = Math.min(place(bar.from), WIDTH - NARROWEST);
  const width = Math.max(NARROWEST, place(bar.to) - left);
  const times = `${exact(bar.from)} – ${exact(bar.to)} (${formatDuration(bar.to - bar.from)})`;
  const rect = s("rect", { class: `fill-${tone}`, x: left, y: 1, width, height: HEIGHT - 2 }, s("title", {}, times));
  const box = `0 0 ${WIDTH} ${HEIGHT}`;
  return s("svg", { class: "gantt-bar", viewBox: box, preserveAspectRatio: "none", "aria-hidden": "true" }, rect);
}

/**
 * The head of the column of bars: where the axis begins and how long it is.
 * @param {TimeRange} axis
 */
export const ganttAxis = (axis) =>
  h(
    "div",
    { class: "gantt-axis" },
    [0, 0.5, 1].map((share) =>
      h("span", { title: exact(axis.from + (axis.to - axis.from) * share) }, formatTick((axis.to - axis.from) * share))
    ),
  );

/** @param {number} time */
const exact = (time) => formatExact(new Date(time).toISOString());
