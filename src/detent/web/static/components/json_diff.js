// Two JSON values compared: every path where they differ, with both values.

import { h } from "../core/dom.js";
import { rawDigits } from "../core/json.js";
import { t } from "../core/words.js";

const MAX_CHANGES = 200, LONGEST_VALUE = 400, SHOWN_BEFORE = 40;

/** @typedef {{ path: string, kind: "added" | "removed" | "changed", before: unknown, after: unknown }} JsonChange */

/**
 * @param {unknown} before
 * @param {unknown} after
 * @returns {JsonChange[]}
 */
function jsonChanges(before, after) {
  /** @type {JsonChange[]} */
  const changes = [];
  compare(before, after, "", changes);
  return changes;
}

/** @param {unknown} value */
const isBranch = (value) => typeof value === "object" && value !== null && rawDigits(value) === null;

/**
 * @param {unknown} before
 * @param {unknown} after
 * @param {string} path
 * @param {JsonChange[]} changes
 */
function compare(before, after, path, changes) {
  if (JSON.stringify(before) === JSON.stringify(after)) return;
  if (!isBranch(before) || !isBranch(after) || Array.isArray(before) !== Array.isArray(after)) {
    const kind = before === undefined ? "added" : after === undefined ? "removed" : "changed";
    changes.push({ path: path || "·", kind, before, after });
    return;
  }
  const left = /** @type {Record<string, unknown>} */ (before), right = /** @type {Record<string, unknown>} */ (after);
  for (const name of new Set([...Object.keys(left), ...Object.keys(right)])) {
    const step = Array.isArray(before) ? `[${name}]` : `${path ? "." : ""}${name}`;
    compare(left[name], right[name], `${path}${step}`, changes);
  }
}

/**
 * Both values as text; of long ones the part around their first difference.
 * @param {unknown} before
 * @param {unknown} after
 */
function valueTexts(before, after) {
  const texts = [before, after].map((value) => (value === undefined ? "–" : JSON.stringify(value)));
  let same = 0;
  while (same < texts[0].length && texts[0][same] === texts[1][same]) same += 1;
  const isLong = texts.some((text) => text.length > LONGEST_VALUE);
  const start = isLong ? Math.max(0, same - SHOWN_BEFORE) : 0, end = start + LONGEST_VALUE;
  return texts.map((text) => `${start ? "…" : ""}${text.slice(start, end)}${text.length > end ? "…" : ""}`);
}

/**
 * A table of the differences, or a sentence that there are none.
 * @param {unknown} before
 * @param {unknown} after
 * @param {{ before: string, after: string }} titles
 */
export function jsonDiff(before, after, titles) {
  const changes = jsonChanges(before, after);
  if (!changes.length) return h("p", { class: "soft" }, t("diff.none"));
  const rows = changes.slice(0, MAX_CHANGES).map(({ path, kind, before, after }) => {
    const [textBefore, textAfter] = valueTexts(before, after);
    return h(
      "tr",
      { class: kind },
      h(
        "th",
        { scope: "row" },
        h("code", { class: "break" }, path),
        h("div", { class: "small soft" }, t(`diff.${kind}`)),
      ),
      h("td", { class: "before", "data-label": titles.before }, h("code", { class: "break" }, textBefore)),
      h("td", { class: "after", "data-label": titles.after }, h("code", { class: "break" }, textAfter)),
    );
  });
  const heads = [t("diff.path"), titles.before, titles.after].map((text) => h("th", { scope: "col" }, text));
  return h(
    "div",
    { class: "table-wrap", tabindex: "0", role: "region", "aria-label": t("diff.title") },
    h("table", { class: "diff" }, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows)),
    changes.length > MAX_CHANGES &&
      h("p", { class: "small soft" }, t("diff.more", { n: changes.length - MAX_CHANGES })),
  );
}
