// Texts in the viewer's language, and number formatting.

/** @import { Values } from "../types.d.ts" */

/** @type {Record<string, string>} */
const texts = JSON.parse(document.getElementById("words")?.textContent ?? "{}");
export const language = document.documentElement.lang || "en";
/** Between two sentences. Chinese punctuation includes the gap. */
export const sentenceGap = language.startsWith("zh") ? "" : " ";
export const colon = language.startsWith("zh") ? "：" : ": ";
const numberFormat = new Intl.NumberFormat(language);
const plurals = new Intl.PluralRules(language);

/**
 * The text for `key` with its {names} replaced. For a number `n`, `key.one` (or another plural form) is preferred.
 * @param {string} key
 * @param {Values} [values]
 */
export const t = (key, values = {}) =>
  template(key, values).replace(/\{(\w+)\}/g, (_match, name) => valueText(values[name]));

/**
 * Like `t`, but values may be elements. Returns texts and elements in order.
 * @param {string} key
 * @param {Values} [values]
 * @returns {(Node | string)[]}
 */
export const richText = (key, values = {}) =>
  template(key, values).split(/\{(\w+)\}/).map((part, index) => {
    const value = index % 2 === 0 ? part : values[part];
    return value instanceof Node ? value : valueText(value);
  });

/**
 * @param {string} key
 * @param {Values} values
 */
function template(key, values) {
  const plural = typeof values.n === "number" ? texts[`${key}.${plurals.select(values.n)}`] : undefined;
  return plural ?? texts[key] ?? key;
}

/** @param {unknown} value */
const valueText = (value) => (typeof value === "number" ? numberFormat.format(value) : String(value ?? ""));

/** Names as one text. @param {Iterable<string>} names */
export const joined = (names) => [...names].join(t("list.comma"));

/** @param {string} person @param {string | null | undefined} reason */
export const withReason = (person, reason) => (reason ? t("person.reason", { person, reason }) : person);

/** @param {string} key */
export const hasText = (key) => key in texts;

/**
 * The translation of a word the server uses, or the word itself.
 * @param {string} kind
 * @param {string} word
 */
export const translated = (kind, word) => (hasText(`${kind}.${word}`) ? t(`${kind}.${word}`) : word);

const percentFormat = new Intl.NumberFormat(language, { style: "percent", maximumFractionDigits: 1 });
/** @param {number} share from 0 to 1 */
export const formatPercent = (share) => percentFormat.format(share);
/** @param {number} value */
export const formatNumber = (value) => numberFormat.format(value);
