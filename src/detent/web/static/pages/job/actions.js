// The buttons for the actions that a job's status allows, each with its dialog.

/** @import { Job, JobAction, JobDetail } from "../../types.d.ts" */

import { field, formDialog, reasonField, textOf } from "../../components/dialog.js";
import { actionButton } from "../../components/elements.js";
import { jsonEditor } from "../../components/json_editor.js";
import { toast } from "../../components/toast.js";
import { canSeePayloads, post } from "../../core/api.js";
import { h } from "../../core/dom.js";
import { jobUrl } from "../../core/urls.js";
import { t } from "../../core/words.js";

/** @typedef {{ title: string, lead: string, button: string, danger: boolean }} DialogTexts */
/** @typedef {{ job?: Job }} ActionAnswer */

const DANGEROUS = new Set(["cancel", "abort", "reject"]);
const DECISIONS = new Set(["approve", "reject"]);

/**
 * @param {Job} job
 * @param {JobDetail} detail
 * @param {() => void} refresh
 */
export const jobActionButtons = (job, detail, refresh) =>
  detail.acts.map((action) => {
    const tone = action.act === "approve" ? "primary" : DANGEROUS.has(action.act) ? "danger" : null;
    return actionButton(action.act, () => run(action, job, detail, refresh), { class: tone });
  });

/**
 * @param {JobAction} action
 * @param {Job} job
 * @param {JobDetail} detail
 * @param {() => void} refresh
 */
async function run(action, job, detail, refresh) {
  const name = action.act;
  const path = `jobs/${encodeURIComponent(job.id)}/${name}`;
  const texts = {
    title: t(`confirm.${name}`),
    lead: t(action.request ? "confirm.cancel.request" : `confirm.${name}.more`),
    button: t(name === "cancel" ? "confirm.cancel.button" : `action.${name}`),
    danger: DANGEROUS.has(name),
  };
  const done = name === "signal"
    ? await signalDialog(path, texts, detail)
    : name === "requeue"
    ? await requeueDialog(path, texts, job)
    : await reasonDialog(path, texts, action, detail);
  if (!done) return;
  toast(t(`done.${name}`));
  refresh();
  if (name === "requeue" && done.job) location.assign(jobUrl(done.job.id));
}

/**
 * @param {string} path
 * @param {DialogTexts} texts
 * @param {JobDetail} detail
 * @returns {Promise<ActionAnswer | null>}
 */
function signalDialog(path, texts, { wait }) {
  const editor = jsonEditor({ label: t("field.data"), value: null });
  const name = h("input", { name: "name", required: true, maxlength: 200, value: wait?.name ?? "" });
  return formDialog({
    ...texts,
    fields: [field(t("field.signal"), name), editor.node],
    submit: (form) => post(path, { name: form.get("name"), data: editor.value() }),
  });
}

/**
 * @param {string} path
 * @param {DialogTexts} texts
 * @param {Job} job
 * @returns {Promise<ActionAnswer | null>}
 */
function requeueDialog(path, texts, { payload }) {
  const editor = jsonEditor({ label: t("field.payload"), value: payload, objectOnly: true });
  return formDialog({
    ...texts,
    fields: [canSeePayloads && editor.node, reasonField()],
    submit: (form) =>
      post(path, {
        reason: textOf(form, "reason"),
        ...(canSeePayloads && editor.changed() ? { payload: editor.value() } : {}),
      }),
  });
}

/**
 * Cancel, abort, approve, reject, reopen. A decision carries the digest of the question that was shown.
 * @param {string} path
 * @param {DialogTexts} texts
 * @param {JobAction} action
 * @param {JobDetail} detail
 * @returns {Promise<ActionAnswer | null>}
 */
function reasonDialog(path, texts, action, { approvals, wait }) {
  const canForce = action.act === "cancel" && Boolean(action.request);
  const force = h("label", { class: "check" }, h("input", { type: "checkbox", name: "force" }), t("confirm.force"));
  const approval = DECISIONS.has(action.act)
    ? approvals.find(({ name, decision }) => name === wait?.name && !decision)
    : undefined;
  return formDialog({
    ...texts,
    fields: [reasonField(), canForce && force],
    submit: (form) =>
      post(path, {
        reason: textOf(form, "reason"),
        ...(approval ? { digest: approval.digest } : {}),
        ...(canForce ? { force: form.get("force") === "on" } : {}),
      }),
  });
}
