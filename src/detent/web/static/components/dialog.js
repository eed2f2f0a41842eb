// Modal dialogs.

/** @import { Child } from "../types.d.ts" */

import { asProblem } from "../core/api.js";
import { fill, h, rememberFocus } from "../core/dom.js";
import { t } from "../core/words.js";
import { copyButton } from "./elements.js";

/**
 * A dialog that only shows something.
 * @param {string} title
 * @param {Child} content
 * @param {Child} [buttons]
 */
export function openDialog(title, content, buttons) {
  const dialog = h("dialog", { "aria-label": title });
  const close = h("button", { type: "button", on: { click: () => dialog.close() } }, t("action.close"));
  fill(
    dialog,
    h("h2", {}, title),
    content,
    h("div", { class: "foot" }, h("div", { class: "buttons" }, close, buttons)),
  );
  showDialog(dialog);
  return dialog;
}

/**
 * Open a modal dialog. It is removed when it closes, and the focus returns to where it was.
 * @param {HTMLDialogElement} dialog
 */
export function showDialog(dialog) {
  const restoreFocus = rememberFocus();
  dialog.addEventListener("close", () => {
    dialog.remove();
    restoreFocus();
  });
  document.body.append(dialog);
  dialog.showModal();
  dialog.scrollTop = 0; // the focus may be on a button in the foot
}

/** @param {string} title @param {string} secret that is shown only now @param {string} note */
export const showSecret = (title, secret, note) =>
  openDialog(
    title,
    [h("p", {}, note), h("code", { class: "secret", id: "secret" }, secret)],
    copyButton(() => secret, { class: "primary" }),
  );

/**
 * @param {string} label
 * @param {Child} control
 * @param {boolean} [marked] as a field that must be filled in
 */
export const field = (label, control, marked = false) =>
  h(
    "label",
    { class: "field" },
    label,
    marked && h("span", { class: "required", "aria-hidden": "true" }, " *"),
    control,
  );

export const reasonField = (required = false) =>
  field(
    t(required ? "field.reason.required" : "field.reason"),
    h("textarea", { name: "reason", class: "prose", maxlength: 2000, required }),
  );

/**
 * The trimmed text of a form field, or null if it is empty.
 * @param {FormData} form
 * @param {string} name
 */
export const textOf = (form, name) => String(form.get(name) ?? "").trim() || null;

/**
 * A dialog with a form. While `submit` runs the dialog stays open; it shows the error if `submit` throws. Resolves to the
 * result of `submit`, or null if the dialog was closed.
 * @template Result
 * @param {object} options
 * @param {string} options.title
 * @param {string} [options.lead]
 * @param {Child} [options.fields]
 * @param {string} options.button
 * @param {boolean} [options.danger]
 * @param {string | null} [options.confirmText] a text that must be typed before the button is enabled
 * @param {(form: FormData, dialog: HTMLDialogElement) => Promise<Result>} options.submit
 * @returns {Promise<Result | null>}
 */
export function formDialog({ title, lead, fields, button, danger = false, confirmText = null, submit }) {
  const errorLine = h("p", { class: "error", role: "alert" });
  const confirmInput = h("input", { name: "confirmation", autocomplete: "off", spellcheck: "false" });
  const isConfirmed = () => confirmText === null || confirmInput.value.trim() === confirmText;
  const submitButton = h(
    "button",
    { type: "submit", class: danger ? "primary danger" : "primary", disabled: !isConfirmed() },
    button,
  );
  confirmInput.addEventListener("input", () => {
    submitButton.disabled = !isConfirmed();
  });
  const dialog = h("dialog", { "aria-label": title });
  const form = h(
    "form",
    { method: "dialog" },
    h("h2", {}, title),
    lead && h("p", {}, lead),
    fields,
    confirmText !== null && field(t("confirm.type", { text: confirmText }), confirmInput),
    h(
      "div",
      { class: "foot" }, // stays in view, and with it the error
      errorLine,
      h(
        "div",
        { class: "buttons" },
        h("button", { type: "button", on: { click: () => dialog.close() } }, t("action.back")),
        submitButton,
      ),
    ),
  );
  dialog.append(form);
  return new Promise((resolve) => {
    /** @type {Result | null} */
    let result = null;
    dialog.addEventListener("close", () => resolve(result));
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (!isConfirmed()) return;
      submitButton.disabled = true;
      fill(errorLine);
      try {
        result = await submit(new FormData(form), dialog);
        dialog.close();
      } catch (error) {
        const { message, code } = asProblem(error);
        fill(errorLine, message, code && h("code", {}, ` ${code}`));
        submitButton.disabled = false;
        if (!dialog.contains(document.activeElement)) submitButton.focus();
      }
    });
    showDialog(dialog);
  });
}
