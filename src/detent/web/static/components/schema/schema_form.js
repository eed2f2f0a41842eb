// A form for a JSON value that a schema describes: a field for each part, lists that grow, and a JSON editor for what has
// no control. The value that is read back is the value that was shown, but for what the viewer changed.

/** @import { Control, JsonSchema, Part, SchemaField } from "../../types.d.ts" */

import { fill, h } from "../../core/dom.js";
import { timeZone } from "../../core/time.js";
import { colon, t } from "../../core/words.js";
import { button } from "../elements.js";
import { asJson, fits, isObject, itemsProblem, partOf } from "./json_schema.js";
import { choiceControl, controlOf } from "./schema_controls.js";

/** @typedef {{ part: Part, path: string, label: string, value: unknown, required: boolean }} FieldOptions */

let numbers = 0;
const newId = () => `schema-field-${(numbers += 1)}`;

/**
 * The fields of an object: one for each property, and a JSON editor for other properties.
 * @param {JsonSchema} schema
 * @param {unknown} value
 * @returns {SchemaField}
 */
export const schemaForm = (schema, value) => objectField(partOf(schema, schema), "", isObject(value) ? value : {});

/** @param {string} path @param {string | number} name */
const inside = (path, name) => path ? `${path}.${name}` : String(name);

/**
 * @param {Part} part
 * @param {string} path
 * @param {Record<string, unknown>} value
 * @returns {SchemaField}
 */
function objectField({ schema, root, depth }, path, value) {
  const properties = Object.entries(schema.properties ?? {});
  const required = new Set(schema.required ?? []);
  /** @type {[string, SchemaField][]} */
  const fields = properties.map(([name, property]) => {
    const part = partOf(property, root, depth + 1);
    const label = part.schema.title && part.schema.title !== titleOf(name) ? `${part.schema.title} (${name})` : name;
    const options = { part, path: inside(path, name), label, value: value[name], required: required.has(name) };
    return [name, fieldOf(options)];
  });
  const others = Object.fromEntries(Object.entries(value).filter(([name]) => !(name in (schema.properties ?? {}))));
  const takesOthers = schema.additionalProperties !== false && schema.additionalProperties !== undefined;
  /** @type {SchemaField | null} */
  const rest = takesOthers || Object.keys(others).length
    ? fieldOf({
      part: {
        schema: { type: "object", description: t("enqueue.others.more") },
        root,
        kind: "json",
        nullable: false,
        depth: depth + 1,
      },
      path: inside(path, "*"),
      label: t("enqueue.others"),
      value: Object.keys(others).length ? others : undefined,
      required: false,
    })
    : null;
  const all = [...fields.map(([, field]) => field), ...(rest ? [rest] : [])];
  return {
    node: h("div", { class: "schema-object" }, all.map(({ node }) => node)),
    read: () => {
      const entries = fields.map(([name, field]) => /** @type {[string, unknown]} */ ([name, field.read()]));
      const more = rest?.read();
      return { ...Object.fromEntries(entries.filter(([, one]) => one !== undefined)), ...(isObject(more) ? more : {}) };
    },
    check: () => all.filter((field) => !field.check()).length === 0,
    showProblem: (at, message) =>
      all.some((field) => field.showProblem(at, message)) ||
      (rest !== null && isDirectlyIn(at, path) && rest.showProblem(inside(path, "*"), message)),
  };
}

/** The title that pydantic derives from a name. @param {string} name */
const titleOf = (name) => name.replace(/_/g, " ").replace(/\b[a-z]/g, (letter) => letter.toUpperCase());

/** @param {string} at @param {string} path */
const isDirectlyIn = (at, path) =>
  path ? at.startsWith(`${path}.`) && !at.slice(path.length + 1).includes(".") : !at.includes(".");

/** @param {FieldOptions} options @returns {SchemaField} */
function fieldOf(options) {
  const { part, value } = options;
  const first = part.schema.default ?? part.schema.const;
  const shown = value === undefined && options.required ? first : value;
  const shownPart = fits(part, shown) ? part : asJson(part);
  const own = { ...options, part: shownPart, value: shown };
  if (shownPart.kind === "object" || shownPart.kind === "array") return groupField(own);
  return controlField(own);
}

