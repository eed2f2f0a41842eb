// Dialogs that ask before something is done, and short messages about what was done.
import { $, fill, h } from "./dom.js";
import { t } from "./words.js";

export function openDialog(title, content, buttons = []) {
  const close = h("button", { type: "button", on: { click: () => dialog.close() } }, t("act.close"));
  const dialog = h("dialog", { "aria-label": title }, h("h2", {}, title), content,
    h("div", { class: "buttons" }, close, buttons));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

export const field = (label, control) => h("label", { class: "field" }, label, control);

// Ask for fields, then act. The dialog stays open while it acts and shows why it was refused; typed: a word to be typed
// before the button can be pressed.
export function ask({ title, lead, fields = [], button, danger = false, typed = null, act }) {
  const trouble = h("p", { class: "trouble", role: "alert" });
  const go = h("button", { type: "submit", class: danger ? "primary danger" : "primary", disabled: typed !== null }, button);
  const confirm = typed === null ? null : h("input", {
    name: "typed", autocomplete: "off", spellcheck: "false",
    on: { input: (event) => { go.disabled = event.target.value.trim() !== typed; } },
  });
  const form = h("form", { method: "dialog" }, h("h2", {}, title), lead && h("p", {}, lead), fields,
    confirm && field(t("confirm.type", { word: typed }), confirm), trouble,
    h("div", { class: "buttons" }, h("button", { type: "button", on: { click: () => dialog.close() } }, t("act.back")), go));
  const dialog = h("dialog", { "aria-label": title }, form);
  return new Promise((done) => {
    let result = null;
    dialog.addEventListener("close", () => { dialog.remove(); done(result); });
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (typed !== null && confirm.value.trim() !== typed) return;
      go.disabled = true;
      fill(trouble);
      try {
        result = (await act(new FormData(form), { dialog, form })) ?? true;
        dialog.close();
      } catch (error) {
        fill(trouble, error.message, error.code && h("code", {}, ` ${error.code}`));
        go.disabled = false;
      }
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

export const reasonField = (required = false) =>
  field(t(required ? "field.reason.needed" : "field.reason"), h("textarea", { name: "reason", class: "prose", maxlength: 2000, required }));

export function toast(text, { tone = "good", code = null } = {}) {
  const close = h("button", { type: "button", class: "plain tiny", "aria-label": t("act.close"), on: { click: () => node.remove() } }, "×");
  const node = h("div", { class: `toast ${tone}` }, h("p", {}, text, code && h("code", {}, code)), close);
  const box = $("toasts");
  while (box.children.length >= 4) box.firstElementChild.remove();
  box.append(node);
  if (tone === "good") setTimeout(() => node.remove(), 6000);
}

export const told = (error) => toast(error.message, { tone: "bad", code: error.code });
