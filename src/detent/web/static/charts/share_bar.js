import { s } from "../core/dom.js";

/**
 * One bar whose parts are shares of the whole.
 * @param {[tone: string, amount: number][]} parts
 */
export function shareBar(parts) {
  const whole = parts.reduce((sum, [, amount]) => sum + amount, 0) || 1;
  let x = 0;
  const rects = parts.map(([tone, amount]) => {
    const width = (amount / whole) * 100;
    const rect = s("rect", { class: `fill-${tone}`, x, y: 0, width, height: 4 });
    x += width;
    return rect;
  });
  return s("svg", { viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" }, rects);
}
