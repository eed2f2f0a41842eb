// The command palette (Ctrl-K): finds pages, jobs by id or key, dead letters, queues, job types, schedules, and actions.

/** @import { SearchResult } from "../types.d.ts" */

import { get, may, mayOpen, signOut } from "../core/api.js";
import { byId, childElements, fill, h, isDialogOpen } from "../core/dom.js";
import { deadLetterUrl, enqueueUrl, jobsUrl, jobTypeUrl, jobUrl, queueUrl, urlFor } from "../core/urls.js";
import { t } from "../core/words.js";
import { showDialog } from "./dialog.js";
import { filterTerm } from "./filter_query.js";
import { toastError } from "./toast.js";

const ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const SEARCH_DELAY_MS = 150, MOST_SHOWN = 40;

/** @typedef {{ kind: string, text: string, hint?: string, href?: string, run?: () => unknown }} Entry */

/** The pages that the viewer may open, as the menu lists them. @returns {Entry[]} */
const pages = () =>
  [...document.querySelectorAll("#menu a[data-name]")].map((link) => ({
    kind: "page",
    text: link.querySelector("span")?.textContent ?? "",
    href: /** @type {HTMLAnchorElement} */ (link).href,
  }));

/** @param {string} id @param {string} value */
function choose(id, value) {
  const select = /** @type {HTMLSelectElement | null} */ (byId(id));
  if (!select) return;
  select.value = value;
  select.dispatchEvent(new Event("change"));
}

/** @returns {Entry[]} */
function actions() {
  /** @type {(Entry | false | null)[]} */
  const entries = [
    { kind: "action", text: t("palette.running"), href: jobsUrl("phase:leased") },
    { kind: "action", text: t("palette.failed-today"), href: urlFor("dead-letters?since=24h") },
    { kind: "action", text: t("palette.new-errors"), href: urlFor("dead-letters?since=1h") },
    may("submit") && { kind: "action", text: t("palette.enqueue"), href: enqueueUrl() },
    may("operate") && { kind: "action", text: t("palette.new-schedule"), href: urlFor("schedules") },
    byId("pause-updates") && { kind: "action", text: t("palette.pause"), run: () => byId("pause-updates")?.click() },
    { kind: "action", text: t("palette.theme.dark"), run: () => choose("theme", "dark") },
    { kind: "action", text: t("palette.theme.light"), run: () => choose("theme", "light") },
    { kind: "action", text: "English", run: () => choose("language", "en") },
    { kind: "action", text: "中文", run: () => choose("language", "zh") },
    { kind: "action", text: t("keys.title"), run: () => byId("keys-button")?.click() },
    byId("sign-out") && { kind: "action", text: t("shell.sign-out"), run: () => signOut().catch(toastError) },
  ];
  return entries.filter((entry) => entry !== null && entry !== false);
}

/** @param {SearchResult} found @returns {Entry[]} */
const foundEntries = ({ jobs, dead_letters, queues, job_types, schedules }) => [
  ...jobs.map(({ id, job_type, status }) => ({
    kind: "job",
    text: job_type,
    hint: `${status} · ${id}`,
    href: jobUrl(id),
  })),
  ...dead_letters.map(({ dlq_id, job_type }) => ({
    kind: "dead-letter",
    text: job_type,
    hint: dlq_id,
    href: deadLetterUrl(dlq_id),
  })),
  ...queues.map((name) => ({
    kind: "queue",
    text: name,
    href: mayOpen("queues") ? queueUrl(name) : jobsUrl(filterTerm("queue", name)),
  })),
  ...job_types.map((name) => ({
    kind: "type",
    text: name,
    href: mayOpen("job_types") ? jobTypeUrl(name) : jobsUrl(filterTerm("type", name)),
  })),
  ...(may("submit") ? job_types : []).map((type) => ({
    kind: "action",
    text: t("palette.enqueue-type", { type }),
    href: enqueueUrl(type),
  })),
  ...schedules.map(({ name }) => ({
    kind: "schedule",
    text: name,
    href: urlFor(`schedules?q=${encodeURIComponent(name)}`),
  })),
];

