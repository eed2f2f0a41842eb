// Limits on what runs at once, where the server tells of them.
import { fill, h } from "./dom.js";
import { t } from "./words.js";
import { table } from "./table.js";

export function limitsCard(room, limits) {
  if (!limits) return void fill(room);
  const rows = limits.limits ?? [];
  const names = [...new Set(rows.flatMap((one) => Object.keys(one)))];
  const view = table(names.map((name) => ({ label: name.replaceAll("_", " "), cell: (one) => (one[name] === null ? "–" : String(one[name])) })), { label: t("col.limit") });
  view.show(rows, (one) => JSON.stringify(one));
  fill(room, rows.length > 0 && h("section", { class: "card" }, h("h2", {}, t("queues.limits")), view.node));
}
