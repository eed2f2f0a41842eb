// Tables that become cards on a narrow screen, and lists of names and values.

/** @import { Child, Column, Table } from "../types.d.ts" */

import { fill, h, updateKeyed } from "../core/dom.js";
import { t } from "../core/words.js";
import { button } from "./elements.js";

// A table of hundreds of rows takes seconds to draw, and again with each update of its numbers.
const FIRST_ROWS = 50, MORE_ROWS = 200;

/**
 * A table; rows whose item is unchanged are kept when it is shown again. A falsy column is left out. Of many items the
 * first ones are shown, and a button for more.
 * @template Item
 * @param {string} label
 * @param {(Column<Item> | false)[]} optionalColumns
 * @param {number} [firstRows] Infinity for a list that has pages of its own
 * @returns {Table<Item>}
 */
export function table(label, optionalColumns, firstRows = FIRST_ROWS) {
  const columns = optionalColumns.filter((column) => column !== false);
  const body = h("tbody");
  const heads = columns.map((column) => h("th", { scope: "col", class: column.class }, column.head ?? column.label));
  const more = h("div", { class: "table-more", hidden: true });
  const node = h(
    "div",
    { class: "table-wrap", tabindex: "0", role: "region", "aria-label": label },
    h("table", { class: "cards" }, h("thead", {}, h("tr", {}, heads)), body),
    more,
  );
  let most = firstRows;
  /** @type {(item: Item) => HTMLElement} */
  const row = (item) =>
    h(
      "tr",
      {},
      columns.map((column) => {
        const cell = h("div", { class: "cell" }, column.cell(item));
        const blank = cell.childNodes.length ? "" : " blank";
        return h("td", { class: `${column.class ?? ""}${blank}`, "data-label": column.label }, cell);
      }),
    );
  let showAgain = () => {};
  const showMore = () => {
    most += MORE_ROWS;
    showAgain();
  };
  /** @type {Table<Item>["show"]} */
  function show(items, keyOf) {
    showAgain = () => show(items, keyOf);
    updateKeyed(body, items.slice(0, most), keyOf, row);
    const left = Math.max(0, items.length - most);
    more.hidden = !left;
    const create = () => h("div", {}, button(t("job.more-rows", { n: left }), showMore, { class: "tiny" }));
    updateKeyed(more, left ? [left] : [], () => "more", create);
  }
  return { node, body, show };
}

/**
 * Show the items in the table, or `empty` if there are none.
 * @template Item
 * @param {HTMLElement} container
 * @param {Table<Item>} rows
 * @param {Item[]} items
 * @param {(item: Item) => string | number} keyOf
 * @param {() => HTMLElement} empty
 */
export function showRows(container, rows, items, keyOf, empty) {
  if (!items.length) return void fill(container, empty());
  if (rows.node.parentNode !== container) fill(container, rows.node);
  rows.show(items, keyOf);
}

/**
 * A list of names and values. A falsy entry is left out.
 * @param {([Child, Child] | "" | false | null)[]} entries
 */
export const detailsList = (entries) =>
  h(
    "dl",
    { class: "details-list" },
    entries.map((entry) => entry && [h("dt", {}, entry[0]), h("dd", {}, entry[1] ?? "–")]),
  );
