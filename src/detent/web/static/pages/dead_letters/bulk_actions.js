/** @import { DeadLettersDone } from "../../types.d.ts" */

import { formDialog, reasonField, textOf } from "../../components/dialog.js";
import { toast, toastError } from "../../components/toast.js";
import { post } from "../../core/api.js";
import { t } from "../../core/words.js";

const CONFIRM_ABOVE = 1000;

/**
 * Requeue or discard every open dead letter that matches. A dry run counts them first; above 1,000 the number must be typed.
 * @param {"requeue" | "discard"} action
 * @param {Record<string, string>} query
 */
export async function actOnMatching(action, query) {
  /** @type {DeadLettersDone} */
  let count;
  try {
    count = await post(`dlq/${action}`, { ...query, reason: t("dead-letters.dry-run"), dry_run: true });
  } catch (error) {
    return toastError(error);
  }
  const n = count.matched - count.for_two;
  const others = count.for_two ? ` ${t("dead-letters.for-two", { n: count.for_two })}` : "";
  if (!n) return toast(`${t("dead-letters.bulk.none")}${others}`, { tone: "warning" });
  /** @type {DeadLettersDone | null} */
  const done = await formDialog({
    title: t(`dead-letters.bulk.${action}`, { n }),
    lead: `${t(`dead-letters.bulk.${action}.more`)}${others}`,
    button: t(`action.${action}`),
    danger: action === "discard",
    fields: reasonField(action === "discard"),
    confirmText: n > CONFIRM_ABOVE ? String(n) : null,
    submit: (form) => post(`dlq/${action}`, { ...query, reason: textOf(form, "reason"), dry_run: false }),
  });
  if (!done) return;
  const refused = done.refused ? ` ${t("bulk.refused", { n: done.refused })}` : "";
  toast(t(`dead-letters.bulk.${action}.done`, { n: done.done }) + refused, { tone: done.refused ? "warning" : "good" });
}
