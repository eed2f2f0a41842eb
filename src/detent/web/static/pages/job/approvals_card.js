/** @import { Approval } from "../../types.d.ts" */

import { card, voteLine } from "../../components/elements.js";
import { h } from "../../core/dom.js";
import { t, translated } from "../../core/words.js";

/** The job's approvals with their votes. @param {Approval[]} approvals */
export const approvalsCard = (approvals) => card(t("page.approvals"), approvals.map(approvalNode));

/** @param {Approval} approval */
function approvalNode({ name, summary, votes, decision, missing, quorum }) {
  const result = decision ? translated("decision", decision) : t("approvals.count", { n: quorum - missing, quorum });
  return h(
    "div",
    {},
    h("strong", { class: "break" }, name),
    h("p", { class: "break" }, summary ?? t("payload.hidden")),
    votes.map((vote) => h("div", { class: "small soft break" }, voteLine(vote))),
    h("p", { class: "small soft" }, result),
  );
}