/** @param {unknown} value */
const defaultText = (value) =>
  value === null ? t("list.none") : typeof value === "string" && value ? value : JSON.stringify(value);

/**
 * What a field may hold besides a value, with its text: that it is left out, or null.
 * @param {FieldOptions} options
 * @returns {[string, string][]}
 */
function emptyModes({ part, required }) {
  const given = "default" in part.schema ? defaultText(part.schema.default) : null;
  const isShort = given !== null && given.length < 40;
  const absent = isShort ? t("enqueue.mode.default", { value: given }) : t("enqueue.mode.absent");
  /** @type {[string, string][]} */
  const modes = [["absent", absent], ["null", t("enqueue.mode.null")]];
  return modes.filter(([name]) => (name === "absent" ? !required : part.nullable));
}

/** @param {FieldOptions} options @returns {string} value, absent or null */
function firstMode({ part, value, required }) {
  if (value === undefined && !required) return "absent";
  return value === null && part.nullable ? "null" : "value";
}

/** @param {string} mode @param {() => unknown} read */
const readMode = (mode, read) => mode === "value" ? read() : mode === "null" ? null : undefined;

/**
 * Chooses between a value and the empty modes; null if there are none.
 * @param {FieldOptions} options
 * @param {() => void} onChange
 */
function modeSelect(options, onChange) {
  const modes = emptyModes(options), first = firstMode(options);
  if (!modes.length) return null;
  return h(
    "select",
    { class: "mode", "aria-label": t("enqueue.mode", { name: options.label }), on: { change: onChange } },
    [["value", t("enqueue.mode.value")], ...modes].map(([name, text]) =>
      h("option", { value: name, selected: name === first }, text)
    ),
  );
}

/** @param {FieldOptions} options @returns {SchemaField} */
function controlField(options) {
  const { part, path, label, value, required } = options;
  const id = newId(), errorId = `${id}-error`, hintId = `${id}-hint`;
  const errorLine = h("p", { class: "error small", id: errorId, role: "status" });
  const hint = hintOf(part);
  const described = hint ? `${hintId} ${errorId}` : errorId;
  const props = { id, "data-path": path, "aria-describedby": described, "aria-required": String(required) };
  const clear = () => showError(control, errorLine, "");
  const isChoice = part.kind === "choice" || part.kind === "boolean";
  const mode = isChoice ? null : modeSelect(options, clear);
  const onEdit = () => {
    if (mode) mode.value = "value";
    clear();
  };
  /** @type {Control} */
  const control = isChoice
    ? choiceControl(part, value, emptyModes(options), firstMode(options), { ...props, on: { change: clear } })
    : controlOf(part, value === null ? undefined : value, props, onEdit);
  const currentMode = () => mode?.value ?? "value";
  const mayBeBlank = (part.kind === "text" || part.kind === "long-text") && !required;
  const problem = () => {
    if (currentMode() !== "value") return "";
    return control.isBlank() && !mayBeBlank ? t("enqueue.problem.required") : control.problem();
  };
  return {
    node: h(
      "div",
      { class: "schema-field" },
      fieldLabel(id, label, required),
      h("div", { class: "schema-control" }, control.node, mode),
      hint && h("p", { class: "soft small", id: hintId }, hint),
      errorLine,
    ),
    read: () => readMode(currentMode(), control.value),
    check: () => {
      showError(control, errorLine, problem());
      return !errorLine.textContent;
    },
    showProblem: (at, message) => {
      const isMine = at === path || (part.kind === "json" && at.startsWith(`${path}.`));
      if (isMine) showError(control, errorLine, at === path ? message : `${at}${colon}${message}`);
      return isMine;
    },
  };
}

/** @param {Control} control @param {HTMLElement} errorLine @param {string} message */
function showError(control, errorLine, message) {
  errorLine.textContent = message;
  control.node.setAttribute("aria-invalid", String(message !== ""));
}

