// The payload of a job or a schedule: fields from its schema, or the whole payload as JSON; one becomes the other without loss.

/** @import { JsonEditor, JsonSchema, SchemaField } from "../../types.d.ts" */

import { button, cardWithHead } from "../elements.js";
import { jsonEditor } from "../json_editor.js";
import { schemaForm } from "./schema_form.js";
import { Problem } from "../../core/api.js";
import { fill, h } from "../../core/dom.js";
import { colon, t } from "../../core/words.js";

/**
 * @param {JsonSchema | null} schema null: only JSON
 * @param {unknown} payload
 * @param {string} [note] instead of the note that there is no schema
 */
export function payloadCard(schema, payload, note = t("enqueue.no-schema")) {
  const content = h("div"), errorLine = h("p", { class: "error", role: "alert" });
  const hasFields = schema !== null && Object.keys(schema.properties ?? {}).length > 0;
  const lead = h("p", { class: "soft" }, schema ? t("enqueue.no-fields") : note);
  /** @type {SchemaField | null} */
  let form = null;
  /** @type {JsonEditor | null} */
  let editor = null;

  /** @param {unknown} value */
  function showForm(value) {
    form = schemaForm(/** @type {JsonSchema} */ (schema), value);
    editor = null;
    fill(content, form.node);
    draw();
  }

  /** @param {unknown} value */
  function showJson(value) {
    editor = jsonEditor({ label: t("field.payload"), value, objectOnly: true });
    form = null;
    fill(content, !hasFields && lead, editor.node);
    draw();
  }

  const toForm = button(t("enqueue.as-fields"), () => change(showForm), { "data-view": "fields" });
  const toJson = button(t("enqueue.as-json"), () => change(showJson), { "data-view": "json" });
  const tabs = h("div", { class: "tabs", role: "group", "aria-label": t("enqueue.view") }, toForm, toJson);

  function draw() {
    errorLine.textContent = "";
    toForm.setAttribute("aria-pressed", String(form !== null));
    toJson.setAttribute("aria-pressed", String(editor !== null));
  }

  /** What cannot be read stays on the page with its problem. @param {(value: unknown) => void} show */
  function change(show) {
    if ((show === showForm) === (form !== null)) return;
    try {
      show(value());
    } catch {
      form?.check();
      errorLine.textContent = t("enqueue.unreadable");
    }
  }

  const value = () => form ? form.read() : editor?.value();
  /** The payload as text, or null if it cannot be read. */
  const text = () => {
    try {
      return JSON.stringify(value());
    } catch {
      return null;
    }
  };
  if (hasFields) showForm(payload);
  else showJson(payload);
  const original = text();

  return {
    text,
    /** Whether it differs from the payload that was shown first. */
    changed: () => text() !== original,
    node: cardWithHead(t("enqueue.payload"), hasFields && tabs, errorLine, content),
    /** The payload, or undefined if something is wrong with it, which is shown. */
    checkedValue: () => {
      errorLine.textContent = "";
      const isFine = form ? form.check() : true;
      if (!isFine) {
        focusFirstProblem(content);
        return undefined;
      }
      try {
        return value();
      } catch (error) {
        errorLine.textContent = error instanceof Error ? error.message : String(error);
        focusFirstProblem(content);
        return undefined;
      }
    },
    /** @param {string} path @param {string} message */
    showProblem: (path, message) => {
      if (!form?.showProblem(path, message)) errorLine.textContent = path ? `${path}${colon}${message}` : message;
      focusFirstProblem(content);
    },
  };
}

/**
 * Show the problems of a refused payload at its fields.
 * @param {ReturnType<typeof payloadCard>} payload
 * @param {unknown} error of the request
 */
export function showPayloadProblems(payload, error) {
  if (!(error instanceof Problem)) return;
  for (const { field, problem } of error.errors) {
    if (problem !== undefined) payload.showProblem(field, problem);
  }
}

/** @param {HTMLElement} content */
function focusFirstProblem(content) {
  const control = content.querySelector("[aria-invalid='true']");
  if (control instanceof HTMLElement) control.focus();
}
