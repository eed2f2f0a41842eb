// The filter language: `status:retrying queue:mail tenant:a "free text"`, with completion, kept in the address.
import { fill, h } from "./dom.js";
import { t } from "./words.js";

export const KEYS = { status: "status", phase: "phase", queue: "queue", type: "job_type", contract: "contract", tenant: "tenant" };
const TOKEN = /(\w+):(?:"((?:[^"\\]|\\.)*)"?|(\S*))|"((?:[^"\\]|\\.)*)"?|(\S+)/g;

// {query: for the API, unknown: keys nobody knows}
export function parse(text, keys = KEYS) {
  const query = {}, unknown = [], free = [];
  for (const [whole, key, quoted, plain, phrase, word] of text.matchAll(TOKEN)) {
    const value = unescape(quoted ?? plain ?? "");
    if (key === undefined) free.push(unescape(phrase ?? word));
    else if (!(key in keys)) unknown.push(whole);
    else if (value) query[keys[key]] = value;
  }
  if (free.length) query.text = free.join(" ");
  return { query, unknown };
}

const unescape = (text) => text.replace(/\\(.)/g, "$1");
export const quoted = (value) => (/^[^\s":\\]+$/.test(value) ? value : `"${value.replace(/["\\]/g, "\\$&")}"`);
export const term = (key, value) => `${key}:${quoted(value)}`;

// suggest(key) answers the values a key may have; it may be slow, and is asked once.
export function filterBox({ value, keys = KEYS, suggest, change, label, placeholder = t("filter.placeholder") }) {
  const list = h("ul", { class: "options", role: "listbox", id: "filter-options", hidden: true });
  const trouble = h("p", { class: "trouble small", id: "filter-trouble", role: "status", hidden: true });
  const input = h("input", {
    id: "filter", type: "search", role: "combobox", autocomplete: "off", spellcheck: "false", autocapitalize: "off",
    "aria-expanded": "false", "aria-controls": "filter-options", "aria-autocomplete": "list", "aria-label": label,
    "aria-describedby": "filter-trouble", placeholder, value,
  });
  const cache = new Map();
  let options = [], at = -1, shown = value, timer = null;

  const current = () => {
    const before = input.value.slice(0, input.selectionStart);
    const start = before.search(/(?:\w+:)?(?:"[^"]*|[^\s"]*)$/);
    return { start, text: before.slice(start) };
  };
  async function offer() {
    const { text } = current();
    const colon = text.indexOf(":");
    if (colon < 0) options = Object.keys(keys).filter((key) => key.startsWith(text)).map((key) => ({ text: `${key}:`, more: t(`filter.${key}`) }));
    else {
      const key = text.slice(0, colon), typed = text.slice(colon + 1).replace(/^"/, "").toLowerCase();
      if (!(key in keys)) return close();
      if (!cache.has(key)) cache.set(key, Promise.resolve(suggest(key)).catch(() => []));
      close();  // what was offered for the text before must not be taken for this one
      const values = await cache.get(key);
      if (current().text !== text) return;
      options = values.filter((one) => one.toLowerCase().includes(typed)).slice(0, 40).map((one) => ({ text: `${term(key, one)} `, more: "" }));
    }
    at = -1;
    draw();
  }
  function draw() {
    fill(list, options.map((option, index) => h("li", {
      role: "option", id: `filter-option-${index}`, "aria-selected": String(index === at),
      on: { mousedown: (event) => { event.preventDefault(); take(index); } },
    }, h("span", {}, option.text.trim()), h("span", { class: "soft" }, option.more))));
    const open = options.length > 0 && document.activeElement === input;
    list.hidden = !open;
    input.setAttribute("aria-expanded", String(open));
    if (at >= 0) {
      input.setAttribute("aria-activedescendant", `filter-option-${at}`);
      list.children[at].scrollIntoView({ block: "nearest" });
    } else input.removeAttribute("aria-activedescendant");
  }
  function close() { options = []; at = -1; draw(); }
  function take(index) {
    const { start } = current();
    const rest = input.value.slice(input.selectionStart).replace(/^\S*/, "");
    const head = input.value.slice(0, start) + options[index].text;
    input.value = head + rest.trimStart();
    input.setSelectionRange(head.length, head.length);
    clearTimeout(timer);
    if (options[index].text.endsWith(":")) offer();
    else { close(); tell(); }
  }
  function tell() {
    clearTimeout(timer);
    const { unknown } = parse(input.value, keys);
    trouble.hidden = unknown.length === 0;
    trouble.textContent = unknown.length ? t("filter.unknown", { what: unknown.join(" "), known: Object.keys(keys).join(", ") }) : "";
    input.setAttribute("aria-invalid", String(unknown.length > 0));
    if (input.value.trim() === shown) return;
    shown = input.value.trim();
    change(shown);
  }
  input.addEventListener("input", () => { offer(); clearTimeout(timer); timer = setTimeout(tell, 350); });
  input.addEventListener("focus", offer);
  input.addEventListener("blur", () => { close(); tell(); });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (!options.length) return void offer();
      at = (at + (event.key === "ArrowDown" ? 1 : -1) + options.length) % options.length;
      draw();
      event.preventDefault();
    } else if ((event.key === "Enter" || event.key === "Tab") && at >= 0) { take(at); event.preventDefault(); }
    else if (event.key === "Enter") { close(); tell(); }
    else if (event.key === "Escape" && !list.hidden) { close(); event.preventDefault(); }
  });
  const set = (text) => { input.value = text; tell(); };
  return { node: h("div", { class: "filter" }, input, list, trouble), input, set };
}
