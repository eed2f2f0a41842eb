// A text area for JSON that is checked while it is edited.

/** @import { JsonEditor } from "../types.d.ts" */

import { h } from "../core/dom.js";
import { parseJson } from "../core/json.js";
import { t } from "../core/words.js";

let editors = 0;

/**
 * `value` throws if the text is invalid; `objectOnly` accepts nothing but an object.
 * @param {{ label: string, value: unknown, objectOnly?: boolean }} options
 * @returns {JsonEditor}
 */
export function jsonEditor({ label, value, objectOnly = false }) {
  const original = JSON.stringify(value, null, 2);
  const id = `editor-${(editors += 1)}`;
  const errorLine = h("p", { class: "error small", id, role: "status" });
  const area = h("textarea", {
    class: "json",
    spellcheck: "false",
    autocapitalize: "off",
    "aria-describedby": id,
    rows: Math.min(14, Math.max(4, original.split("\n").length + 1)),
    value: original,
    on: { input: () => check(), keydown: indent },
  });
  area.setSelectionRange(0, 0); // the focus would scroll to the end of a long text

  /** Ctrl+Tab inserts two spaces; Tab alone moves the focus. @param {KeyboardEvent} event */
  function indent(event) {
    if (event.key !== "Tab" || event.shiftKey || !event.ctrlKey) return;
    event.preventDefault();
    area.setRangeText("  ", area.selectionStart, area.selectionEnd, "end");
  }

  function errorMessage() {
    try {
      const parsed = parseJson(area.value);
      const isObject = parsed !== null && typeof parsed === "object" && !Array.isArray(parsed);
      return objectOnly && !isObject ? t("editor.object") : "";
    } catch (error) {
      return t("editor.invalid", { error: error instanceof Error ? error.message : String(error) });
    }
  }

  function check() {
    const message = errorMessage();
    errorLine.textContent = message;
    area.setCustomValidity(message);
    area.setAttribute("aria-invalid", String(message !== ""));
    return message;
  }

  return {
    node: h("label", { class: "field" }, label, area, errorLine),
    changed: () => area.value.trim() !== original,
    value: () => {
      const message = check();
      if (message) throw new Error(message);
      return parseJson(area.value);
    },
  };
}
