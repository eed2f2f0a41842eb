// The sentences of the viewer's language, and how it writes numbers.
const table = JSON.parse(document.getElementById("words").textContent);
export const language = document.documentElement.lang || "en";
const numbers = new Intl.NumberFormat(language);
const plurals = new Intl.PluralRules(language);

// A sentence with its {names} filled in; `name.one` is taken for one of something, where the language makes a difference.
export const t = (key, values = {}) => text(key, values).replace(/\{(\w+)\}/g, (_, name) => shown(values[name]));

// The same with elements for some of the names: a list of texts and elements.
export const rich = (key, values = {}) => text(key, values).split(/\{(\w+)\}/)
  .map((part, index) => (index % 2 === 0 ? part : values[part] instanceof Node ? values[part] : shown(values[part])));

function text(key, values) {
  const one = typeof values.n === "number" ? table[`${key}.${plurals.select(values.n)}`] : undefined;
  return one ?? table[key] ?? key;
}

const shown = (value) => (typeof value === "number" ? numbers.format(value) : String(value ?? ""));
export const known = (key) => key in table;
// A word the server uses, in the viewer's language as far as there is one for it.
export const named = (kind, name) => (known(`${kind}.${name}`) ? t(`${kind}.${name}`) : name);
export const number = (value) => numbers.format(value);
