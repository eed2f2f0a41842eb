// The state of a dead letter, and the actions on it.

/** @import { DeadLetter, DeadLettersDone, Job } from "../../types.d.ts" */

import { formDialog, reasonField, textOf } from "../../components/dialog.js";
import { actionButton, badge, button } from "../../components/elements.js";
import { jsonEditor } from "../../components/json_editor.js";
import { toast, toastError } from "../../components/toast.js";
import { canSeePayloads, may, person, post } from "../../core/api.js";
import { h } from "../../core/dom.js";
import { jobUrl } from "../../core/urls.js";
import { t } from "../../core/words.js";
import { requeueFields, requeueOptions } from "./bulk_actions.js";

const TONES = { open: "bad", requeued: "good", discarded: "neutral" };

/** @param {DeadLetter} deadLetter */
export const deadLetterState = ({ status, proposed_by }) => [
  badge(TONES[status], t(`dead-letter.${status}`)),
  status === "open" && proposed_by &&
  h("div", { class: "small soft" }, t("dead-letters.discard-proposed", { person: proposed_by })),
];

/** @param {string} id */
const pathOf = (id) => `dlq/items/${encodeURIComponent(id)}`;

/**
 * @param {DeadLetter} deadLetter
 * @param {() => void} refresh
 */
export function deadLetterButtons(deadLetter, refresh) {
  if (deadLetter.status !== "open") return [];
  const mine = deadLetter.proposed_by === person;
  const discardText = t(deadLetter.proposed_by ? "dead-letters.confirm-discard" : "action.discard");
  return [
    may("operate") && actionButton("requeue", () => requeue(deadLetter, refresh), { class: "primary" }),
    may("discard") && button(discardText, () => discard(deadLetter, refresh), {
      class: "danger",
      "data-action": "discard",
      disabled: mine,
      title: mine ? t("dead-letters.own-proposal") : null,
    }),
    mine && h("span", { class: "soft small" }, t("dead-letters.own-proposal")),
  ];
}

/**
 * @param {DeadLetter} deadLetter
 * @param {() => void} refresh
 */
async function requeue(deadLetter, refresh) {
  const editor = jsonEditor({ label: t("field.payload"), value: deadLetter.payload_json, objectOnly: true });
  /** @type {{ job?: Job } | null} */
  const done = await formDialog({
    title: t("confirm.requeue"),
    lead: t("confirm.requeue.more"),
    button: t("action.requeue"),
    fields: [canSeePayloads && editor.node, requeueFields(false), reasonField()],
    submit: (form) =>
      post(`${pathOf(deadLetter.dlq_id)}/requeue`, {
        ...requeueOptions(form),
        reason: textOf(form, "reason"),
        ...(canSeePayloads && editor.changed() ? { payload: editor.value() } : {}),
      }),
  });
  if (!done) return;
  toast(t("done.requeue"));
  if (done.job) location.assign(jobUrl(done.job.id));
  else refresh();
}

/**
 * The first person may only propose to discard, if the contract requires two; the second one confirms.
 * @param {DeadLetter} deadLetter
 * @param {() => void} refresh
 */
async function discard(deadLetter, refresh) {
  const { dlq_id, proposed_by, proposed_reason } = deadLetter;
  const dryRun = { ids: [dlq_id], reason: t("dead-letters.dry-run"), dry_run: true };
  /** @type {DeadLettersDone | null} */
  const count = await post("dlq/discard", dryRun).catch(toastError);
  if (!count) return;
  const consequence = t(count.for_two && !proposed_by ? "confirm.discard.propose" : "confirm.discard.more");
  const proposal = proposed_by && t("confirm.discard.second", { person: proposed_by, reason: proposed_reason });
  /** @type {{ confirmed: boolean } | null} */
  const done = await formDialog({
    title: t(proposed_by ? "dead-letters.confirm-discard" : "confirm.discard"),
    lead: consequence,
    button: t(proposed_by ? "dead-letters.confirm-discard" : "action.discard"),
    danger: true,
    fields: [proposal && h("p", { class: "break" }, proposal), reasonField(true)],
    submit: (form) => post(`${pathOf(dlq_id)}/discard`, { reason: textOf(form, "reason") }),
  });
  if (done) toast(t(done.confirmed ? "done.discard" : "done.propose"));
  refresh();
}
