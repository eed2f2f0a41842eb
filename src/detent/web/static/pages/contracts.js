// The list of contracts in this database.

/** @import { ContractSummary, Page, Table } from "../types.d.ts" */

import { tag } from "../components/elements.js";
import { table } from "../components/table.js";
import { get } from "../core/api.js";
import { contractDescription } from "../core/contracts.js";
import { fill, h } from "../core/dom.js";
import { startPage } from "../core/page.js";
import { contractUrl } from "../core/urls.js";
import { formatNumber, t } from "../core/words.js";
import "../core/shell.js";

/** @type {Table<ContractSummary> | null} */
let rows = null;

/** @param {ContractSummary} contract */
const nameCell = (contract) => [
  h("a", { href: contractUrl(contract.name) }, contract.name),
  contract.default && [" ", tag(t("contracts.default"))],
  !contract.carried && [" ", tag(t("contracts.custom"))],
];

/**
 * @param {HTMLElement} root
 * @param {Page<ContractSummary>} page
 */
function draw(root, { items }) {
  rows ??= table(t("page.contracts"), [
    { label: t("col.name"), cell: nameCell },
    {
      label: t("contracts.description"),
      cell: (contract) => h("span", { class: "break" }, contractDescription(contract)),
    },
    { label: t("col.statuses"), class: "number", cell: ({ statuses }) => formatNumber(statuses) },
    { label: t("col.edges"), class: "number", cell: ({ edges }) => formatNumber(edges) },
    { label: t("contracts.max-retries"), class: "number", cell: ({ max_retries }) => formatNumber(max_retries) },
    { label: t("page.dead_letters"), cell: ({ dead_letters }) => t(dead_letters ? "yes" : "no") },
  ]);
  if (rows.node.parentNode !== root) fill(root, h("p", { class: "soft" }, t("contracts.lead")), rows.node);
  rows.show(items, ({ name }) => name);
}

startPage({ load: () => get("contracts"), draw, concerns: () => false });
