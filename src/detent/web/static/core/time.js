// Moments: relative to now, exact on hover, in the viewer's zone; and spans of time in words.
import { h } from "./dom.js";
import { language, t } from "./words.js";

const relative = new Intl.RelativeTimeFormat(language, { numeric: "auto", style: "short" });
const exactly = new Intl.DateTimeFormat(language, {
  year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit",
  fractionalSecondDigits: 3, timeZoneName: "short", hour12: false,
});
const clock = new Intl.DateTimeFormat(language, { hour: "2-digit", minute: "2-digit", hour12: false });
const day = new Intl.DateTimeFormat(language, { month: "short", day: "numeric" });
const STEPS = [["day", 86_400], ["hour", 3_600], ["minute", 60], ["second", 1]];

export const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
export const exact = (iso) => exactly.format(new Date(iso));
export const clockTime = (date) => clock.format(date);
export const dayTime = (date) => day.format(date);

export function ago(iso, now = Date.now()) {
  const seconds = (new Date(iso).getTime() - now) / 1000;
  if (Math.abs(seconds) < 1) return t("time.now");
  const [unit, size] = STEPS.find(([, size]) => Math.abs(seconds) >= size) ?? STEPS.at(-1);
  return relative.format(Math.trunc(seconds / size), unit);
}

export function moment(iso) {
  if (!iso) return h("span", { class: "soft" }, "–");
  return h("time", { datetime: iso, title: exact(iso), "data-relative": true, tabindex: null }, ago(iso));
}

export function span(ms) {
  if (ms === null || ms === undefined || Number.isNaN(ms)) return "–";
  if (ms < 1) return "< 1 ms";
  if (ms < 1000) return `${ms < 10 ? Number(ms.toFixed(1)) : Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
  const parts = [["d", 86_400], ["h", 3_600], ["m", 60], ["s", 1]];
  const at = parts.findIndex(([, size]) => seconds >= size);
  const [unit, size] = parts[at];
  const rest = Math.floor((seconds % size) / (parts[at + 1]?.[1] ?? 1));
  return `${Math.floor(seconds / size)} ${unit}${rest && parts[at + 1] ? ` ${rest} ${parts[at + 1][0]}` : ""}`;
}

export const between = (from, to) => new Date(to).getTime() - new Date(from).getTime();

setInterval(() => {
  if (document.hidden) return;
  const now = Date.now();
  for (const node of document.querySelectorAll("time[data-relative]")) {
    const text = ago(node.dateTime, now);
    if (node.firstChild.data !== text) node.firstChild.data = text;
  }
}, 1000);
