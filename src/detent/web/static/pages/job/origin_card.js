// What was changed in the payload when a job was requeued.

/** @import { DeadLetter, Job, JobView } from "../../types.d.ts" */

import { card } from "../../components/elements.js";
import { jsonDiff } from "../../components/json_diff.js";
import { canSeePayloads, get } from "../../core/api.js";
import { fill, h } from "../../core/dom.js";
import { t } from "../../core/words.js";

/** A card for a job that was requeued from a dead letter or another job; empty for other jobs. */
export function originCard() {
  const node = h("div");
  let drawn = false;
  return {
    node,
    /** @param {JobView} view */
    show: async ({ job, detail }) => {
      if (drawn || !detail.requeued_from || !canSeePayloads) return;
      drawn = true;
      const before = await payloadOf(detail.requeued_from.kind, detail.requeued_from.id);
      if (before === undefined) return;
      const titles = { before: t("diff.original"), after: t("diff.requeue") };
      fill(node, card(t("diff.title"), jsonDiff(before, job.payload, titles)));
    },
  };
}

/**
 * Undefined if the original is gone.
 * @param {"dead_letter" | "job"} kind
 * @param {string} id
 */
async function payloadOf(kind, id) {
  try {
    if (kind === "job") return (/** @type {Job} */ (await get(`jobs/${encodeURIComponent(id)}`))).payload;
    return (/** @type {DeadLetter} */ (await get(`dlq/items/${encodeURIComponent(id)}`))).payload_json;
  } catch {
    return undefined;
  }
}
