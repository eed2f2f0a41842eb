// Small elements that many pages use.

/** @import { Child, Props, Vote } from "../types.d.ts" */

import { copyText, fill, h } from "../core/dom.js";
import { t, withReason } from "../core/words.js";
import { toast } from "./toast.js";

/**
 * @param {Child} text
 * @param {() => unknown} onClick
 * @param {Props} [props]
 */
export const button = (text, onClick, props = {}) =>
  h("button", { type: "button", ...props, on: { click: onClick } }, text);

/**
 * A button for the action `name`: its label is the text `action.NAME`. The focus returns to it when its row is redrawn.
 * @param {string} name
 * @param {() => unknown} onClick
 * @param {Props} [props]
 */
export const actionButton = (name, onClick, props = {}) =>
  button(t(`action.${name}`), onClick, { "data-action": name, "data-focus": name, ...props });

/**
 * @param {string} tone
 * @param {string} text
 */
export const badge = (tone, text) => h("span", { class: `badge ${tone}` }, h("span", {}, text));

/** A name in capitals, which is broken after an underscore if it does not fit in a line. @param {string} name */
export const codeName = (name) => h("code", {}, name.split(/(?<=_)/).map((part) => [part, h("wbr")]));

/**
 * The class of an exception; nothing if the message begins with it.
 * @param {unknown} name
 * @param {string | null} message
 */
export const errorClass = (name, message) =>
  Boolean(name) && !message?.startsWith(`${name}:`) &&
  h("code", { class: "soft break", title: t("filter.class") }, String(name));

/** @param {string} text */
export const tag = (text) => h("span", { class: "tag" }, text);

/**
 * A link with an id below it, for the first cell of a row.
 * @param {string} href
 * @param {string} text
 * @param {string} id
 */
export const linkWithId = (href, text, id) => [
  h("a", { href, "data-focus": "open" }, text),
  h("div", { class: "soft small mono" }, id),
];

/** @param {() => string} text @param {Props} [props] */
export const copyButton = (text, props = { class: "tiny" }) =>
  button(t("action.copy"), async () => toast(t((await copyText(text())) ? "copied" : "copied.refused")), props);

/** @param {Vote} vote */
export const voteLine = (vote) => `${vote.approved ? "✓" : "✗"} ${withReason(vote.person, vote.reason)}`;

/**
 * A section with a title.
 * @param {string} title
 * @param {...Child} children
 */
export const card = (title, ...children) => h("section", { class: "card" }, h("h2", {}, title), children);

/**
 * A card with something at the right of its title.
 * @param {string} title
 * @param {Child} aside
 * @param {...Child} children
 */
export const cardWithHead = (title, aside, ...children) =>
  h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, title), aside), children);

/**
 * The pages of a list that the API returns by cursor: `foot` has the buttons to turn them.
 * @param {() => unknown} refresh loads the page of `cursor`
 * @param {string} [back] what is on the page before
 * @param {string} [forth] what is on the next page
 */
export function cursorPages(refresh, back = t("pages.newer"), forth = t("pages.older")) {
  /** Of the pages from the first to the one shown. @type {string[]} */
  let cursors = [];
  const foot = h("div", { class: "pages" });
  /** @param {string[]} path */
  const turn = (path) => {
    cursors = path;
    refresh();
  };
  return {
    foot,
    cursor: () => cursors.at(-1),
    restart: () => turn([]),
    /** @param {string | null} next */
    draw: (next) => {
      const onNext = () => next && turn([...cursors, next]);
      const props = { hidden: !cursors.length && !next };
      fill(
        foot,
        button(`← ${back}`, () => turn(cursors.slice(0, -1)), {
          ...props,
          disabled: !cursors.length,
          "data-focus": "newer",
        }),
        button(`${forth} →`, onNext, { ...props, disabled: !next, "data-focus": "older" }),
      );
    },
  };
}
