// One dead letter.

/** @import { DeadLetter, Job } from "../types.d.ts" */

import { card, errorClass } from "../components/elements.js";
import { jsonDiff } from "../components/json_diff.js";
import { jsonCard } from "../components/json_tree.js";
import { detailsList } from "../components/table.js";
import { canSeePayloads, get, mayOpen } from "../core/api.js";
import { fill, h, requireElement, updateKeyed } from "../core/dom.js";
import { startPage } from "../core/page.js";
import { timeElement } from "../core/time.js";
import { contractUrl, idInPath, jobUrl, queueUrl } from "../core/urls.js";
import { colon, formatNumber, t } from "../core/words.js";
import { deadLetterButtons, deadLetterState } from "./dead_letters/dead_letter_actions.js";
import "../core/shell.js";

let drawn = "";
const head = h("div"), content = h("div"), changes = h("div");
/** The requeue whose payload is compared. */
let compared = "";

/**
 * @param {HTMLElement} root
 * @param {DeadLetter} deadLetter
 */
function draw(root, deadLetter) {
  if (JSON.stringify(deadLetter) === drawn) return;
  drawn = JSON.stringify(deadLetter);
  requireElement("h1").textContent = deadLetter.job_type;
  if (!root.children.length) root.append(head, changes, content);
  fill(
    head,
    h(
      "p",
      { class: "row" },
      deadLetterState(deadLetter),
      h("span", { class: "small soft" }, t("page.dead_letter"), " ", h("code", { class: "break" }, deadLetter.dlq_id)),
    ),
    h("div", { class: "toolbar" }, deadLetterButtons(deadLetter, refresh)),
  );
  updateKeyed(content, [deadLetter], ({ dlq_id }) => dlq_id, cards);
  drawChanges(deadLetter);
}

/** What was changed in the payload when it was requeued. @param {DeadLetter} deadLetter */
async function drawChanges({ requeued_as, payload_json }) {
  if (!requeued_as || requeued_as === compared || !canSeePayloads) return;
  compared = requeued_as;
  try {
    /** @type {Job} */
    const job = await get(`jobs/${encodeURIComponent(requeued_as)}`);
    const titles = { before: t("job.dead-letter"), after: t("diff.requeue") };
    fill(changes, h("div", { class: "block" }, card(t("diff.title"), jsonDiff(payload_json, job.payload, titles))));
  } catch {
    fill(changes); // the job was pruned
  }
}

/** @param {DeadLetter} deadLetter */
function cards(deadLetter) {
  const { error_class, error_message, job_id, requeued_as, proposed_by } = deadLetter;
  const failedBefore = deadLetter.first_failed_at !== deadLetter.created_at;
  const context = Object.entries(deadLetter.context_json ?? {}).filter(([, value]) => value !== null);
  const details = detailsList([
    [t("col.error"), [h("code", {}, deadLetter.error_code), " ", errorClass(error_class, error_message)]],
    error_message && [t("col.message"), h("pre", {}, error_message)],
    [t("col.job"), h("a", { href: jobUrl(job_id) }, job_id)],
    requeued_as && [t("dead-letters.requeued-as"), h("a", { href: jobUrl(requeued_as) }, requeued_as)],
    [t("col.contract"), h("a", { href: contractUrl(deadLetter.contract) }, deadLetter.contract)],
    [
      t("col.queue"),
      mayOpen("queues") ? h("a", { href: queueUrl(deadLetter.queue) }, deadLetter.queue) : deadLetter.queue,
    ],
    [t("col.tenant"), deadLetter.tenant_id],
    [t("col.retries"), formatNumber(deadLetter.retry_count)],
    failedBefore && [t("dead-letters.first-failed"), timeElement(deadLetter.first_failed_at)],
    [t(failedBefore ? "dead-letters.last-failed" : "col.failed"), timeElement(deadLetter.created_at)],
    proposed_by && [t("dead-letters.proposal"), `${proposed_by}${colon}${deadLetter.proposed_reason ?? ""}`],
  ]);
  return h(
    "div",
    { class: "grid" },
    h("div", { class: "span-6" }, card(t("job.details"), details)),
    h(
      "div",
      { class: "span-6 stack" },
      jsonCard(t("job.payload"), deadLetter.payload_json, !canSeePayloads),
      jsonCard(t("dead-letters.context"), Object.fromEntries(context), !canSeePayloads),
    ),
  );
}

const refresh = startPage({
  load: () => get(`dlq/items/${encodeURIComponent(idInPath())}`),
  draw,
  every: 500,
  poll: 2000,
});
