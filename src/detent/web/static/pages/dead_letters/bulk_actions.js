// Requeue or discard many dead letters: the selected ones, those of one error, or all that match a filter.

/** @import { Query } from "../../components/filter_query.js" */
/** @import { DeadLettersDone } from "../../types.d.ts" */

import { field, formDialog, reasonField, textOf } from "../../components/dialog.js";
import { codesOf, toast, toastError } from "../../components/toast.js";
import { post } from "../../core/api.js";
import { h } from "../../core/dom.js";
import { sentenceGap, t } from "../../core/words.js";

const CONFIRM_ABOVE = 1000;

/**
 * Requeue or discard every open dead letter that matches, or those with these ids. A dry run counts them first; above
 * 1,000 the number must be typed. Resolves to false if nothing was done.
 * @param {"requeue" | "discard"} action
 * @param {Query} target
 * @param {string} [subject] what is chosen, in the words of the page
 */
export async function actOnMatching(action, target, subject) {
  /** @type {DeadLettersDone} */
  let count;
  try {
    count = await post(`dlq/${action}`, { ...target, reason: t("dead-letters.dry-run"), dry_run: true });
  } catch (error) {
    toastError(error);
    return false;
  }
  const n = count.matched;
  if (!n) {
    toast(t("dead-letters.bulk.none"), { tone: "warning" });
    return false;
  }
  /** @type {DeadLettersDone | null} */
  const done = await formDialog({
    title: t(`dead-letters.bulk.${action}`, { n }),
    lead: lead(action, count),
    button: t(`action.${action}`),
    danger: action === "discard",
    fields: [
      subject && h("p", { class: "break" }, subject),
      action === "requeue" && requeueFields(),
      reasonField(action === "discard"),
    ],
    confirmText: n > CONFIRM_ABOVE ? String(n) : null,
    submit: (form) =>
      post(`dlq/${action}`, {
        ...target,
        ...(action === "requeue" ? requeueOptions(form) : {}),
        reason: textOf(form, "reason"),
        dry_run: false,
      }),
  });
  if (!done) return false;
  report(action, done);
  return true;
}

/** @param {"requeue" | "discard"} action @param {DeadLettersDone} count */
function lead(action, { matched, for_two, to_confirm }) {
  if (action === "requeue") return t("dead-letters.bulk.requeue.more");
  const parts = [t("dead-letters.bulk.discard.more")];
  if (for_two < matched || to_confirm) parts.unshift(t("dead-letters.bulk.discard.final"));
  if (for_two > to_confirm) parts.push(t(`dead-letters.for-two${for_two < matched ? "" : ".all"}`, { n: for_two }));
  if (to_confirm) parts.push(t("dead-letters.to-confirm", { n: to_confirm }));
  return parts.join(sentenceGap);
}

/** How fast the new jobs become due, and whether they keep the recorded steps. */
export const requeueFields = (withRate = true) => [
  withRate && field(
    t("dead-letters.rate"),
    h("input", {
      name: "rate",
      type: "number",
      min: "0.001",
      max: "1000000",
      step: "any",
      placeholder: t("dead-letters.rate.none"),
    }),
  ),
  h("label", { class: "check" }, h("input", { type: "checkbox", name: "take_steps" }), t("dead-letters.keep-steps")),
];

/** @param {FormData} form */
export const requeueOptions = (form) => ({
  ...(textOf(form, "rate") ? { rate: Number(textOf(form, "rate")) } : {}),
  take_steps: form.get("take_steps") === "on",
});

/** @param {"requeue" | "discard"} action @param {DeadLettersDone} done */
function report(action, { done, proposed, refused, refusals }) {
  const parts = [];
  if (done || !proposed) parts.push(t(`dead-letters.bulk.${action}.done`, { n: done }));
  if (proposed) parts.push(t("dead-letters.bulk.proposed", { n: proposed }));
  if (refused) parts.push(t("bulk.refused", { n: refused }));
  toast(parts.join(sentenceGap), { tone: refused ? "warning" : "good", code: codesOf(refusals) });
}
