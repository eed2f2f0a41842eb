// Tables that become cards on a narrow screen. Rows are kept where nothing changed.
import { h, keyed } from "./dom.js";

// columns: [{name, label, class, cell(item)}]
export function table(columns, { label } = {}) {
  const body = h("tbody");
  const head = h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col", class: column.class }, column.head ?? column.label))));
  const node = h("div", { class: "table-wrap", tabindex: "0", role: "region", "aria-label": label },
    h("table", { class: "cards" }, head, body));
  const row = (item) => h("tr", {}, columns.map((column) => {
    const cell = h("div", { class: "cell" }, column.cell(item));
    return h("td", { class: `${column.class ?? ""}${cell.childNodes.length ? "" : " blank"}`, "data-label": column.label }, cell);
  }));
  return { node, body, show: (items, keyOf) => keyed(body, items, keyOf, row) };
}

export const facts = (entries) => h("dl", { class: "facts" }, entries.filter(Boolean)
  .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value ?? "–")]));
