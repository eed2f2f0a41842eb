// JSON typed by people: checked while they type, with the place of the first mistake.
import { h } from "./dom.js";
import { parse } from "./json.js";
import { t } from "./words.js";

let count = 0;

export function editor({ label, value, object = false }) {
  const first = JSON.stringify(value, null, 2);
  const id = `editor-${(count += 1)}`;
  const trouble = h("p", { class: "trouble small", id, role: "status" });
  const area = h("textarea", { class: "json", spellcheck: "false", autocapitalize: "off", "aria-describedby": id, rows: Math.min(14, Math.max(4, first.split("\n").length + 1)), value: first,
    on: { input: () => check(), keydown: (event) => {
      if (event.key !== "Tab" || event.shiftKey || !event.ctrlKey) return;
      event.preventDefault();
      area.setRangeText("  ", area.selectionStart, area.selectionEnd, "end");
    } } });
  const node = h("label", { class: "field" }, label, area, trouble);

  function check() {
    let problem = "";
    try {
      const read = parse(area.value);
      if (object && (read === null || typeof read !== "object" || Array.isArray(read))) problem = t("editor.object");
    } catch (error) {
      problem = t("editor.invalid", { why: error.message });
    }
    trouble.textContent = problem;
    area.setCustomValidity(problem);
    area.setAttribute("aria-invalid", String(problem !== ""));
    return problem === "";
  }
  return { node, check, changed: () => area.value.trim() !== first, value: () => { if (!check()) throw new Error(trouble.textContent); return parse(area.value); } };
}
