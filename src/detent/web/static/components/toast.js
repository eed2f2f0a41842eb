// Short messages in the corner of the page.

import { asProblem } from "../core/api.js";
import { h, requireElement } from "../core/dom.js";
import { jobUrl } from "../core/urls.js";
import { t } from "../core/words.js";

const MOST = 4, SHOWN_MS = 6000;

/**
 * Messages that are not good, or have a link, stay until they are closed.
 * @param {string} text
 * @param {{ tone?: "good" | "warning" | "bad", code?: string, job?: string }} [options] job: its id, for a link to it
 */
export function toast(text, { tone = "good", code, job } = {}) {
  const link = job && [" ", h("a", { href: jobUrl(job) }, t("link.job"))];
  const node = h("div", { class: `toast ${tone}` }, h("p", {}, text, link, code && h("code", {}, code)));
  const onClick = () => node.remove();
  const label = t("action.close");
  node.append(h("button", { type: "button", class: "plain tiny", "aria-label": label, on: { click: onClick } }, "×"));
  const container = requireElement("#toasts");
  while (container.children.length >= MOST) container.firstElementChild?.remove();
  container.append(node);
  if (tone === "good" && !job) setTimeout(() => node.remove(), SHOWN_MS);
}

/** Why some of many were refused. @param {{ code: string }[]} refusals */
export const codesOf = (refusals) => [...new Set(refusals.map(({ code }) => code))].join(" ");

/** @param {unknown} error */
export function toastError(error) {
  const { message, code } = asProblem(error);
  toast(message, { tone: "bad", code });
}
