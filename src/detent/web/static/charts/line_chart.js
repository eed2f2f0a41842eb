// Lines over time. The elements are created once and only their shapes change, so that nothing flickers.

import { fill, h, s } from "../core/dom.js";
import { formatClock, formatDay, formatDayTime } from "../core/time.js";

const NARROW = 640, WIDE = 1290, HEIGHT = 190, RIGHT = 6, BOTTOM = 22, TOP = 10;
const PLOT_HEIGHT = HEIGHT - BOTTOM - TOP;
const WIDE_FROM = 900;
const DAY_LABELS_ABOVE_MS = 36 * 3_600_000;

/**
 * @template Point
 * @typedef {object} ChartLine
 * @property {string} name
 * @property {string} tone
 * @property {(point: Point) => number | null} value
 * @property {(point: Point) => number | null} [base]
 */

/**
 * `at`: milliseconds since 1970. `base`: the area below a line ends there instead of at 0, so that lines become bands.
 * @template {{ at: number }} Point
 * @param {object} options
 * @param {string} options.label
 * @param {ChartLine<Point>[]} options.series
 * @param {(value: number) => string} options.format
 * @param {boolean} [options.wide] for a card that is as wide as the page
 */
export function lineChart({ label, series, format, wide = false }) {
  const width = wide && innerWidth > WIDE_FROM ? WIDE : NARROW;
  // Labels are larger on a narrow screen, see the style sheet.
  const left = innerWidth > NARROW ? 64 : 98, plotWidth = width - left - RIGHT;
  const lines = series.map((line) => ({
    ...line,
    area: s("path", { class: `area fill-${line.tone}` }),
    path: s("path", { class: `line line-${line.tone}` }),
    legend: h("span"),
  }));
  const grid = s("g");
  const cursor = s("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  const svg = s(
    "svg",
    { class: "chart", viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": label, tabindex: "0" },
    grid,
    lines.map((line) => [line.area, line.path]),
    cursor,
  );
  const time = h("span", { class: "soft" });
  const legend = h(
    "div",
    { class: "legend" },
    lines.map((line) => h("span", {}, h("i", { class: line.tone }), line.legend)),
    time,
  );
  /** @type {Point[]} */
  let points = [];
  let from = 0, to = 1, top = 1;
  /** @type {number | null} */
  let selected = null;

  /** The first and the last interval may lie partly outside of the span. @param {number} at */
  const x = (at) => left + Math.min(1, Math.max(0, (at - from) / (to - from || 1))) * plotWidth;
  /** @param {number} value */
  const y = (value) => HEIGHT - BOTTOM - (value / top) * PLOT_HEIGHT;

  /**
   * Show the values of one point in the legend; null: of the last one that has any.
   * @param {number | null} index
   */
  function select(index) {
    selected = index;
    const last = points.findLastIndex((point) => lines.some((line) => line.value(point) !== null));
    const point = points[index ?? last];
    for (const line of lines) {
      const value = point ? line.value(point) : null;
      line.legend.textContent = `${line.name} ${value === null ? "–" : format(value)}`;
    }
    time.textContent = point ? formatDayTime(new Date(point.at)) : "";
    cursor.setAttribute("visibility", index === null ? "hidden" : "visible");
    if (!point) return;
    cursor.setAttribute("x1", String(x(point.at)));
    cursor.setAttribute("x2", String(x(point.at)));
  }

  /**
   * @param {Point[]} newPoints in order of time
   * @param {number} start
   * @param {number} end
   */
  function show(newPoints, start, end) {
    [points, from, to] = [newPoints, start, end];
    top = roundUp(Math.max(0, ...points.flatMap((point) => lines.map((line) => line.value(point) ?? 0))));
    /** @param {Measured} measured */
    const lower = ({ at, base }) => `L${x(at).toFixed(1)},${y(base).toFixed(1)}`;
    for (const line of lines) {
      const runs = withoutGaps(points, line.value, line.base ?? (() => 0));
      /** @param {Measured[]} run */
      const shape = (run) =>
        run.map(({ at, value }, index) => `${index ? "L" : "M"}${x(at).toFixed(1)},${y(value).toFixed(1)}`).join("");
      /** @param {Measured[]} run */
      const area = (run) => `${shape(run)}${[...run].reverse().map(lower).join("")}Z`;
      // A single point is drawn as a dot: a line of almost no length with round ends.
      line.path.setAttribute("d", runs.map((run) => shape(run) + (run.length === 1 ? "h.01" : "")).join(""));
      line.area.setAttribute("d", runs.filter((run) => run.length > 1).map(area).join(""));
    }
    drawGrid();
    select(selected !== null && selected < points.length ? selected : null);
  }

  function drawGrid() {
    const formatTime = to - from > DAY_LABELS_ABOVE_MS ? formatDay : formatClock;
    fill(
      grid,
      [0, 0.5, 1].map((share) => [
        s("line", { class: "axis", x1: left, x2: width - RIGHT, y1: y(top * share), y2: y(top * share) }),
        s("text", { x: left - 8, y: y(top * share) + 4, "text-anchor": "end" }, format(top * share)),
      ]),
      [0, 0.25, 0.5, 0.75, 1].map((share) => {
        const anchor = share === 0 ? "start" : share === 1 ? "end" : "middle";
        const text = formatTime(new Date(from + share * (to - from)));
        return s("text", { x: left + share * plotWidth, y: HEIGHT - 5, "text-anchor": anchor }, text);
      }),
    );
  }

  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = from + ((((event.clientX - box.left) / box.width) * width - left) / plotWidth) * (to - from);
    /** @type {number | null} */
    let nearest = null;
    points.forEach((point, index) => {
      if (nearest === null || Math.abs(point.at - at) < Math.abs(points[nearest].at - at)) nearest = index;
    });
    select(nearest);
  });
  svg.addEventListener("pointerleave", () => select(null));
  svg.addEventListener("blur", () => select(null));
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !points.length) return;
    select(Math.min(points.length - 1, Math.max(0, (selected ?? points.length) + step)));
    event.preventDefault();
  });
  return { node: h("div", {}, svg, legend), show };
}

/** @typedef {{ at: number, value: number, base: number }} Measured */

/**
 * Runs of consecutive points that have a value.
 * @template {{ at: number }} Point
 * @param {Point[]} points
 * @param {(point: Point) => number | null} valueOf
 * @param {(point: Point) => number | null} baseOf
 */
function withoutGaps(points, valueOf, baseOf) {
  /** @type {Measured[][]} */
  const runs = [];
  let open = false;
  for (const point of points) {
    const value = valueOf(point);
    if (value !== null) {
      if (!open) runs.push([]);
      runs[runs.length - 1].push({ at: point.at, value, base: baseOf(point) ?? 0 });
    }
    open = value !== null;
  }
  return runs;
}

/** The next round number whose half is short. @param {number} value */
function roundUp(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.2, 1.6, 2, 3, 4, 5, 6, 8].map((factor) => factor * power).find((rounded) => rounded >= value) ??
    10 * power;
}