/** @param {string} id @param {string} label @param {boolean} required */
const fieldLabel = (id, label, required) =>
  h("label", { for: id }, label, required && h("span", { class: "required", "aria-hidden": "true" }, " *"));

/** @param {Part} part */
function hintOf({ kind, schema }) {
  const zone = kind === "date-time" ? t("enqueue.zone", { zone: timeZone }) : "";
  const json = kind === "json" ? t("enqueue.json") : "";
  return [schema.description, zone || json].filter(Boolean).join(" · ");
}

/**
 * An object or a list. While it is left out or null, it has no parts: a type that contains itself would have thousands.
 * @param {FieldOptions} options
 * @returns {SchemaField}
 */
function groupField(options) {
  const { part, path, label, value } = options;
  const content = h("div", { class: "schema-group" });
  const errorLine = h("p", { class: "error small", role: "status" });
  const mode = modeSelect(options, drawContent);
  /** @type {SchemaField | null} */
  let created = null;
  const inner = () =>
    created ??= part.kind === "object"
      ? objectField(part, path, isObject(value) ? value : {})
      : arrayField(part, path, Array.isArray(value) ? value : [], label);
  const currentMode = () => mode?.value ?? "value";
  const isShown = () => currentMode() === "value";
  function drawContent() {
    content.hidden = !isShown();
    if (isShown()) content.append(inner().node);
    errorLine.textContent = "";
  }
  drawContent();
  return {
    node: h(
      "fieldset",
      { class: "schema-fieldset" },
      h("legend", {}, label, options.required && h("span", { class: "required", "aria-hidden": "true" }, " *")),
      mode,
      part.schema.description && h("p", { class: "soft small" }, part.schema.description),
      content,
      errorLine,
    ),
    read: () => readMode(currentMode(), () => inner().read()),
    check: () => !isShown() || inner().check(),
    showProblem: (at, message) => {
      if (at === path) errorLine.textContent = message;
      return at === path || (isShown() && inner().showProblem(at, message));
    },
  };
}

/**
 * @param {Part} part
 * @param {string} path
 * @param {unknown[]} values
 * @param {string} label
 * @returns {SchemaField}
 */
function arrayField({ schema, root, depth }, path, values, label) {
  const list = h("ol", { class: "schema-list" });
  const errorLine = h("p", { class: "error small", role: "status" });
  /** @type {SchemaField[]} */
  let items = [];
  /** @param {unknown[]} all */
  function draw(all) {
    items = all.map((value, index) => itemField(value, index));
    fill(list, items.map((item, index) => h("li", {}, item.node, removeButton(index))));
  }
  /** @param {unknown} value @param {number} index */
  function itemField(value, index) {
    const part = partOf(/** @type {JsonSchema} */ (schema.items), root, depth + 1);
    const name = t("enqueue.item", { name: label, n: index + 1 });
    return fieldOf({ part, path: inside(path, index), label: name, value, required: true });
  }
  /** @param {number} index */
  const removeButton = (index) =>
    button(t("action.remove"), () => remove(index), {
      class: "tiny",
      "aria-label": t("enqueue.remove", { name: t("enqueue.item", { name: label, n: index + 1 }) }),
    });
  /** @param {number} index */
  function remove(index) {
    draw(readable().filter((_, position) => position !== index));
    add.focus();
  }
  function readable() {
    return items.map((item) => {
      try {
        return item.read();
      } catch {
        return undefined; // a text that is not JSON
      }
    });
  }
  const add = button(t("enqueue.add", { name: label }), () => {
    const item = itemField(undefined, items.length);
    items.push(item);
    list.append(h("li", {}, item.node, removeButton(items.length - 1)));
    const control = item.node.querySelector("input, select, textarea");
    if (control instanceof HTMLElement) control.focus();
  }, { class: "tiny" });
  draw(values);
  return {
    node: h("div", {}, list, add, errorLine),
    read: () => items.map((item) => item.read()),
    check: () => {
      errorLine.textContent = itemsProblem(schema, items.length);
      return items.filter((item) => !item.check()).length === 0 && !errorLine.textContent;
    },
    showProblem: (at, message) => items.some((item) => item.showProblem(at, message)),
  };
}
