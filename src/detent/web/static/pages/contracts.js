// The contracts this database knows.
import { fill, h, here } from "../core/dom.js";
import { get } from "../core/api.js";
import { page } from "../core/states.js";
import { table } from "../core/table.js";
import { number, t } from "../core/words.js";
import "../core/shell.js";

let room = null;

function draw(root, { contracts }) {
  room ??= table([
    { label: t("col.name"), cell: (one) => [h("a", { href: here(`contracts/${encodeURIComponent(one.name)}`) }, one.name), one.default && [" ", h("span", { class: "tag" }, t("contracts.default"))], !one.carried && [" ", h("span", { class: "tag" }, t("contracts.own"))]] },
    { label: t("col.statuses"), class: "number", cell: (one) => number(one.statuses) },
    { label: t("col.edges"), class: "number", cell: (one) => number(one.edges) },
    { label: t("contracts.retries"), class: "number", cell: (one) => number(one.max_retries) },
    { label: t("page.letters"), cell: (one) => t(one.dead_letters ? "yes" : "no") },
  ], { label: t("page.contracts") });
  if (room.node.parentNode !== root) fill(root, h("p", { class: "soft" }, t("contracts.lead")), room.node);
  room.show(contracts, (one) => one.name);
}

page({ load: () => get("contracts"), draw, concerns: () => false });
