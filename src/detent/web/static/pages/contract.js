// One contract: drawn, as a table, and with the codes it uses.
import { fill, h, here } from "../core/dom.js";
import { contract, tone } from "../core/contract.js";
import { diagram } from "../core/diagram.js";
import { page } from "../core/states.js";
import { facts, table } from "../core/table.js";
import { tree } from "../core/tree.js";
import { t } from "../core/words.js";
import "../core/shell.js";

const name = decodeURIComponent(location.pathname.split("/").at(-1));

function draw(root, found) {
  document.querySelector("h1").textContent = found.name;
  const edges = table([
    { label: t("contracts.source"), cell: (one) => one.source ?? t("contracts.beginning") }, { label: t("contracts.event"), cell: (one) => h("code", {}, one.event) },
    { label: t("contracts.target"), cell: (one) => one.target }, { label: t("contracts.move"), cell: (one) => one.move ?? "–" },
  ], { label: t("contracts.edges") });
  edges.show(found.edges, (one) => `${one.source} ${one.event} ${one.target} ${one.move}`);
  const phases = {};
  for (const [status, phase] of Object.entries(found.statuses)) (phases[phase] ??= []).push(status);
  const link = (status) => h("a", { href: here(`jobs?q=${encodeURIComponent(`contract:${found.name} status:${status}`)}`) }, h("span", { class: `badge ${tone(found, status)}` }, h("span", {}, status)));
  fill(root, h("section", { class: "card lone" }, h("h2", {}, t("contracts.diagram")),
    h("div", { class: "diagram-wrap", tabindex: "0", role: "region", "aria-label": t("contracts.diagram") }, diagram(found, { label: `${found.name}: ${found.edges.map((one) => `${one.source ?? ""} → ${one.target}`).join(", ")}` }))),
  h("div", { class: "grid" },
    h("section", { class: "card span-7" }, h("h2", {}, t("contracts.edges")), edges.node),
    h("div", { class: "span-5 stack" },
      h("section", { class: "card" }, h("h2", {}, t("contracts.statuses")), facts(Object.entries(phases).map(([phase, statuses]) => [t(`phase.${phase}`), h("div", { class: "row" }, statuses.map(link))]))),
      h("section", { class: "card" }, h("h2", {}, t("contracts.codes")), facts(Object.entries(found.codes).map(([key, code]) => [key, h("code", {}, code ?? "–")]))),
      h("section", { class: "card" }, h("h2", {}, t("contracts.retry")), tree(found.retry)))));
}

page({ load: () => contract(name), draw, concerns: () => false });
