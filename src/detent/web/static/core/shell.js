// Parts of every page: menu, language, theme, keyboard shortcuts, sign-out, replacing the token.

import { field, formDialog, openDialog, showSecret } from "../components/dialog.js";
import { toastError } from "../components/toast.js";
import { get, rotateToken, signOut } from "./api.js";
import { byId, h, isDialogOpen } from "./dom.js";
import "../components/palette.js";
import { urlFor } from "./urls.js";
import { formatNumber, t } from "./words.js";

/** @import { Attention } from "../types.d.ts" */

const YEAR_SECONDS = 31_536_000;
const COOKIE_PATH = new URL(urlFor("")).pathname;

for (const name of ["language", "theme"]) {
  const select = /** @type {HTMLSelectElement | null} */ (byId(name));
  select?.addEventListener("change", () => {
    document.cookie = `detent_${name}=${select.value}; Path=${COOKIE_PATH}; Max-Age=${YEAR_SECONDS}; SameSite=Strict`;
    if (name === "theme") document.documentElement.dataset.theme = select.value;
    else location.reload();
  });
}

byId("sign-out")?.addEventListener("click", () => signOut().catch(toastError));

byId("rotate-token")?.addEventListener("click", async () => {
  const input = h("input", { name: "token", type: "password", required: true, autocomplete: "off" });
  const rotated = await formDialog({
    title: t("shell.rotate"),
    lead: t("shell.rotate.more"),
    button: t("shell.rotate"),
    fields: field(t("shell.rotate.old"), input),
    submit: () => rotateToken(input.value.trim()),
  });
  if (!rotated) return;
  const dialog = showSecret(t("shell.rotated"), rotated.token, t("tokens.once"));
  dialog.addEventListener("close", () => location.replace(urlFor("sign-in")));
});

const menu = byId("menu"), menuButton = byId("menu-button");
const isMenuOpen = () => menu?.hasAttribute("data-open") ?? false;

/** @param {boolean} open */
function toggleMenu(open) {
  menu?.toggleAttribute("data-open", open);
  menuButton?.setAttribute("aria-expanded", String(open));
  if (open) menu?.querySelector("a")?.focus();
}

menuButton?.addEventListener("click", () => toggleMenu(!isMenuOpen()));
document.addEventListener("click", ({ target }) => {
  if (!(target instanceof Node)) return;
  if (isMenuOpen() && !menu?.contains(target) && !menuButton?.contains(target)) toggleMenu(false);
  const userMenu = document.querySelector(".user-menu[open]");
  if (userMenu && !userMenu.contains(target)) userMenu.removeAttribute("open");
});

/** Second key after `g` -> page. @type {Record<string, string>} */
const PAGE_KEYS = {
  o: "overview",
  j: "jobs",
  a: "approvals",
  d: "dead_letters",
  s: "schedules",
  q: "queues",
  y: "job_types",
  w: "workers",
  c: "contracts",
  v: "verify",
  l: "alerts",
  h: "webhooks",
  u: "audit",
  t: "tokens",
};
const PAGE_KEY_MS = 1200;
let pageKeyStartedAt = 0;

/**
 * @param {string} name
 * @returns {HTMLAnchorElement | null | undefined}
 */
const menuLink = (name) => menu?.querySelector(`a[data-name="${name}"]`);

const COUNT_MS = 10_000;

/** Show in the menu how many approvals, dead letters and alerts wait for a person. */
export async function updateMenuCounts() {
  /** @type {Attention | null} */
  const attention = await get("attention").catch(() => null);
  for (const [name, number] of Object.entries(attention ?? {})) {
    const count = menuLink(name)?.querySelector(".count");
    if (!(count instanceof HTMLElement)) continue;
    count.hidden = !number;
    count.textContent = name === "approvals" && number >= 100 ? "100+" : formatNumber(number ?? 0);
    if (name === "alerts") count.dataset.tone = "bad";
  }
}
updateMenuCounts();
setInterval(() => {
  if (!document.hidden) updateMenuCounts();
}, COUNT_MS);

document.addEventListener("keydown", (event) => {
  const userMenu = document.querySelector(".user-menu[open]");
  if (event.key === "Escape" && userMenu && !isDialogOpen()) {
    userMenu.removeAttribute("open");
    userMenu.querySelector("summary")?.focus();
  }
  if (event.key === "Escape" && isMenuOpen()) {
    toggleMenu(false);
    menuButton?.focus();
  }
  if (event.ctrlKey || event.metaKey || event.altKey || isDialogOpen()) return;
  if (event.target instanceof Element && event.target.closest("input, textarea, select")) return;
  const filter = byId("filter");
  if (Date.now() - pageKeyStartedAt < PAGE_KEY_MS) {
    pageKeyStartedAt = 0;
    const link = menuLink(PAGE_KEYS[event.key] ?? "");
    if (!link) return;
    event.preventDefault();
    location.assign(link.href);
  } else if (event.key === "g") pageKeyStartedAt = Date.now();
  else if (event.key === "?") showKeys();
  else if (event.key === "/" && filter) {
    event.preventDefault();
    filter.focus();
  } else if (event.key === "j" || event.key === "k") moveRowFocus(event.key === "j" ? 1 : -1);
});

/** @param {1 | -1} step */
function moveRowFocus(step) {
  const rows = [...document.querySelectorAll("tbody tr")].filter((row) => row.querySelector("a"));
  if (!rows.length) return;
  const current = rows.findIndex((row) => row.contains(document.activeElement));
  rows[Math.min(rows.length - 1, Math.max(0, current + step))].querySelector("a")?.focus();
}

function showKeys() {
  /** @type {(keys: string[], text: string) => Node[]} */
  const line = (keys, text) => [h("dt", {}, keys.map((key) => [h("kbd", {}, key), " "])), h("dd", {}, text)];
  const pages = Object.entries(PAGE_KEYS).filter(([, name]) => menuLink(name));
  openDialog(
    t("keys.title"),
    h(
      "dl",
      { class: "details-list" },
      line(["Ctrl", "k"], t("keys.palette")),
      line(["/"], t("keys.filter")),
      line(["j", "k"], t("keys.rows")),
      line(["Enter"], t("keys.open")),
      line(["Esc"], t("keys.close")),
      pages.map(([key, name]) => line(["g", key], t(`page.${name}`))),
      line(["?"], t("keys.title")),
    ),
  );
}
byId("keys-button")?.addEventListener("click", showKeys);
