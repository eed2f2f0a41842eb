/** @import { Props, Schedule, SchedulePreview } from "../../types.d.ts" */

import { field, formDialog, reasonField, textOf } from "../../components/dialog.js";
import { jsonEditor } from "../../components/json_editor.js";
import { asProblem, call, canSeePayloads, post } from "../../core/api.js";
import { fill, h } from "../../core/dom.js";
import { formatExact, timeElement, timeZone } from "../../core/time.js";
import { language, t } from "../../core/words.js";

/** Kind of schedule -> example. @type {Record<string, string>} */
const EXAMPLES = { cron: "0 3 * * *", every: "1h30m", at: "2030-01-31T12:00:00Z" };

/**
 * @param {string} name
 * @param {string | null | undefined} value
 * @param {Props} [props]
 */
const textInput = (name, value, props = {}) => h("input", { name, value: value ?? "", maxlength: 200, ...props });

/**
 * A dialog to add a schedule, or to edit `schedule`. Shows the next runs while the timing is edited.
 * @param {Schedule | null} [schedule]
 * @returns {Promise<Schedule | null>}
 */
export function scheduleDialog(schedule = null) {
  const editor = jsonEditor({ label: t("field.payload"), value: schedule?.payload ?? {}, objectOnly: true });
  const timing = timingFields(schedule);
  /** @param {FormData} form */
  const common = (form) => ({ ...timing.values(), job_type: textOf(form, "job_type"), queue: textOf(form, "queue") });
  return formDialog({
    title: schedule ? t("schedules.edit", { name: schedule.name }) : t("schedules.add"),
    lead: t(schedule ? "schedules.edit.more" : "schedules.add.more"),
    button: t(schedule ? "action.save" : "action.add"),
    fields: [
      !schedule && field(t("field.name"), textInput("name", "", { required: true })),
      field(t("field.job-type"), textInput("job_type", schedule?.job_type, { required: true })),
      timing.nodes,
      field(t("field.queue"), textInput("queue", schedule?.queue)),
      (canSeePayloads || !schedule) && editor.node,
      schedule && reasonField(),
    ],
    submit: (form) =>
      schedule
        ? call("PATCH", `schedules/${encodeURIComponent(schedule.id)}`, {
          json: {
            ...common(form),
            ...(canSeePayloads && editor.changed() ? { payload: editor.value() } : {}),
            version: schedule.version,
            reason: textOf(form, "reason"),
          },
        })
        : post("schedules", { ...common(form), name: textOf(form, "name"), payload: editor.value() }),
  });
}

/** Kind, expression and time zone, with a preview of the next runs. @param {Schedule | null} schedule */
function timingFields(schedule) {
  const kind = h(
    "select",
    { name: "kind" },
    Object.keys(EXAMPLES).map((name) =>
      h("option", { value: name, selected: name === schedule?.schedule_type }, t(`schedules.${name}`))
    ),
  );
  const expression = textInput("value", schedule?.expression, { required: true, placeholder: EXAMPLES[kind.value] });
  const zone = textInput("tz", schedule ? schedule.timezone : timeZone, { maxlength: 80 });
  const nextRuns = h("div", { class: "preview small", role: "status" });
  const values = () => ({ [kind.value]: expression.value.trim(), tz: zone.value.trim() || null });
  const preview = async () => {
    expression.placeholder = EXAMPLES[kind.value];
    if (!expression.value.trim()) return;
    try {
      /** @type {SchedulePreview} */
      const { items, in_words } = await post("schedules/preview?count=3", values());
      const words = in_words[language.slice(0, 2)];
      fill(
        nextRuns,
        words && h("strong", {}, words),
        h("p", {}, t(items.length ? "schedules.preview" : "schedules.no-runs")),
        h("ol", {}, items.map((run) => h("li", {}, formatExact(run.fire_at), " · ", timeElement(run.fire_at)))),
      );
    } catch (error) {
      fill(nextRuns, h("p", { class: "error" }, asProblem(error).message));
    }
  };
  for (const control of [kind, expression, zone]) control.addEventListener("change", preview);
  if (schedule) preview();
  const nodes = [
    field(t("schedules.kind"), kind),
    field(t("col.timing"), expression),
    field(t("field.timezone"), zone),
    nextRuns,
  ];
  return { nodes, values };
}
