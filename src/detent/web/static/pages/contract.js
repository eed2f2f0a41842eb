// One contract: its diagram, its edges as a table, its statuses, error codes and retry policy.

/** @import { Contract, Edge, Table } from "../types.d.ts" */

import { contractDiagram } from "../charts/contract_diagram.js";
import { badge, card, codeName } from "../components/elements.js";
import { filterTerm } from "../components/filter_query.js";
import { jsonTree } from "../components/json_tree.js";
import { detailsList, table } from "../components/table.js";
import { contractDescription, loadContract, statusTone } from "../core/contracts.js";
import { fill, h, requireElement } from "../core/dom.js";
import { startPage } from "../core/page.js";
import { idInPath, jobsUrl } from "../core/urls.js";
import { t } from "../core/words.js";
import "../core/shell.js";

/** @param {Contract} contract */
function diagramCard(contract) {
  const arrows = contract.edges.map((edge) => `${edge.source ?? ""} → ${edge.target}`).join(", ");
  const title = t("contracts.diagram");
  return h(
    "section",
    { class: "card block" },
    h("h2", {}, title),
    h(
      "div",
      { class: "diagram-wrap", tabindex: "0", role: "region", "aria-label": title },
      contractDiagram(contract, { label: `${contract.name}: ${arrows}` }),
    ),
  );
}

/** @param {Contract} contract */
function edgesCard(contract) {
  /** @type {Table<Edge>} */
  const rows = table(t("contracts.edges"), [
    { label: t("contracts.source"), cell: ({ source }) => source ?? t("contracts.start") },
    { label: t("contracts.event"), class: "wide", cell: ({ event }) => h("code", {}, event) },
    { label: t("contracts.target"), cell: ({ target }) => target },
    { label: t("contracts.move"), cell: ({ move }) => move ?? "–" },
  ], Infinity);
  rows.show(contract.edges, ({ source, event, target, move }) => `${source} ${event} ${target} ${move}`);
  return card(t("contracts.edges"), rows.node);
}

/** The statuses by phase. @param {Contract} contract */
function statusesCard(contract) {
  const phases = [...new Set(Object.values(contract.statuses))];
  /** @param {string} status */
  const link = (status) => {
    const href = jobsUrl(`${filterTerm("contract", contract.name)} ${filterTerm("status", status)}`);
    return h("a", { href }, badge(statusTone(contract, status), status));
  };
  return card(
    t("contracts.statuses"),
    detailsList(phases.map((phase) => {
      const statuses = Object.keys(contract.statuses).filter((status) => contract.statuses[status] === phase);
      return [t(`phase.${phase}`), h("div", { class: "row" }, statuses.map(link))];
    })),
  );
}

/**
 * @param {HTMLElement} root
 * @param {Contract} contract
 */
function draw(root, contract) {
  requireElement("h1").textContent = contract.name;
  const codes = Object.entries(contract.codes);
  fill(
    root,
    contract.description && h("p", { class: "soft", id: "contract-description" }, contractDescription(contract)),
    diagramCard(contract),
    h(
      "div",
      { class: "grid" },
      h("div", { class: "span-7" }, edgesCard(contract)),
      h(
        "div",
        { class: "span-5 stack" },
        statusesCard(contract),
        card(t("contracts.codes"), detailsList(codes.map(([name, code]) => [name, codeName(code ?? "–")]))),
        card(t("contracts.retry"), jsonTree(contract.retry)),
      ),
    ),
  );
}

startPage({ load: () => loadContract(idInPath()), draw, concerns: () => false });
