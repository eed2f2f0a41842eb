// JSON as a tree that can be folded and copied.

import { h } from "../core/dom.js";
import { rawDigits } from "../core/json.js";
import { t } from "../core/words.js";
import { button, cardWithHead, copyButton } from "./elements.js";

const OPEN_DEPTH = 2, OPEN_ITEMS = 40, SHOWN_ITEMS = 200;
/** A longer text is scrolled in a box, so that the page below it can be reached. */
const LONGEST_TEXT = 2000;

/** @param {unknown} value */
export const jsonTree = (value) => h("div", { class: "tree" }, h("ul", {}, line(null, value, 0)));

/**
 * @param {string | number | null} name
 * @param {unknown} value
 * @param {number} depth
 * @returns {HTMLElement}
 */
function line(name, value, depth) {
  const label = name === null ? null : [h("span", { class: "key" }, String(name)), ": "];
  if (value === null || typeof value !== "object" || rawDigits(value) !== null) return h("li", {}, label, leaf(value));
  /** @type {[string | number, unknown][]} */
  const entries = Array.isArray(value) ? value.map((item, index) => [index, item]) : Object.entries(value);
  const [left, right] = Array.isArray(value) ? "[]" : "{}";
  if (!entries.length) return h("li", {}, label, left + right);
  return h("li", {}, branch(label, entries, left, right, depth));
}

/**
 * A foldable object or array; its items are created when it is opened first.
 * @param {(Node | string)[] | null} label
 * @param {[string | number, unknown][]} entries
 * @param {string} left
 * @param {string} right
 * @param {number} depth
 */
function branch(label, entries, left, right, depth) {
  const inner = h("ul");
  let shown = 0;
  const showMore = () => {
    inner.append(...entries.slice(shown, shown + SHOWN_ITEMS).map(([key, item]) => line(key, item, depth + 1)));
    shown += SHOWN_ITEMS;
    if (shown >= entries.length) return;
    const moreLine = h("li");
    const onClick = () => {
      moreLine.remove();
      showMore();
    };
    moreLine.append(button(t("tree.more", { n: entries.length - shown }), onClick, { class: "tiny" }));
    inner.append(moreLine);
  };
  const count = h("span", { class: "soft" }, `${left} ${entries.length} ${right}`);
  const details = h("details", {}, h("summary", {}, label, count), inner);
  const onToggle = () => {
    if (details.open && !shown) showMore();
  };
  details.addEventListener("toggle", onToggle);
  details.open = depth < OPEN_DEPTH && entries.length <= OPEN_ITEMS;
  onToggle();
  return details;
}

/** @param {unknown} value */
function leaf(value) {
  if (typeof value === "string") {
    const text = JSON.stringify(value);
    if (text.length <= LONGEST_TEXT) return h("span", { class: "text" }, text);
    return h("pre", { class: "text trace", tabindex: "0" }, text);
  }
  const digits = rawDigits(value);
  if (typeof value === "number" || digits !== null) return h("span", { class: "num" }, digits ?? String(value));
  return h("span", { class: "literal" }, String(value));
}

/**
 * @param {string} title
 * @param {unknown} value
 * @param {boolean} hidden the viewer may not see payloads
 */
export function jsonCard(title, value, hidden) {
  const isEmpty = value === null || value === undefined;
  const copy = !hidden && !isEmpty && copyButton(() => JSON.stringify(value, null, 2));
  if (hidden || isEmpty) {
    return cardWithHead(title, copy, h("p", { class: "soft" }, t(hidden ? "payload.hidden" : "payload.none")));
  }
  return cardWithHead(title, copy, jsonTree(value));
}
