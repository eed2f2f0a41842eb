// A button that opens a small panel below it; Escape or a click elsewhere closes it.

/** @import { Child } from "../types.d.ts" */

import { fill, h } from "../core/dom.js";

/**
 * @param {string} label
 * @param {() => Child} content drawn whenever it opens
 * @param {string} [id]
 */
export function dropDown(label, content, id) {
  const panel = h("div", { class: "drop-panel" });
  const summary = h("summary", { class: "button" }, label);
  const node = h("details", { class: "drop-down", id }, summary, panel);
  const close = () => node.removeAttribute("open");
  node.addEventListener("toggle", () => {
    if (!node.open) return;
    const { left, right } = summary.getBoundingClientRect();
    panel.classList.toggle("at-right", left + right > innerWidth);
    fill(panel, content());
  });
  node.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !node.open) return;
    close();
    summary.focus();
    event.stopPropagation();
  });
  document.addEventListener("click", ({ target }) => {
    if (node.open && target instanceof Node && target.isConnected && !node.contains(target)) close();
  });
  return { node, close, redraw: () => void fill(panel, content()) };
}
