// JSON as a tree one can fold and copy.
import { copy, h } from "./dom.js";
import { raw } from "./json.js";
import { t } from "./words.js";
import { toast } from "./dialog.js";

const OPEN_ITEMS = 40, SHOWN_ITEMS = 200;

export function tree(value) {
  return h("div", { class: "tree" }, h("ul", {}, line(null, value, 0)));
}

function line(name, value, depth) {
  const key = name === null ? null : [h("span", { class: "key" }, String(name)), ": "];
  if (value === null || typeof value !== "object" || raw(value) !== null) return h("li", {}, key, leaf(value));
  const entries = Array.isArray(value) ? value.map((one, index) => [index, one]) : Object.entries(value);
  const [left, right] = Array.isArray(value) ? "[]" : "{}";
  if (!entries.length) return h("li", {}, key, left + right);
  const inner = h("ul");
  let from = 0;
  const more = () => {
    inner.append(...entries.slice(from, from + SHOWN_ITEMS).map(([key, one]) => line(key, one, depth + 1)));
    from += SHOWN_ITEMS;
    if (from < entries.length) {
      const button = h("button", { type: "button", class: "tiny", on: { click: () => { button.parentNode.remove(); more(); } } },
        t("tree.more", { n: entries.length - from }));
      inner.append(h("li", {}, button));
    }
  };
  const details = h("details", {}, h("summary", {}, key, h("span", { class: "soft" }, `${left} ${entries.length} ${right}`)), inner);
  const open = () => { if (details.open && !from) more(); };
  details.addEventListener("toggle", open);
  details.open = depth < 2 && entries.length <= OPEN_ITEMS;
  open();
  return h("li", {}, details);
}

function leaf(value) {
  if (typeof value === "string") return h("span", { class: "text" }, JSON.stringify(value));
  if (typeof value === "number" || raw(value) !== null) return h("span", { class: "num" }, raw(value) ?? String(value));
  return h("span", { class: "word" }, String(value));
}

export function copyButton(text) {
  return h("button", {
    type: "button", class: "tiny",
    on: { click: async () => toast(t((await copy(text())) ? "copied" : "copied.not")) },
  }, t("act.copy"));
}

export function jsonCard(title, value, hidden) {
  const shown = value === null || value === undefined;
  return h("section", { class: "card" },
    h("div", { class: "head" }, h("h2", {}, title), !hidden && !shown && copyButton(() => JSON.stringify(value, null, 2))),
    hidden ? h("p", { class: "soft" }, t("payload.hidden")) : shown ? h("p", { class: "soft" }, t("payload.none")) : tree(value));
}
