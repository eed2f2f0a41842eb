// Lines over time. Drawn once, then only moved: nothing flickers when new points come in.
import { fill, h, s } from "./dom.js";
import { clockTime, dayTime } from "./time.js";

const WIDE = 640, TALL = 190, LEFT = 52, BOTTOM = 22, TOP = 10;

// series: [{name, tone, value(point)}]; show(points, from, to): points have `at` in milliseconds, in order.
export function chart({ label, series, format }) {
  const lines = series.map((one) => ({ ...one, area: s("path", { class: `area fill-${one.tone}` }), line: s("path", { class: `line line-${one.tone}` }) }));
  const grid = s("g"), cursor = s("line", { class: "cursor", y1: TOP, y2: TALL - BOTTOM, visibility: "hidden" });
  const svg = s("svg", { class: "chart", viewBox: `0 0 ${WIDE} ${TALL}`, role: "img", "aria-label": label, tabindex: "0" },
    grid, lines.map((one) => [one.area, one.line]), cursor);
  const values = lines.map((one) => h("span", {}, h("i", { class: one.tone }), h("span"), ""));
  const when = h("span", { class: "soft" });
  const legend = h("div", { class: "legend" }, values, when);
  let points = [], from = 0, to = 1, top = 1, at = null;

  const x = (time) => LEFT + ((time - from) / (to - from || 1)) * (WIDE - LEFT - 6);
  const y = (value) => TALL - BOTTOM - (value / top) * (TALL - BOTTOM - TOP);
  function read(index) {
    at = index;
    const point = points[index ?? points.length - 1];
    lines.forEach((one, number) => { values[number].children[1].textContent = `${one.name} ${point ? format(one.value(point)) : "–"}`; });
    when.textContent = point && index !== null ? clockTime(new Date(point.at)) : "";
    cursor.setAttribute("visibility", index === null ? "hidden" : "visible");
    if (point) { cursor.setAttribute("x1", x(point.at)); cursor.setAttribute("x2", x(point.at)); }
  }
  function show(next, start, end) {
    [points, from, to] = [next, start, end];
    top = nice(Math.max(0, ...points.flatMap((point) => lines.map((one) => one.value(point) ?? 0))));
    for (const one of lines) {
      const runs = unbroken(points, one.value);
      const path = (run) => run.map((point, index) => `${index ? "L" : "M"}${x(point.at).toFixed(1)},${y(one.value(point)).toFixed(1)}`).join("");
      one.line.setAttribute("d", runs.map((run) => path(run) + (run.length === 1 ? "h.01" : "")).join(""));
      one.area.setAttribute("d", runs.filter((run) => run.length > 1).map((run) => `${path(run)}L${x(run.at(-1).at).toFixed(1)},${y(0)}L${x(run[0].at).toFixed(1)},${y(0)}Z`).join(""));
    }
    const long = to - from > 36 * 3_600_000;
    fill(grid, [0, 0.5, 1].map((share) => [
      s("line", { class: "axis", x1: LEFT, x2: WIDE - 6, y1: y(top * share), y2: y(top * share) }),
      s("text", { x: LEFT - 8, y: y(top * share) + 4, "text-anchor": "end" }, format(top * share))]),
      [0, 0.25, 0.5, 0.75, 1].map((share) => s("text", {
        x: LEFT + share * (WIDE - LEFT - 6), y: TALL - 5, "text-anchor": share === 0 ? "start" : share === 1 ? "end" : "middle",
      }, (long ? dayTime : clockTime)(new Date(from + share * (to - from))))));
    read(at !== null && at < points.length ? at : null);
  }
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const time = from + (((event.clientX - box.left) / box.width) * WIDE - LEFT) / (WIDE - LEFT - 6) * (to - from);
    let best = null;
    points.forEach((point, index) => { if (best === null || Math.abs(point.at - time) < Math.abs(points[best].at - time)) best = index; });
    read(best);
  });
  svg.addEventListener("pointerleave", () => read(null));
  svg.addEventListener("blur", () => read(null));
  svg.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by || !points.length) return;
    read(Math.min(points.length - 1, Math.max(0, (at ?? points.length) + by)));
    event.preventDefault();
  });
  return { node: h("div", {}, svg, legend), show };
}

// Points that follow each other without a gap; where nothing is known no line is drawn, and a lone point is a dot.
function unbroken(points, value) {
  const runs = [];
  let open = false;
  for (const point of points) {
    const here = value(point) !== null;
    if (here && open) runs.at(-1).push(point);
    else if (here) runs.push([point]);
    open = here;
  }
  return runs;
}

function nice(value) {
  if (value <= 0) return 1;
  const size = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((one) => one * size).find((one) => one >= value);
}

// Shares of a whole as one bar.
export function shares(parts) {
  const whole = parts.reduce((sum, [, amount]) => sum + amount, 0) || 1;
  let x = 0;
  return s("svg", { viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" }, parts.map(([tone, amount]) => {
    const width = (amount / whole) * 100;
    const one = s("rect", { class: `fill-${tone}`, x, y: 0, width, height: 4 });
    x += width;
    return one;
  }));
}
