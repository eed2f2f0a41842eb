// JSON without loss: a number this language cannot hold keeps its text, where the browser can do that.
export function parse(text) {
  if (typeof JSON.rawJSON !== "function") return JSON.parse(text);
  return JSON.parse(text, (_, value, context) => {
    const exact = typeof value !== "number" || context?.source === undefined || context.source === String(value);
    return exact || !/^-?\d+$/.test(context.source) ? value : JSON.rawJSON(context.source);
  });
}

export const raw = (value) => (typeof JSON.isRawJSON === "function" && JSON.isRawJSON(value) ? value.rawJSON : null);
