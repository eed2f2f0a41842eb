// The sentences of the viewer's language, and how it writes numbers.
const table = JSON.parse(document.getElementById("words").textContent);
export const language = document.documentElement.lang || "en";
const numbers = new Intl.NumberFormat(language);
const plurals = new Intl.PluralRules(language);

// A sentence with its {names} filled in; `name.one` is taken for one of something, where the language makes a difference.
export function t(key, values = {}) {
  let text = table[key] ?? key;
  if (typeof values.n === "number") text = table[`${key}.${plurals.select(values.n)}`] ?? text;
  return text.replace(/\{(\w+)\}/g, (_, name) => shown(values[name]));
}

const shown = (value) => (typeof value === "number" ? numbers.format(value) : String(value ?? ""));
export const known = (key) => key in table;
// A word the server uses, in the viewer's language as far as there is one for it.
export const named = (kind, name) => (known(`${kind}.${name}`) ? t(`${kind}.${name}`) : name);
export const number = (value) => numbers.format(value);
