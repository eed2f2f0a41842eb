// JSON schemas as pydantic generates them: which control a part of a payload gets, and what is wrong with a value. Checks
// less than the server, which has the last word.

/** @import { JsonSchema, Part } from "../../types.d.ts" */

import { rawDigits } from "../../core/json.js";
import { t } from "../../core/words.js";

const DEEPEST = 6;
const INTEGER = /^-?\d+$/, NUMBER = /^-?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i;
const DATE = /^\d{4}-\d\d-\d\d$/, DATE_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d/;
const LONG_TEXT = 200;

/** @param {unknown} value @returns {value is Record<string, unknown>} */
export const isObject = (value) =>
  value !== null && typeof value === "object" && !Array.isArray(value) && rawDigits(value) === null;

/**
 * The part of the payload that a schema describes: its kind chooses the control. What has no control is "json".
 * @param {JsonSchema} schema
 * @param {JsonSchema} root with the $defs
 * @param {number} [depth]
 * @returns {Part}
 */
export function partOf(schema, root, depth = 0) {
  const { nullable, rest } = withoutNull(resolved(schema, root), root);
  return { schema: rest, root, nullable, kind: depth > DEEPEST ? "json" : kindOf(rest), depth };
}

/** @param {JsonSchema} schema @param {JsonSchema} root @returns {JsonSchema} */
function resolved(schema, root) {
  const { $ref, allOf, ...own } = schema;
  const name = $ref?.startsWith("#/$defs/") ? $ref.slice("#/$defs/".length) : null;
  const target = name === null ? undefined : root.$defs?.[name];
  if (target) return { ...resolved(target, root), ...own };
  if (allOf?.length === 1) return { ...resolved(allOf[0], root), ...own };
  return schema;
}

/** @param {JsonSchema} schema @param {JsonSchema} root @returns {{ nullable: boolean, rest: JsonSchema }} */
function withoutNull(schema, root) {
  const { anyOf, oneOf, ...own } = schema;
  const choices = anyOf ?? oneOf;
  if (choices?.length === 2) {
    const others = choices.filter(({ type }) => type !== "null");
    if (others.length === 1) return { nullable: true, rest: { ...resolved(others[0], root), ...own } };
  }
  if (Array.isArray(schema.type) && schema.type.length === 2 && schema.type.includes("null")) {
    return { nullable: true, rest: { ...schema, type: schema.type.find((type) => type !== "null") } };
  }
  return { nullable: false, rest: schema };
}

/** @param {JsonSchema} schema @returns {Part["kind"]} */
function kindOf({ type, format, properties, items, prefixItems, maxLength, ...rest }) {
  if (rest.anyOf || rest.oneOf || rest.allOf || rest.not || rest.$ref) return "json";
  if (rest.enum || "const" in rest) return "choice";
  if (type === "boolean" || type === "integer" || type === "number") return type;
  if (type === "object") return properties ? "object" : "json";
  if (type === "array") return items && typeof items === "object" && !prefixItems ? "array" : "json";
  if (type !== "string") return "json";
  if (format === "date" || format === "date-time") return format;
  return maxLength && maxLength > LONG_TEXT ? "long-text" : "text";
}

/** The values of an enum. @param {JsonSchema} schema @returns {unknown[]} */
export const choicesOf = (schema) => schema.enum ?? [schema.const];

/** Whether the control of this part can show the value without loss. @param {Part} part @param {unknown} value */
export function fits({ kind, schema, nullable }, value) {
  if (value === undefined || (value === null && nullable)) return true;
  if (kind === "choice") return choicesOf(schema).some((choice) => sameJson(choice, value));
  if (kind === "boolean") return typeof value === "boolean";
  if (kind === "integer" || kind === "number") return typeof value === "number" || rawDigits(value) !== null;
  if (kind === "date") return typeof value === "string" && DATE.test(value);
  if (kind === "date-time") {
    return typeof value === "string" && DATE_TIME.test(value) && !Number.isNaN(Date.parse(value));
  }
  if (kind === "text" || kind === "long-text") {
    return typeof value === "string" && (kind === "long-text" || !/[\r\n]/.test(value));
  }
  if (kind === "object") return isObject(value);
  return kind !== "array" || Array.isArray(value);
}

/** @param {unknown} one @param {unknown} other */
export const sameJson = (one, other) => JSON.stringify(one) === JSON.stringify(other);

/** The part as an editor of any JSON, for a value that its control cannot show. @param {Part} part @returns {Part} */
export const asJson = (part) => ({ ...part, kind: "json", schema: { ...part.schema, type: undefined } });

/**
 * Limits of numbers: the keyword, the key of the text, and the comparison. Integers are compared as BigInt.
 * @typedef {"minimum" | "exclusiveMinimum" | "maximum" | "exclusiveMaximum"} Limit
 * @type {[keyword: Limit, key: string, holds: (value: number | bigint, limit: number | bigint) => boolean][]}
 */
const LIMITS = [
  ["minimum", "minimum", (value, limit) => value >= limit],
  ["exclusiveMinimum", "above", (value, limit) => value > limit],
  ["maximum", "maximum", (value, limit) => value <= limit],
  ["exclusiveMaximum", "below", (value, limit) => value < limit],
];

/** What is wrong with the text of a number; empty: nothing. @param {Part} part @param {string} text */
export function numberProblem({ kind, schema }, text) {
  if (!(kind === "integer" ? INTEGER : NUMBER).test(text)) return t(`enqueue.problem.${kind}`);
  const value = INTEGER.test(text) ? BigInt(text) : Number(text);
  for (const [keyword, key, holds] of LIMITS) {
    const limit = schema[keyword], digits = rawDigits(limit);
    if (limit !== undefined && !holds(value, digits === null ? limit : BigInt(digits))) {
      return t(`enqueue.problem.${key}`, { value: digits ?? limit });
    }
  }
  const { multipleOf } = schema;
  const isMultiple = multipleOf === undefined || Number.isInteger(Number((Number(value) / multipleOf).toFixed(9)));
  return isMultiple ? "" : t("enqueue.problem.multiple", { value: multipleOf });
}

/** What is wrong with a text; empty: nothing. @param {JsonSchema} schema @param {string} text */
export function textProblem({ minLength = 0, maxLength = Infinity, pattern }, text) {
  const length = [...text].length;
  if (length < minLength) return t("enqueue.problem.short", { n: minLength });
  if (length > maxLength) return t("enqueue.problem.long", { n: maxLength });
  return pattern && !matches(pattern, text) ? t("enqueue.problem.pattern", { pattern }) : "";
}

/** True also for a pattern that JavaScript does not understand: the server checks it. @param {string} pattern @param {string} text */
function matches(pattern, text) {
  try {
    return new RegExp(pattern, "u").test(text);
  } catch {
    return true;
  }
}

/** @param {JsonSchema} schema @param {number} number of items */
export function itemsProblem({ minItems = 0, maxItems = Infinity }, number) {
  if (number < minItems) return t("enqueue.problem.few", { n: minItems });
  return number > maxItems ? t("enqueue.problem.many", { n: maxItems }) : "";
}
