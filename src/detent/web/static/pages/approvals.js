// Jobs that wait for approval: the question, the votes so far, and the buttons to approve and reject.

/** @import { Page, PendingApproval, Table } from "../types.d.ts" */

import { formDialog, reasonField, textOf } from "../components/dialog.js";
import { actionButton, cursorPages, linkWithId, voteLine } from "../components/elements.js";
import { jsonTree } from "../components/json_tree.js";
import { showRows, table } from "../components/table.js";
import { toast } from "../components/toast.js";
import { canSeePayloads, get, may, person, post } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { startPage } from "../core/page.js";
import { emptyState } from "../core/states.js";
import { timeElement } from "../core/time.js";
import { jobUrl } from "../core/urls.js";
import { joined, t, translated } from "../core/words.js";
import { updateMenuCounts } from "../core/shell.js";

// The oldest are on the first page.
const pages = cursorPages(() => refresh(), t("pages.older"), t("pages.newer"));
/** @type {ReturnType<typeof build> | null} */
let view = null;

/** A job that is held before its first execution has no question of its own. @param {PendingApproval} approval */
const question = ({ name, summary }) => (name === null ? t("approvals.before-start") : summary ?? t("payload.hidden"));

/**
 * @param {PendingApproval} approval
 * @param {"approve" | "reject"} action
 */
async function decide(approval, action) {
  const { job_id, about, digest } = approval;
  const done = await formDialog({
    title: t(`confirm.${action}`),
    lead: question(approval),
    button: t(`action.${action}`),
    danger: action === "reject",
    fields: [
      canSeePayloads && Boolean(about) && h("div", { class: "trace" }, jsonTree(about)),
      reasonField(action === "reject"),
    ],
    submit: (form) =>
      post(`jobs/${encodeURIComponent(job_id)}/${action}`, {
        reason: textOf(form, "reason"),
        ...(digest ? { digest } : {}),
      }),
  });
  if (done) toast(t(`done.${action}`));
  refresh();
}

/** @param {HTMLElement} root */
function build(root) {
  /** @type {Table<PendingApproval>} */
  const rows = table(t("page.approvals"), [
    { label: t("col.job"), cell: ({ job_id, job_type }) => linkWithId(jobUrl(job_id), job_type, job_id) },
    { label: t("col.question"), cell: questionCell },
    { label: t("col.tenant"), cell: ({ tenant_id }) => tenant_id },
    {
      label: t("col.votes"),
      cell: ({ missing, quorum, votes }) => [
        t("approvals.count", { n: quorum - missing, quorum }),
        votes?.map((vote) => h("div", { class: "small soft" }, voteLine(vote))),
      ],
    },
    { label: t("col.since"), class: "nowrap", cell: ({ since }) => timeElement(since) },
    { label: t("col.deadline"), class: "nowrap", cell: ({ deadline }) => timeElement(deadline) },
    may("review") && { label: t("col.actions"), class: "tight", cell: actionsCell },
  ]);
  const list = h("div");
  fill(root, !may("review") && h("p", { class: "soft" }, t("approvals.read-only")), list, pages.foot);
  return { rows, list };
}

/** @param {PendingApproval} approval */
const questionCell = (approval) => [
  h("div", { class: "break" }, question(approval)),
  canSeePayloads && Boolean(approval.about) &&
  h("details", {}, h("summary", { class: "small" }, t("col.data")), jsonTree(approval.about)),
];

/** @param {PendingApproval} approval */
function actionsCell(approval) {
  const { may_decide, roles, votes } = approval;
  if (!may_decide) {
    return h(
      "span",
      { class: "soft small" },
      t("approvals.roles", { roles: joined(roles.map((role) => translated("role", role))) }),
    );
  }
  if (votes?.some((vote) => vote.person === person && vote.approved)) {
    return h("span", { class: "soft small" }, t("approvals.voted"));
  }
  return h(
    "div",
    { class: "actions" },
    actionButton("approve", () => decide(approval, "approve"), { class: "tiny primary" }),
    actionButton("reject", () => decide(approval, "reject"), { class: "tiny danger" }),
  );
}

/**
 * @param {HTMLElement} root
 * @param {Page<PendingApproval>} page
 */
function draw(root, { items, next_cursor }) {
  view ??= build(root);
  updateMenuCounts();
  const empty = () => emptyState(t("approvals.none"), t("approvals.none.more"));
  showRows(view.list, view.rows, items, ({ job_id, name }) => `${job_id}/${name ?? ""}`, empty);
  pages.draw(next_cursor);
}

const refresh = startPage({
  load: () => get("approvals", { cursor: pages.cursor(), limit: 50 }),
  draw,
  every: 700,
  poll: 10_000,
});
