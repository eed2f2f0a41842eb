// The span of charts and percentiles, which all pages of this browser tab share.

/** @import { Span } from "../../types.d.ts" */

import { button } from "../../components/elements.js";
import { childElements, h } from "../../core/dom.js";
import { t } from "../../core/words.js";

/** @type {Record<Span, number>} */
const SPAN_SECONDS = {
  "5m": 300,
  "15m": 900,
  hour: 3_600,
  "6h": 21_600,
  day: 86_400,
  week: 604_800,
  "30d": 2_592_000,
};
const SPAN_KEY = "detent.span";
const stored = sessionStorage.getItem(SPAN_KEY) ?? "";
let span = /** @type {Span} */ (stored in SPAN_SECONDS ? stored : "hour");

export const currentSpan = () => span;

/** @param {Span} name */
export const spanSeconds = (name) => SPAN_SECONDS[name];

/** The buttons that choose the span. @param {() => void} onChange */
export function spanTabs(onChange) {
  const tabs = h("div", { class: "tabs", role: "group", "aria-label": t("overview.span") });
  const mark = () => {
    for (const tab of childElements(tabs)) tab.setAttribute("aria-pressed", String(tab.dataset.span === span));
  };
  tabs.append(
    ...Object.keys(SPAN_SECONDS).map((name) => {
      const onClick = () => {
        span = /** @type {Span} */ (name);
        sessionStorage.setItem(SPAN_KEY, name);
        mark();
        onChange();
      };
      return button(t(`span.${name}`), onClick, { "data-span": name });
    }),
  );
  mark();
  return tabs;
}
