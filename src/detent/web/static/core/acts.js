// The acts a job's status allows, each with its dialog.
import { h, jobLink } from "./dom.js";
import { payloads, post } from "./api.js";
import { ask, field, reasonField, toast } from "./dialog.js";
import { editor } from "./editor.js";
import { t } from "./words.js";

const DANGER = new Set(["cancel", "abort", "reject"]);
const DECISIONS = new Set(["approve", "reject"]);

export function actButtons(job, detail, again) {
  return detail.acts.map((one) => h("button", {
    type: "button", class: one.act === "approve" ? "primary" : DANGER.has(one.act) ? "danger" : null, "data-act": one.act, "data-focus": one.act,
    on: { click: () => start(one, job, detail, again) },
  }, t(`act.${one.act}`)));
}

export async function start(one, job, detail, again) {
  const path = `jobs/${encodeURIComponent(job.id)}/${one.act}`;
  const reason = (form) => ({ reason: form.get("reason")?.trim() || null });
  const common = { title: t(`ask.${one.act}`), lead: t(`ask.${one.act}.more`), button: t(`act.${one.act}`), danger: DANGER.has(one.act) };
  let done;
  if (one.act === "signal") {
    const data = editor({ label: t("field.data"), value: null });
    done = await ask({ ...common, fields: [
      field(t("field.signal"), h("input", { name: "name", required: true, maxlength: 200, value: detail.wait?.name ?? "" })), data.node,
    ], act: (form) => post(path, { name: form.get("name"), data: data.value() }) });
  } else if (one.act === "requeue") {
    const content = editor({ label: t("field.payload"), value: job.payload, object: true });
    done = await ask({ ...common, fields: [payloads ? content.node : null, reasonField()],
      act: (form) => post(path, { ...reason(form), ...(payloads && content.changed() ? { payload: content.value() } : {}) }) });
  } else {
    const force = one.act === "cancel" && one.request ? h("label", { class: "check" }, h("input", { type: "checkbox", name: "force" }), t("ask.force")) : null;
    const question = DECISIONS.has(one.act) ? detail.approvals.find((asked) => asked.name === detail.wait?.name && !asked.decision) : null;
    const shown = question ? { digest: question.digest } : {};
    done = await ask({ ...common, lead: one.request ? t("ask.cancel.request") : common.lead, fields: [reasonField(), force],
      act: (form) => post(path, { ...reason(form), ...shown, ...(force ? { force: form.get("force") === "on" } : {}) }) });
  }
  if (!done) return;
  toast(t(`did.${one.act}`));
  again();
  if (one.act === "requeue" && done.job) location.assign(jobLink(done.job.id));
}
