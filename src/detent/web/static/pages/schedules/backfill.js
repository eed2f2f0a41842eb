/** @import { BackfillResult, Schedule } from "../../types.d.ts" */

import { field, formDialog, reasonField, textOf } from "../../components/dialog.js";
import { toast } from "../../components/toast.js";
import { post } from "../../core/api.js";
import { h } from "../../core/dom.js";
import { timeZone } from "../../core/time.js";
import { t } from "../../core/words.js";

const CONFIRM_ABOVE = 1000;

/**
 * Create the jobs of runs that were missed within a range of time. A dry run counts them first.
 * @param {Schedule} schedule
 */
export async function backfill({ id, name }) {
  const path = `schedules/${encodeURIComponent(id)}/backfill`;
  const from = h("input", { type: "datetime-local", name: "first", required: true });
  const to = h("input", { type: "datetime-local", name: "last", required: true });
  const count = await formDialog({
    title: t("schedules.backfill", { name }),
    lead: t("schedules.backfill.more"),
    button: t("schedules.count"),
    fields: [field(t("field.from", { zone: timeZone }), from), field(t("field.to", { zone: timeZone }), to)],
    submit: async () => {
      // The inputs hold local times without a zone.
      const range = { first: new Date(from.value).toISOString(), last: new Date(to.value).toISOString() };
      /** @type {BackfillResult} */
      const result = await post(path, { ...range, dry_run: true });
      return { range, ...result };
    },
  });
  if (!count) return;
  const n = count.made;
  if (!n) return toast(t("schedules.backfill.none", { name, n: count.fires }), { tone: "warning" });
  /** @type {BackfillResult | null} */
  const done = await formDialog({
    title: t("schedules.backfill.confirm", { n, name }),
    button: t("action.backfill"),
    confirmText: n > CONFIRM_ABOVE ? String(n) : null,
    fields: reasonField(),
    submit: (form) => post(path, { ...count.range, reason: textOf(form, "reason"), dry_run: false }),
  });
  if (done) toast(t("done.backfill", { n: done.job_ids.length }));
}
