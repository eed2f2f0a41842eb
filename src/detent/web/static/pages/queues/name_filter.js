import { h } from "../../core/dom.js";
import { t } from "../../core/words.js";

/**
 * An input that keeps the rows whose name contains its text.
 * @param {() => void} onChange
 */
export function nameFilter(onChange) {
  const input = h("input", {
    id: "filter",
    type: "search",
    placeholder: t("queues.filter"),
    "aria-label": t("queues.filter"),
    on: { input: onChange },
  });
  /** @param {string} name */
  const matches = (name) => name.toLowerCase().includes(input.value.trim().toLowerCase());
  return { node: input, matches };
}
