// The views of a list that the viewer has saved: filters by name.

/** @import { Page, SavedView } from "../types.d.ts" */

import { asProblem, call, get } from "../core/api.js";
import { h } from "../core/dom.js";
import { urlFor } from "../core/urls.js";
import { t } from "../core/words.js";
import { field, formDialog, textOf } from "./dialog.js";
import { button } from "./elements.js";
import { dropDown } from "./menu.js";
import { toast, toastError } from "./toast.js";

/**
 * @param {"jobs" | "dead_letters"} page
 * @param {string} path of the page
 * @param {() => string} currentQuery of the page's address
 */
export function savedViews(page, path, currentQuery) {
  /** @type {SavedView[]} */
  let views = [];
  const menu = dropDown(t("views.title"), content, "saved-views");

  function content() {
    const lines = views.map((view) =>
      h(
        "li",
        { class: "row between" },
        h("a", { href: urlFor(`${path}?${view.query}`) }, view.name),
        button("×", () => remove(view), { class: "plain tiny", "aria-label": t("views.delete", { name: view.name }) }),
      )
    );
    return [
      lines.length ? h("ul", { class: "plain-list" }, lines) : h("p", { class: "soft small" }, t("views.none")),
      button(t("views.save"), save, { class: "tiny", id: "save-view" }),
    ];
  }

  async function reload() {
    try {
      /** @type {Page<SavedView>} */
      const { items } = await get("views");
      views = items.filter((view) => view.page === page);
    } catch (error) {
      if (asProblem(error).status !== 401) views = [];
    }
    menu.redraw();
  }

  async function save() {
    menu.close();
    const input = h("input", { name: "name", required: true, maxlength: 100, autocomplete: "off" });
    const saved = await formDialog({
      title: t("views.save"),
      lead: t("views.save.more"),
      fields: field(t("col.name"), input),
      button: t("action.save"),
      submit: (form) =>
        call("PUT", `views/${page}/${encodeURIComponent(textOf(form, "name") ?? "")}`, {
          json: { query: currentQuery() },
        }),
    });
    if (saved) toast(t("views.saved"));
    await reload();
  }

  /** @param {SavedView} view */
  async function remove({ name }) {
    try {
      await call("DELETE", `views/${page}/${encodeURIComponent(name)}`);
    } catch (error) {
      toastError(error);
    }
    await reload();
  }

  reload();
  return menu.node;
}
