import { s } from "../core/dom.js";

/**
 * Small bars without axes. `label` is read out instead.
 * @param {number[]} values
 * @param {string} label
 * @param {string} [tone]
 */
export function sparkline(values, label, tone = "bad") {
  const top = Math.max(1, ...values);
  const bars = values.map((value, index) => {
    const height = value ? Math.max(1.5, (value / top) * 20) : 0.5;
    const fill = value ? `fill-${tone}` : "fill-neutral";
    return s("rect", { class: fill, x: index * 4, y: 20 - height, width: 3, height });
  });
  const viewBox = `0 0 ${values.length * 4} 20`;
  return s("svg", { class: "sparkline", viewBox, role: "img", "aria-label": label }, s("title", {}, label), bars);
}
