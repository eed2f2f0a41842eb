// JSON without loss of precision: an integer that JavaScript cannot hold keeps its digits, if the browser supports rawJSON.

/**
 * TypeScript does not know these functions yet.
 * @type {JSON & { rawJSON?: (text: string) => object, isRawJSON?: (value: unknown) => value is { rawJSON: string } }}
 */
const json = JSON;

/**
 * @param {string} text
 * @returns {any}
 */
export function parseJson(text) {
  const { rawJSON } = json;
  if (typeof rawJSON !== "function") return JSON.parse(text);
  /** @type {(key: string, value: unknown, context?: { source?: string }) => unknown} */
  const revive = (_key, value, context) => {
    const source = context?.source;
    const exact = typeof value !== "number" || source === undefined || source === String(value);
    return exact || !/^-?\d+$/.test(source) ? value : rawJSON(source);
  };
  return JSON.parse(text, revive);
}

/** The digits of an integer that `parseJson` kept as text, else null. @param {unknown} value */
export const rawDigits = (value) => (json.isRawJSON?.(value) ? value.rawJSON : null);
