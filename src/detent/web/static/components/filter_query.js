// The filter language: `status:retrying queue:mail since:2h "free text"`. A key that is not known is text.

/** How a value becomes the value of a query parameter; null if it is invalid. @typedef {(value: string) => string | null} Convert */
/** `example` is suggested; `valid` is what an invalid value may be instead, if that is not the example. */
/** @typedef {{ parameter: string, convert?: Convert, several?: boolean, example?: string, valid?: string }} FilterKey */
/** @typedef {Record<string, FilterKey>} FilterKeys */
/** @typedef {Record<string, string | string[]>} Query */

const SPAN = /^(?:\d+(?:\.\d+)?(?:ms|[smhdw]))+$/, SPAN_PART = /(\d+(?:\.\d+)?)(ms|[smhdw])/g;
/** @type {Record<string, number>} */
const UNIT_SECONDS = { ms: 0.001, s: 1, m: 60, h: 3_600, d: 86_400, w: 604_800 };

/** Seconds of a span like 300ms, 90s, 5m or 1h30m; null if it is none. @param {string} text */
function parseSpan(text) {
  if (!SPAN.test(text)) return null;
  let seconds = 0;
  for (const [, number, unit] of text.matchAll(SPAN_PART)) seconds += Number(number) * UNIT_SECONDS[unit];
  return seconds;
}

const DATE = /^\d{4}-\d\d-\d\d/;

/** A time: so long ago, or a date, of this time zone unless it names one. @type {Convert} */
function moment(text) {
  const ago = parseSpan(text);
  const date = DATE.test(text) ? Date.parse(text.length === 10 ? `${text}T00:00` : text) : NaN;
  const at = ago === null ? date : Date.now() - ago * 1000;
  return Number.isNaN(at) ? null : new Date(at).toISOString();
}

/** @type {Convert} */
function seconds(text) {
  const span = parseSpan(text) ?? (text === "" ? NaN : Number(text));
  return Number.isFinite(span) && span >= 0 ? String(span) : null;
}

/** @type {Convert} */
const count = (text) => (/^\d{1,6}$/.test(text) ? text : null);
/** @type {Convert} */
const yesOrNo = (text) => (/^(yes|true)$/.test(text) ? "true" : /^(no|false)$/.test(text) ? "false" : null);
const PHASES = ["claimable", "leased", "blocked", "final"];
/** @type {Convert} */
const phase = (text) => (PHASES.includes(text) ? text : null);

const MOMENT = { convert: moment, example: "15m 1h 24h 7d", valid: "1h 7d 2026-01-31" };

/** @type {FilterKeys} */
export const JOB_FILTER_KEYS = {
  status: { parameter: "status", several: true },
  phase: { parameter: "phase", convert: phase, valid: PHASES.join(" ") },
  queue: { parameter: "queue" },
  type: { parameter: "job_type" },
  contract: { parameter: "contract" },
  tenant: { parameter: "tenant" },
  error: { parameter: "error_code" },
  since: { parameter: "since", ...MOMENT },
  until: { parameter: "until", ...MOMENT },
  worker: { parameter: "worker" },
  parent: { parameter: "parent_id" },
  roots: { parameter: "roots", convert: yesOrNo, example: "yes no" },
  trace: { parameter: "trace_id" },
  task: { parameter: "task_id" },
  longer: { parameter: "min_duration_seconds", convert: seconds, example: "10s 1m 10m 1h" },
  shorter: { parameter: "max_duration_seconds", convert: seconds, example: "100ms 1s 10s" },
  attempts: { parameter: "min_attempts", convert: count, example: "2 3 5" },
};

/** @type {FilterKeys} */
export const DEAD_LETTER_FILTER_KEYS = {
  error: { parameter: "error_code" },
  class: { parameter: "error_class" },
  group: { parameter: "error_group" },
  type: { parameter: "job_type" },
  queue: { parameter: "queue" },
  contract: { parameter: "contract" },
  tenant: { parameter: "tenant" },
  since: { parameter: "since", ...MOMENT },
  until: { parameter: "until", ...MOMENT },
  proposed: { parameter: "proposed_by" },
};

const TERM = /(\w+):(?:"((?:[^"\\]|\\.)*)"?|(\S*))|"((?:[^"\\]|\\.)*)"?|(\S+)/g;

/**
 * The query parameters of a filter, and its terms with an invalid value. A term whose key is not known is searched as
 * text.
 * @param {string} text
 * @param {FilterKeys} [keys]
 */
export function parseFilter(text, keys = JOB_FILTER_KEYS) {
  /** @type {Query} */
  const query = {};
  const invalid = [], freeText = [];
  for (const [whole, key, quoted, plain, phrase, word] of text.matchAll(TERM)) {
    const value = unescape(quoted ?? plain ?? "");
    if (key === undefined) freeText.push(phrase === undefined ? word : unescape(phrase));
    else if (!Object.hasOwn(keys, key)) freeText.push(whole);
    else if (value) {
      const { parameter, convert, several } = keys[key];
      const converted = convert ? convert(value) : value;
      const values = several ? value.split(",").filter(Boolean) : [];
      const isOther = !several && (query[parameter] ?? converted) !== converted; // one of the values would be ignored
      if (converted === null || isOther || (several && !values.length)) invalid.push(whole);
      else query[parameter] = several ? [...(query[parameter] ?? []), ...values] : converted;
    }
  }
  if (freeText.length) query.text = freeText.join(" ");
  return { query, invalid };
}

/** @param {string} text */
const unescape = (text) => text.replace(/\\(.)/g, "$1");
/** @param {string} value */
const quote = (value) => (/^[^\s":\\]+$/.test(value) ? value : `"${value.replace(/["\\]/g, "\\$&")}"`);

/**
 * @param {string} key
 * @param {string} value
 */
export const filterTerm = (key, value) => `${key}:${quote(value)}`;

/**
 * The filter with this term instead of those with the same key; a null value removes them.
 * @param {string} text
 * @param {string} key
 * @param {string | null} value
 */
export function withTerm(text, key, value) {
  const others = [...text.matchAll(TERM)].filter(([, name]) => name !== key).map(([whole]) => whole);
  return [...others, ...(value === null ? [] : [filterTerm(key, value)])].join(" ");
}

/** The value of the last valid term with this key. @param {string} text @param {string} key */
export function termValue(text, key) {
  const { invalid } = parseFilter(text);
  const terms = [...text.matchAll(TERM)].filter(([whole, name]) => name === key && !invalid.includes(whole));
  const last = terms.at(-1);
  return last ? unescape(last[2] ?? last[3] ?? "") : "";
}
