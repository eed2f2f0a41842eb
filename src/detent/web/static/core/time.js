// Times: relative to now, exact in a tooltip, in the viewer's time zone; and durations.

import { h } from "./dom.js";
import { language, t } from "./words.js";

// In 30 hours is "in 1 day": whether that is tomorrow depends on the time of day.
const relativeFormat = new Intl.RelativeTimeFormat(language, { numeric: "always", style: "short" });
const exactFormat = new Intl.DateTimeFormat(language, {
  year: "numeric",
  month: "short",
  day: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  fractionalSecondDigits: 3,
  timeZoneName: "short",
  hourCycle: "h23",
});
const clockFormat = new Intl.DateTimeFormat(language, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const dayFormat = new Intl.DateTimeFormat(language, { month: "short", day: "numeric" });
/** Unit, its seconds, the seconds of the next smaller one. @type {[Intl.RelativeTimeFormatUnit, number, number][]} */
const RELATIVE_UNITS = [["day", 86_400, 3_600], ["hour", 3_600, 60], ["minute", 60, 1], ["second", 1, 0]];
/** @type {[string, number][]} */
const DURATION_UNITS = [
  [t("unit.day"), 86_400],
  [t("unit.hour"), 3_600],
  [t("unit.minute"), 60],
  [t("unit.second"), 1],
];

export const timeZone = Intl.DateTimeFormat().resolvedOptions().timeZone;
/** Without milliseconds if there are none. @param {string} iso */
export const formatExact = (iso) => exactFormat.format(new Date(iso)).replace(".000", "");
/** @param {Date} date */
export const formatClock = (date) => clockFormat.format(date);
/** @param {Date} date */
export const formatDay = (date) => dayFormat.format(date);
/** @param {Date} date */
export const formatDayTime = (date) => dayTimeFormat.format(date);

/**
 * @param {string} iso
 * @param {number} [now]
 */
function formatRelative(iso, now = Date.now()) {
  const seconds = (new Date(iso).getTime() - now) / 1000;
  if (Math.abs(seconds) < 1) return t("time.now");
  // What is to come is rounded: 2 hours 59 minutes are "in 3 hr".
  const isAhead = seconds > 0, round = isAhead ? Math.round : Math.trunc;
  const [unit, size] =
    RELATIVE_UNITS.find(([, size, smaller]) => Math.abs(seconds) >= size - (isAhead ? smaller / 2 : 0)) ??
      ["second", 1];
  // Without the full stop of "sec." and "min.", which would double that of a sentence; with a space before a Chinese
  // word, as after every other number.
  const text = relativeFormat.format(round(seconds / size), unit);
  return text.replace(/\./g, "").replace(/(\d)(\p{Script=Han})/u, "$1 $2");
}

/** A `time` element that shows the relative time and keeps it current. @param {string | null | undefined} iso */
export function timeElement(iso) {
  if (!iso) return h("span", { class: "soft" }, "–");
  return h("time", { datetime: iso, title: formatExact(iso), "data-relative": true }, formatRelative(iso));
}

const timeFormat = new Intl.DateTimeFormat(language, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  fractionalSecondDigits: 3,
  hourCycle: "h23",
});
const dayTimeFormat = new Intl.DateTimeFormat(language, {
  month: "short",
  day: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});

/** A `time` element with the exact time of day, and the day if it is not today. @param {string} iso */
export function exactTime(iso) {
  const date = new Date(iso), isToday = date.toDateString() === new Date().toDateString();
  const text = (isToday ? timeFormat : dayTimeFormat).format(date);
  return h("time", { class: "exact", datetime: iso, title: formatExact(iso) }, text);
}

/** How long ago something began, kept current. @param {string} iso */
export const elapsedElement = (iso) =>
  h("time", { datetime: iso, title: formatExact(iso), "data-elapsed": true }, formatElapsed(iso));

/**
 * @param {string} iso
 * @param {number} [now]
 */
const formatElapsed = (iso, now = Date.now()) => formatDuration(Math.max(0, now - new Date(iso).getTime()));

/** @param {number | null | undefined} milliseconds */
export function formatDuration(milliseconds) {
  if (milliseconds === null || milliseconds === undefined || Number.isNaN(milliseconds)) return "–";
  if (milliseconds < 1) return `< 1 ${t("unit.millisecond")}`;
  if (milliseconds < 1000) {
    const rounded = milliseconds < 10 ? Number(milliseconds.toFixed(1)) : Math.round(milliseconds);
    return `${rounded} ${t("unit.millisecond")}`;
  }
  const seconds = milliseconds / 1000;
  if (seconds < 60) return `${Number(seconds.toFixed(seconds < 10 ? 2 : 1))} ${t("unit.second")}`;
  const index = DURATION_UNITS.findIndex(([, size]) => seconds >= size);
  const [unit, size] = DURATION_UNITS[index];
  const smaller = DURATION_UNITS[index + 1];
  const rest = smaller ? Math.floor((seconds % size) / smaller[1]) : 0;
  return `${Math.floor(seconds / size)} ${unit}${rest ? ` ${rest} ${smaller[0]}` : ""}`;
}

/** A label of an axis. @param {number} milliseconds */
export function formatTick(milliseconds) {
  if (milliseconds >= 1) return formatDuration(milliseconds);
  return milliseconds === 0 ? "0" : `${Number(milliseconds.toPrecision(2))} ${t("unit.millisecond")}`;
}

/**
 * @param {string} from
 * @param {string} to
 */
export const millisecondsBetween = (from, to) => new Date(to).getTime() - new Date(from).getTime();

setInterval(() => {
  if (document.hidden) return;
  const now = Date.now();
  for (const node of document.querySelectorAll("time[data-relative], time[data-elapsed]")) {
    const { dateTime, dataset } = /** @type {HTMLTimeElement} */ (node);
    const text = "elapsed" in dataset ? formatElapsed(dateTime, now) : formatRelative(dateTime, now);
    if (node.textContent !== text) node.textContent = text;
  }
}, 1000);