/** @param {string} text @param {SearchResult | null} found @returns {Entry[]} */
function entriesFor(text, found) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  /** @param {Entry} entry */
  const matches = (entry) => words.every((word) => entry.text.toLowerCase().includes(word));
  const fixed = [...pages(), ...actions()].filter(matches);
  /** @type {Entry[]} */
  const asId = !found && ID.test(text) ? [{ kind: "job", text, href: jobUrl(text.toLowerCase()) }] : [];
  /** @type {Entry[]} */
  const asFilter = text ? [{ kind: "filter", text, href: jobsUrl(text) }] : [];
  return [...asId, ...(found ? foundEntries(found) : []), ...fixed, ...asFilter].slice(0, MOST_SHOWN);
}

function openPalette() {
  const input = h("input", {
    type: "text", // Escape in a search field would only clear it
    role: "combobox",
    autocomplete: "off",
    spellcheck: "false",
    id: "palette-input",
    "aria-label": t("palette.label"),
    "aria-expanded": "true",
    "aria-controls": "palette-options",
    "aria-autocomplete": "list",
    placeholder: t("palette.placeholder"),
  });
  const options = h("ul", {
    class: "palette-options",
    role: "listbox",
    id: "palette-options",
    "aria-label": t("palette.results"),
  });
  const status = h("p", { class: "visually-hidden", role: "status" });
  const dialog = h("dialog", { class: "palette", "aria-label": t("palette.label") }, input, options, status);
  /** @type {Entry[]} */
  let entries = [];
  let selected = 0;
  /** @type {number | undefined} */
  let timer;

  function draw() {
    fill(
      options,
      entries.map((entry, index) =>
        h(
          "li",
          {
            role: "option",
            id: `palette-option-${index}`,
            "aria-selected": String(index === selected),
            on: { click: () => run(entry) },
          },
          h("span", { class: "tag" }, t(`palette.kind.${entry.kind}`)),
          h("span", { class: "grow break" }, entry.text),
          entry.hint && h("span", { class: "soft small mono" }, entry.hint),
        )
      ),
    );
    status.textContent = t("palette.count", { n: entries.length });
    if (entries.length) {
      input.setAttribute("aria-activedescendant", `palette-option-${selected}`);
      childElements(options)[selected].scrollIntoView({ block: "nearest" });
    } else input.removeAttribute("aria-activedescendant");
  }

  /** @param {SearchResult | null} found */
  function show(found) {
    entries = entriesFor(input.value.trim(), found);
    selected = 0;
    draw();
  }

  async function search() {
    const text = input.value.trim();
    if (text.length < 2) return;
    /** @type {SearchResult | null} */
    const found = await get("search", { q: text.slice(0, 200) }).catch(() => null);
    if (dialog.open && input.value.trim() === text) show(found);
  }

  /** @param {Entry} entry */
  function run(entry) {
    dialog.close();
    if (entry.href) location.assign(entry.href);
    else entry.run?.();
  }

  input.addEventListener("input", () => {
    show(null);
    clearTimeout(timer);
    timer = setTimeout(search, SEARCH_DELAY_MS);
  });
  input.addEventListener("keydown", (event) => {
    if (event.isComposing) return; // the keys choose characters of an input method
    const steps = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key in steps && entries.length) {
      const step = steps[/** @type {keyof typeof steps} */ (event.key)];
      selected = (selected + step + entries.length) % entries.length;
      draw();
      event.preventDefault();
    } else if (event.key === "Enter" && entries[selected]) {
      event.preventDefault();
      run(entries[selected]);
    }
  });
  dialog.addEventListener("click", ({ target }) => {
    if (target === dialog) dialog.close();
  });
  dialog.addEventListener("close", () => clearTimeout(timer));
  show(null);
  showDialog(dialog);
}

document.addEventListener("keydown", (event) => {
  if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
  if (!may("read")) return;
  event.preventDefault();
  const open = document.querySelector("dialog.palette");
  if (open instanceof HTMLDialogElement) open.close();
  else if (!isDialogOpen()) openPalette();
});
byId("palette-button")?.addEventListener("click", openPalette);
