// A text box for the filter language, with completion. What is being typed is reported as it is, and again as done when
// the viewer presses Enter, chooses an option or leaves the box.

/** @import { FilterKeys } from "./filter_query.js" */

import { childElements, fill, h } from "../core/dom.js";
import { joined, t } from "../core/words.js";
import { filterTerm, JOB_FILTER_KEYS, parseFilter } from "./filter_query.js";

const CHANGE_DELAY_MS = 350, MOST_OPTIONS = 40;

/**
 * @param {object} options
 * @param {string} options.value
 * @param {string} options.label
 * @param {(key: string) => Promise<string[]>} options.suggest the values of a key; called again when the filter has changed
 * @param {(text: string, isDone: boolean) => void} options.onChange
 * @param {FilterKeys} [options.keys]
 * @param {string} [options.placeholder]
 */
export function filterBox({ value, label, suggest, onChange, keys = JOB_FILTER_KEYS, placeholder }) {
  const list = h("ul", { class: "options", role: "listbox", id: "filter-options", hidden: true });
  const errorLine = h("p", { class: "error small", id: "filter-error", role: "status", hidden: true });
  const input = h("input", {
    id: "filter",
    type: "search",
    role: "combobox",
    autocomplete: "off",
    spellcheck: "false",
    autocapitalize: "off",
    "aria-expanded": "false",
    "aria-controls": "filter-options",
    "aria-autocomplete": "list",
    "aria-label": label,
    "aria-describedby": "filter-error",
    placeholder: placeholder ?? t("filter.placeholder"),
    value,
  });
  /** @type {Map<string, Promise<string[]>>} */
  const cache = new Map();
  /** @type {{ text: string, hint: string }[]} */
  let options = [];
  let selected = -1, reported = value, reportedDone = true, searches = 0;
  /** @type {number | undefined} */
  let timer;

  const cursor = () => input.selectionStart ?? input.value.length;

  /** The term before the cursor. */
  function currentTerm() {
    const before = input.value.slice(0, cursor());
    const start = before.search(/(?:\w+:)?(?:"[^"]*|[^\s"]*)$/);
    return { start, text: before.slice(start) };
  }

  /** @param {string} key */
  function valuesOf(key) {
    const example = keys[key].example;
    const cached = example ? Promise.resolve(example.split(" ")) : cache.get(key) ?? suggest(key).catch(() => []);
    cache.set(key, cached);
    return cached;
  }

  async function showOptions() {
    const { text } = currentTerm();
    const colon = text.indexOf(":"), search = ++searches;
    if (colon < 0) {
      const matching = Object.keys(keys).filter((key) => key.startsWith(text));
      options = matching.map((key) => ({ text: `${key}:`, hint: t(`filter.${key}`) }));
    } else {
      const key = text.slice(0, colon), typed = text.slice(colon + 1).replace(/^"/, "").toLowerCase();
      closeOptions(); // options of the previous text must not be chosen while the values load
      if (!Object.hasOwn(keys, key)) return;
      const values = await valuesOf(key);
      if (search !== searches || currentTerm().text !== text) return;
      const matching = values.filter((option) => option.toLowerCase().includes(typed)).slice(0, MOST_OPTIONS);
      options = matching.map((option) => ({ text: `${filterTerm(key, option)} `, hint: "" }));
    }
    selected = -1;
    draw();
  }

  function draw() {
    fill(
      list,
      options.map((option, index) =>
        h(
          "li",
          {
            role: "option",
            id: `filter-option-${index}`,
            "aria-selected": String(index === selected),
            on: {
              mousedown: (event) => {
                event.preventDefault();
                choose(index);
              },
            },
          },
          h("span", {}, option.text.trim()),
          h("span", { class: "soft" }, option.hint),
        )
      ),
    );
    const open = options.length > 0 && document.activeElement === input;
    list.hidden = !open;
    input.setAttribute("aria-expanded", String(open));
    if (selected >= 0) {
      input.setAttribute("aria-activedescendant", `filter-option-${selected}`);
      childElements(list)[selected].scrollIntoView({ block: "nearest" });
    } else input.removeAttribute("aria-activedescendant");
  }

  function closeOptions() {
    options = [];
    selected = -1;
    draw();
  }

  /** @param {number} index */
  function choose(index) {
    const { text } = options[index];
    const rest = input.value.slice(cursor()).replace(/^\S*/, "");
    const head = input.value.slice(0, currentTerm().start) + text;
    input.value = head + rest.trimStart();
    input.setSelectionRange(head.length, head.length);
    clearTimeout(timer);
    if (text.endsWith(":")) showOptions();
    else finish();
  }

  function finish() {
    searches += 1; // values that are still loading must not open the options again
    closeOptions();
    report(true);
  }

  /** Whether the term at the cursor is the beginning of a key, or a key without a value. */
  function isKeyBeingTyped() {
    const { text } = currentTerm();
    const key = text.replace(/:$/, "");
    return text !== "" &&
      (text.endsWith(":") ? Object.hasOwn(keys, key) : Object.keys(keys).some((name) => name.startsWith(key)));
  }

  /** @param {string} term */
  function withValidValues(term) {
    const { valid, example } = keys[term.slice(0, term.indexOf(":"))];
    const values = valid ?? example;
    return values ? t("filter.invalid.term", { term, values: joined(values.split(" ")) }) : term;
  }

  /** @param {boolean} isDone */
  function drawInvalid(isDone) {
    const { invalid } = parseFilter(input.value, keys);
    errorLine.hidden = invalid.length === 0 || !isDone;
    errorLine.textContent = t("filter.invalid", { terms: joined(invalid.map(withValidValues)) });
    input.setAttribute("aria-invalid", String(invalid.length > 0 && isDone));
  }

  /** @param {boolean} isDone */
  function report(isDone) {
    clearTimeout(timer);
    if (!isDone && isKeyBeingTyped()) return;
    drawInvalid(isDone);
    const text = input.value.trim();
    if (text === reported && (reportedDone || !isDone)) return;
    reported = text;
    reportedDone = isDone;
    cache.clear();
    onChange(text, isDone);
  }

  input.addEventListener("input", () => {
    showOptions();
    clearTimeout(timer);
    timer = setTimeout(() => report(false), CHANGE_DELAY_MS);
  });
  drawInvalid(true); // the filter may come from an address
  input.addEventListener("focus", showOptions);
  input.addEventListener("blur", finish);
  input.addEventListener("keydown", (event) => {
    if (event.isComposing) return; // the keys choose characters of an input method
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (!options.length) return void showOptions();
      selected = (selected + (event.key === "ArrowDown" ? 1 : -1) + options.length) % options.length;
      draw();
      event.preventDefault();
    } else if ((event.key === "Enter" || event.key === "Tab") && selected >= 0) {
      choose(selected);
      event.preventDefault();
    } else if (event.key === "Enter") finish();
    else if (event.key === "Escape" && !list.hidden) {
      closeOptions();
      event.preventDefault();
    }
  });

  return {
    node: h("div", { class: "filter" }, input, list, errorLine),
    /** @param {string} text */
    set: (text) => {
      input.value = text;
      report(true);
    },
    text: () => input.value.trim(),
  };
}
