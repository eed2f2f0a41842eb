/** @import { Alert, Silence } from "../../types.d.ts" */

import { field, formDialog, reasonField, textOf } from "../../components/dialog.js";
import { toast, toastError } from "../../components/toast.js";
import { call, post } from "../../core/api.js";
import { h } from "../../core/dom.js";
import { t } from "../../core/words.js";

/** @param {Alert} alert */
export const acknowledge = ({ rule, subject }) =>
  post("alerts/acknowledge", { rule, subject }).then(() => toast(t("done.acknowledge")), toastError);

/** @param {Alert} alert */
export async function silence({ rule, subject }) {
  const done = await formDialog({
    title: t("alert.silence", { rule }),
    lead: t("alert.silence.more"),
    button: t("action.silence"),
    fields: [
      field(
        t("alert.minutes"),
        h("input", { name: "minutes", type: "number", min: 1, max: 43200, value: "60", required: true }),
      ),
      h(
        "label",
        { class: "check" },
        h("input", { type: "checkbox", name: "only", checked: true }),
        t("alert.only-subject", { subject }),
      ),
      reasonField(),
    ],
    submit: (form) =>
      post("alerts/silences", {
        rule,
        subject: form.get("only") === "on" ? subject : "",
        seconds: 60 * Number(form.get("minutes")),
        reason: textOf(form, "reason"),
      }),
  });
  if (done) toast(t("done.silence"));
}

/** @param {Silence} silence */
export const endSilence = ({ id }) =>
  call("DELETE", `alerts/silences/${encodeURIComponent(id)}`).then(() => toast(t("done.end-silence")), toastError);
