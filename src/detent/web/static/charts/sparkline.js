import { s } from "../core/dom.js";

/**
 * Small bars without axes, in one path per color: hundreds of them are drawn at once. `label` is read out instead.
 * @param {number[]} values
 * @param {string} label
 * @param {string} [tone]
 */
export function sparkline(values, label, tone = "bad") {
  const top = Math.max(1, ...values);
  let bars = "", gaps = "";
  for (const [index, value] of values.entries()) {
    const height = value ? Math.max(1.5, (value / top) * 20) : 0.5;
    const bar = `M${index * 4} 20v${-height}h3v${height}z`;
    if (value) bars += bar;
    else gaps += bar;
  }
  const paths = [
    bars && s("path", { class: `fill-${tone}`, d: bars }),
    gaps && s("path", { class: "fill-neutral", d: gaps }),
  ];
  const viewBox = `0 0 ${values.length * 4} 20`;
  return s("svg", { class: "sparkline", viewBox, role: "img", "aria-label": label }, s("title", {}, label), paths);
}
