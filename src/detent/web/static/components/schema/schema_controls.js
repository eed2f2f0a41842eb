// The control of one scalar part of a payload: text, number, date, choice; or a JSON editor for everything else.

/** @import { Control, Part, Props } from "../../types.d.ts" */

import { h } from "../../core/dom.js";
import { parseJson, rawDigits } from "../../core/json.js";
import { t } from "../../core/words.js";
import { choicesOf, isObject, numberProblem, sameJson, textProblem } from "./json_schema.js";

/** @param {string} iso @returns {string} the local time as an input of type datetime-local holds it */
function localTime(iso) {
  const date = new Date(iso);
  const local = new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString();
  return local.slice(0, date.getMilliseconds() ? 23 : 19);
}

/**
 * The control of a part that is no choice; `onEdit` is called when the viewer changes it. `problem` is empty if the value is valid.
 * @param {Part} part
 * @param {unknown} value undefined: none yet
 * @param {Props} props of the element
 * @param {() => void} onEdit
 * @returns {Control}
 */
export function controlOf(part, value, props, onEdit) {
  const on = { input: onEdit, change: onEdit };
  if (part.kind === "json") return jsonControl(part, value, { ...props, on });
  if (part.kind === "integer" || part.kind === "number") return numberControl(part, value, { ...props, on });
  return textControl(part, value, { ...props, on });
}

/**
 * A list of values, before them what the part may hold instead of one.
 * @param {Part} part
 * @param {unknown} value
 * @param {[string, string][]} modes absent and null, with their texts
 * @param {string} first of these modes, or "value"
 * @param {Props} props
 * @returns {Control}
 */
export function choiceControl({ kind, schema }, value, modes, first, props) {
  const choices = kind === "boolean" ? [true, false] : choicesOf(schema);
  const chosen = first === "value" ? choices.findIndex((choice) => sameJson(choice, value)) : -1;
  const empty = modes.map(([name, text]) => h("option", { value: name, selected: name === first }, text));
  const options = choices.map((choice, index) =>
    h("option", { value: String(index), selected: index === chosen }, choiceText(choice))
  );
  const blank = first === "value" && chosen < 0 && h("option", { value: "", selected: true }, "–");
  const node = h("select", props, blank, empty, options);
  return {
    node,
    isBlank: () => node.value === "",
    value: () => node.value === "absent" ? undefined : node.value === "null" ? null : choices[Number(node.value)],
    problem: () => "",
  };
}

/** @param {unknown} choice */
const choiceText = (choice) => typeof choice === "string" ? choice : JSON.stringify(choice);

/** @param {Part} part @param {unknown} value @param {Props} props @returns {Control} */
function numberControl(part, value, props) {
  const given = value === undefined || value === null ? "" : rawDigits(value) ?? String(value);
  const mode = part.kind === "integer" ? "numeric" : "decimal";
  const node = h("input", { type: "text", inputmode: mode, autocomplete: "off", ...props, value: given });
  const text = () => node.value.trim();
  return {
    node,
    isBlank: () => text() === "",
    value: () => (INTEGER.test(text()) ? parseJson(text().replace(/^(-?)0+(?=\d)/, "$1")) : Number(text())),
    problem: () => numberProblem(part, text()),
  };
}

const INTEGER = /^-?\d+$/;
const TYPES = { date: "date", "date-time": "datetime-local", text: "text" };

/** @param {Part} part @param {unknown} value @param {Props} props @returns {Control} */
function textControl({ kind, schema }, value, props) {
  const given = typeof value === "string" ? value : undefined;
  const shown = given !== undefined && kind === "date-time" ? localTime(given) : given ?? "";
  const type = TYPES[/** @type {keyof typeof TYPES} */ (kind)];
  const step = kind === "date-time" ? "any" : null;
  const node = kind === "long-text"
    ? h("textarea", { class: "prose", ...props, value: shown })
    : h("input", { type, step, autocomplete: "off", ...props, value: shown });
  const first = node.value;
  // A value that nobody has touched is sent as it was, with its time zone and precision.
  const isUnchanged = () => given !== undefined && node.value === first;
  return {
    node,
    isBlank: () => node.value === "" && !isUnchanged(),
    value: () => {
      if (isUnchanged()) return given;
      return kind === "date-time" ? new Date(node.value).toISOString() : node.value;
    },
    problem: () => {
      if (!(node instanceof HTMLTextAreaElement) && node.validity.badInput) return t("enqueue.problem.date");
      return textProblem(schema, kind === "date-time" ? "" : node.value);
    },
  };
}

/** @param {Part} part @param {unknown} value @param {Props} props @returns {Control} */
function jsonControl({ schema, nullable }, value, props) {
  const text = value === undefined ? "" : JSON.stringify(value, null, 2);
  const rows = Math.min(12, Math.max(2, text.split("\n").length));
  const node = h("textarea", {
    class: "json",
    spellcheck: "false",
    autocapitalize: "off",
    rows,
    ...props,
    value: text,
  });
  return {
    node,
    isBlank: () => node.value.trim() === "",
    value: () => parseJson(node.value),
    problem: () => {
      try {
        const parsed = parseJson(node.value);
        const fits = schema.type !== "object" || isObject(parsed) || (nullable && parsed === null);
        return fits ? "" : t("enqueue.problem.object");
      } catch (error) {
        return t("editor.invalid", { error: error instanceof Error ? error.message : String(error) });
      }
    },
  };
}
