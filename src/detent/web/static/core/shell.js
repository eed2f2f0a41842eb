// What every page has: menu, language, theme, keyboard, sign-out.
import { $, h, here } from "./dom.js";
import { signOut } from "./api.js";
import { t } from "./words.js";
import { openDialog, told } from "./dialog.js";

const YEAR = 31_536_000;
const path = new URL(here("")).pathname;

for (const name of ["language", "theme"]) {
  $(name)?.addEventListener("change", (event) => {
    document.cookie = `detent_${name}=${event.target.value}; Path=${path}; Max-Age=${YEAR}; SameSite=Strict`;
    if (name === "theme") document.documentElement.dataset.theme = event.target.value;
    else location.reload();
  });
}

$("sign-out")?.addEventListener("click", () => signOut().catch(told));

const menu = $("menu"), button = $("menu-button");
function toggle(open) {
  menu.toggleAttribute("data-open", open);
  button.setAttribute("aria-expanded", String(open));
  if (open) menu.querySelector("a")?.focus();
}
button?.addEventListener("click", () => toggle(!menu.hasAttribute("data-open")));
document.addEventListener("click", (event) => {
  if (menu?.hasAttribute("data-open") && !menu.contains(event.target) && !button.contains(event.target)) toggle(false);
  const who = document.querySelector(".who[open]");
  if (who && !who.contains(event.target)) who.open = false;
});

const GO = { o: "overview", j: "jobs", a: "approvals", d: "letters", s: "schedules", q: "queues", w: "workers", c: "contracts",
  v: "verify", l: "alerts", u: "audit", t: "tokens" };
let going = 0;

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && menu?.hasAttribute("data-open")) {
    toggle(false);
    button.focus();
  }
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.closest("input, textarea, select")) return;
  if (Date.now() - going < 1200) {
    going = 0;
    const link = menu?.querySelector(`[data-name="${GO[event.key] ?? ""}"]`);
    if (link) { event.preventDefault(); location.assign(link.href); }
  } else if (event.key === "g") going = Date.now();
  else if (event.key === "?") help();
  else if (event.key === "/" && $("filter")) { event.preventDefault(); $("filter").focus(); }
  else if (event.key === "j" || event.key === "k") step(event.key === "j" ? 1 : -1);
});

function step(by) {
  const rows = [...document.querySelectorAll("tbody tr a:first-of-type")].filter((one) => one === one.closest("tr").querySelector("a"));
  if (!rows.length) return;
  const now = rows.findIndex((one) => one.closest("tr").contains(document.activeElement));
  rows[Math.min(rows.length - 1, Math.max(0, now + by))].focus();
}

function help() {
  const line = (keys, text) => [h("dt", {}, keys.map((key) => [h("kbd", {}, key), " "])), h("dd", {}, text)];
  openDialog(t("keys.title"), h("dl", { class: "facts" },
    line(["/"], t("keys.filter")), line(["j", "k"], t("keys.rows")), line(["Enter"], t("keys.open")), line(["Esc"], t("keys.close")),
    Object.entries(GO).filter(([, name]) => menu.querySelector(`[data-name="${name}"]`))
      .map(([key, name]) => line(["g", key], t(`page.${name}`))), line(["?"], t("keys.title"))));
}
$("keys-button")?.addEventListener("click", help);
