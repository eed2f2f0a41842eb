// The form of a schedule, for a new one and for one that is changed; it shows the next fires while one types.
import { h } from "./dom.js";
import { payloads, post, send } from "./api.js";
import { ask, field, reasonField } from "./dialog.js";
import { editor } from "./editor.js";
import { exact, zone } from "./time.js";
import { t } from "./words.js";

const KINDS = { cron: "0 3 * * *", every: "1h30m", at: "2030-01-31T12:00:00Z" };

export function askSchedule(one = null) {
  const text = (name, value, more = {}) => h("input", { name, value: value ?? "", maxlength: 200, ...more });
  const content = editor({ label: t("field.payload"), value: one?.payload ?? {}, object: true });
  const kind = h("select", { name: "kind" }, Object.keys(KINDS).map((name) => h("option", { value: name, selected: name === one?.schedule_type }, t(`schedules.${name}`))));
  const timing = text("value", one?.expression, { required: true, placeholder: KINDS[kind.value] });
  const tz = text("tz", one ? one.timezone : zone, { maxlength: 80 });
  const shown = h("p", { class: "soft small", role: "status" });
  const when = () => ({ [kind.value]: timing.value.trim(), tz: tz.value.trim() || null });
  const preview = async () => {
    timing.placeholder = KINDS[kind.value];
    if (!timing.value.trim()) return;
    try {
      const { fires } = await post("schedules/preview?count=3", when());
      shown.textContent = `${t("col.next")}: ${fires.map((fire) => exact(fire.fire_at)).join(" · ") || t("schedules.no-fires")}`;
    } catch (error) { shown.textContent = error.message; }
  };
  for (const control of [kind, timing, tz]) control.addEventListener("change", preview);
  if (one) preview();
  const said = (form) => ({ ...when(), job_type: form.get("job_type").trim(), queue: form.get("queue").trim() || null });
  return ask({
    title: one ? t("schedules.edit", { name: one.name }) : t("schedules.add"), button: t(one ? "act.save" : "act.add"), lead: t(one ? "schedules.edit.more" : "schedules.add.more"),
    fields: [one ? null : field(t("field.name"), text("name", "", { required: true })), field(t("field.job-type"), text("job_type", one?.job_type, { required: true })),
      field(t("schedules.kind"), kind), field(t("col.timing"), timing), field(t("field.timezone"), tz), shown, field(t("field.queue"), text("queue", one?.queue)),
      payloads || !one ? content.node : null, one && reasonField()],
    act: (form) => (one
      ? send("PATCH", `schedules/${encodeURIComponent(one.id)}`, { ...said(form), ...(payloads && content.changed() ? { payload: content.value() } : {}), version: one.version, reason: form.get("reason") || null })
      : post("schedules", { ...said(form), name: form.get("name").trim(), payload: content.value() })),
  });
}
