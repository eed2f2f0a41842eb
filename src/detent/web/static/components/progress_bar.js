import { h } from "../core/dom.js";
import { formatPercent, t } from "../core/words.js";

/**
 * How far a running job is, as its handler reported it: a bar with the share in percent, and the message.
 * @param {{ share?: number | null, message?: string | null } | null | undefined} progress share: 0 to 1
 */
export function progressBar(progress) {
  if (!progress) return null;
  const { share, message } = progress;
  const percent = share === null || share === undefined ? null : Math.round(share * 100);
  const text = percent === null ? "" : formatPercent(percent / 100);
  return h(
    "div",
    { class: "progress-line" },
    percent !== null && h("progress", { max: 100, value: percent, "aria-label": t("progress.label", { text }) }),
    h("span", { class: "small soft" }, text, message && `${text ? " · " : ""}${message}`),
  );
}
