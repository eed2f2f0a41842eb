// Pause and resume queues, job types and tenants.

import { field, formDialog, reasonField, textOf } from "../../components/dialog.js";
import { actionButton } from "../../components/elements.js";
import { toast, toastError } from "../../components/toast.js";
import { post } from "../../core/api.js";
import { h } from "../../core/dom.js";
import { t } from "../../core/words.js";

const KINDS = ["queue", "job_type", "tenant"];

/**
 * @param {string} kind
 * @param {string} name
 * @param {FormData} form
 * @returns {Promise<{ name: string }>}
 */
const sendPause = (kind, name, form) =>
  post(`queues/${encodeURIComponent(name)}/pause?kind=${kind}`, { reason: textOf(form, "reason") });

/**
 * @param {string} kind
 * @param {string} name
 */
async function pause(kind, name) {
  const done = await formDialog({
    title: t("confirm.pause", { name }),
    lead: t("confirm.pause.more"),
    button: t("action.pause"),
    fields: reasonField(),
    submit: (form) => sendPause(kind, name, form),
  });
  if (done) toast(t("done.pause", { name }));
}

/** Pause a queue, a job type or a tenant by its name. */
export async function pauseByName() {
  const done = await formDialog({
    title: t("queues.pause-any"),
    lead: t("confirm.pause.more"),
    button: t("action.pause"),
    fields: [
      field(
        t("queues.kind"),
        h("select", { name: "kind" }, KINDS.map((kind) => h("option", { value: kind }, t(`kind.${kind}`)))),
      ),
      field(t("field.name"), h("input", { name: "name", required: true, maxlength: 200 })),
      reasonField(),
    ],
    submit: (form) => sendPause(String(form.get("kind")), String(form.get("name")), form),
  });
  if (done) toast(t("done.pause", { name: done.name }));
}

/**
 * @param {string} kind
 * @param {string} name
 */
async function resume(kind, name) {
  try {
    await post(`queues/${encodeURIComponent(name)}/resume?kind=${kind}`);
    toast(t("done.resume", { name }));
  } catch (error) {
    toastError(error);
  }
}

/**
 * The button that pauses or resumes.
 * @param {string} kind
 * @param {string} name
 * @param {boolean} paused
 * @param {() => void} refresh
 */
export const pauseButton = (kind, name, paused, refresh) =>
  paused
    ? actionButton("resume", () => resume(kind, name).then(refresh), { class: "tiny" })
    : actionButton("pause", () => pause(kind, name).then(refresh), { class: "tiny" });
