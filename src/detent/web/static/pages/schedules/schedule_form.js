/** @import { Declaration, JsonSchema, Page, Props, Schedule, SchedulePreview } from "../../types.d.ts" */

import { field, formDialog, reasonField, textOf } from "../../components/dialog.js";
import { payloadCard, showPayloadProblems } from "../../components/schema/payload_card.js";
import { asProblem, call, canSeePayloads, get, may, post, Problem } from "../../core/api.js";
import { fill, h } from "../../core/dom.js";
import { parseJson } from "../../core/json.js";
import { formatExact, timeZone } from "../../core/time.js";
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
export async function scheduleDialog(schedule = null) {
  const queue = textInput("queue", schedule?.queue);
  const job = await jobFields(schedule, queue);
  const timing = timingFields(schedule);
  /** @param {FormData} form */
  const common = (form) => ({ ...timing.values(), job_type: textOf(form, "job_type"), queue: textOf(form, "queue") });
  return formDialog({
    title: schedule ? t("schedules.edit", { name: schedule.name }) : t("schedules.add"),
    lead: t(schedule ? "schedules.edit.more" : "schedules.add.more"),
    button: t(schedule ? "action.save" : "action.add"),
    fields: [
      !schedule && field(t("field.name"), textInput("name", "", { required: true }), true),
      job.type,
      timing.nodes,
      field(t("field.queue"), queue),
      (canSeePayloads || !schedule) && job.payload,
      schedule && reasonField(),
    ],
    submit: (form) =>
      job.withPayload((payload) =>
        schedule
          ? call("PATCH", `schedules/${encodeURIComponent(schedule.id)}`, {
            json: { ...common(form), ...payload, version: schedule.version, reason: textOf(form, "reason") },
          })
          : post("schedules", { ...common(form), ...payload, name: textOf(form, "name") })
      ).catch((error) => {
        const control = timing.showProblem(error);
        control?.focus();
        throw control ? new Error(t("enqueue.invalid")) : error;
      }),
  });
}

/**
 * The job type, and the payload that workers have declared for this type.
 * @param {Schedule | null} schedule
 * @param {HTMLInputElement} queue shows the declared queue as long as it is empty
 */
async function jobFields(schedule, queue) {
  /** @param {string} name @returns {Promise<Declaration | undefined>} */
  const declarationOf = async (name) => (await declared({ job_type: name }))[0];
  const [types, declaration] = await Promise.all([
    declared({ fields: ["job_type"] }),
    schedule ? declarationOf(schedule.job_type) : undefined,
  ]);
  const type = textInput("job_type", schedule?.job_type, {
    required: true,
    autocomplete: "off",
    list: "declared-types",
    on: { change: () => void chooseType() },
  });
  /** @param {JsonSchema | null} schemaOfType @param {unknown} value */
  const cardOf = (schemaOfType, value) =>
    payloadCard(schemaOfType, value, type.value.trim() ? undefined : t("schedules.choose-type"));
  let card = cardOf(declaration?.payload_schema ?? null, schedule?.payload ?? {});
  const payload = h("div", {}, card.node);
  let changedBefore = false;

  async function chooseType() {
    const name = type.value.trim();
    const declaredType = name ? await declarationOf(name) : undefined;
    const text = card.text();
    if (type.value.trim() !== name) return;
    queue.placeholder = String(declaredType?.options.queue ?? "");
    if (text === null) return;
    changedBefore ||= card.changed();
    card = cardOf(declaredType?.payload_schema ?? null, parseJson(text));
    fill(payload, card.node);
  }

  return {
    type: [
      field(t("field.job-type"), type, true),
      h("datalist", { id: "declared-types" }, types.map(({ job_type }) => h("option", { value: job_type }))),
    ],
    payload,
    /**
     * Send the payload, unless an edit leaves it; what is wrong with it is shown at its field.
     * @template Result
     * @param {(payload: { payload?: unknown }) => Promise<Result>} send
     */
    withPayload: async (send) => {
      const isKept = schedule && (!canSeePayloads || !(changedBefore || card.changed()));
      const value = isKept ? undefined : card.checkedValue();
      if (!isKept && value === undefined) throw new Error(t("enqueue.invalid"));
      try {
        return await send(isKept ? {} : { payload: value });
      } catch (error) {
        showPayloadProblems(card, error);
        throw error;
      }
    },
  };
}

/**
 * Job types that workers have declared; none if they cannot be read: the payload is JSON then.
 * @param {{ job_type?: string, fields?: string[] }} query
 * @returns {Promise<Declaration[]>}
 */
async function declared(query) {
  if (!may("submit")) return [];
  /** @type {Page<Declaration>} */
  const { items } = await get("declarations", query).catch(() => ({ items: [] }));
  return items;
}

/** @param {SchedulePreview["items"]} runs */
export const runList = (runs) => h("ol", {}, runs.map((run) => h("li", {}, formatExact(run.fire_at))));

/** @param {Schedule | null} schedule */
export const pausedNote = (schedule) => schedule?.paused && h("p", {}, t("schedules.paused-runs"));

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
  const zone = textInput("timezone", schedule ? schedule.timezone : timeZone, { maxlength: 80 });
  const nextRuns = h("div", { class: "preview small", role: "status" });
  const problem = h("p", { class: "error small", role: "status" });
  /** Show an error at the field that it is about, which is returned. @param {unknown} error */
  const showProblem = (error) => {
    const name = error instanceof Problem ? error.field : "";
    const control = name === kind.value ? expression : name === "timezone" ? zone : null;
    for (const each of [expression, zone]) each.setAttribute("aria-invalid", String(each === control));
    fill(problem, control && asProblem(error).message);
    control?.parentElement?.after(problem);
    return control;
  };
  const values = () => ({ [kind.value]: expression.value.trim(), timezone: zone.value.trim() || null });
  const unchanged = JSON.stringify(values()), query = { count: 3 };
  /** As long as nothing is changed, those of the schedule itself, which counts intervals from its start. */
  const nextRunsOfTiming = () =>
    schedule && JSON.stringify(values()) === unchanged
      ? get(`schedules/${encodeURIComponent(schedule.id)}/preview`, query)
      : call("POST", "schedules/preview", { query, json: values() });
  const preview = async () => {
    expression.placeholder = EXAMPLES[kind.value];
    if (!expression.value.trim()) return;
    try {
      /** @type {SchedulePreview} */
      const { items, in_words } = await nextRunsOfTiming();
      showProblem(null);
      const words = in_words[language.slice(0, 2)];
      fill(
        nextRuns,
        words && h("strong", {}, words),
        items.length > 0 && pausedNote(schedule),
        h("p", {}, t(items.length ? "schedules.preview" : "schedules.no-runs")),
        runList(items),
      );
    } catch (error) {
      fill(nextRuns, !showProblem(error) && h("p", { class: "error" }, asProblem(error).message));
    }
  };
  for (const control of [kind, expression, zone]) control.addEventListener("change", preview);
  if (schedule) preview();
  const nodes = [
    field(t("schedules.kind"), kind),
    field(t("col.timing"), expression, true),
    field(t("field.timezone"), zone),
    nextRuns,
  ];
  return { nodes, values, showProblem };
}
