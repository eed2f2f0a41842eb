// What a page shows instead of data: loading, empty, error.

/** @import { Child } from "../types.d.ts" */

import { h } from "./dom.js";
import { t } from "./words.js";

/**
 * @param {string} title
 * @param {string} [text]
 * @param {...Child} children
 */
export const emptyState = (title, text, ...children) =>
  h("div", { class: "state" }, h("h2", {}, title), text && h("p", {}, text), children);

/**
 * @param {{ message: string, status?: number, code?: string, detail?: string }} error
 * @param {() => void} retry
 */
export function errorState(error, retry) {
  const titles = new Map([[404, "state.not-found"], [403, "state.forbidden"]]);
  // The title says already that something was not found.
  const sentence = `${error.detail?.charAt(0).toUpperCase()}${error.detail?.slice(1)}`;
  const text = error.status === 404 && error.detail ? t("state.detail", { detail: sentence }) : error.message;
  const list = error.status === 404 && document.querySelector("#menu a[aria-current]");
  return h(
    "div",
    { class: "state error-state", role: "alert" },
    h("h2", {}, t(titles.get(error.status ?? 0) ?? "state.error")),
    h("p", {}, text),
    error.code && h("p", {}, h("code", {}, error.code)),
    h(
      "div",
      { class: "row center" },
      list && linkToList(list),
      h("button", { type: "button", on: { click: retry } }, t("action.retry")),
    ),
  );
}

/** @param {Element} entry of the menu, to which this page belongs */
const linkToList = (entry) =>
  h(
    "a",
    { class: "button", href: entry.getAttribute("href") },
    t("state.list", { page: entry.querySelector("span")?.textContent ?? "" }),
  );

export const loadingState = () =>
  h("div", { class: "skeleton", "aria-label": t("state.loading") }, h("i"), h("i"), h("i"), h("i"));
