// Schedules: their timing and next run; add, edit, pause, resume, backfill, remove.

/** @import { Job, Page, Schedule, SchedulePreview, Table } from "../types.d.ts" */

import { formDialog, openDialog, reasonField, textOf } from "../components/dialog.js";
import { actionButton, badge, button, cursorPages, tag } from "../components/elements.js";
import { showRows, table } from "../components/table.js";
import { toast, toastError } from "../components/toast.js";
import { call, canSeePayloads, get, may, post } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { startPage } from "../core/page.js";
import { emptyState } from "../core/states.js";
import { timeElement, timeZone } from "../core/time.js";
import { jobUrl, setQueryParams } from "../core/urls.js";
import { formatNumber, language, richText, t } from "../core/words.js";
import { backfill } from "./schedules/backfill.js";
import { pausedNote, runList, scheduleDialog } from "./schedules/schedule_form.js";
import "../core/shell.js";

/** The language of cron expressions in words. */
const WORDS = language.slice(0, 2);
let text = new URLSearchParams(location.search).get("q") ?? "";
const pages = cursorPages(() => refresh());
/** @type {ReturnType<typeof build> | null} */
let view = null;
/** @param {Schedule} schedule */
const pathOf = ({ id }) => `schedules/${encodeURIComponent(id)}`;

/** @param {Schedule} schedule */
async function pause(schedule) {
  const { name } = schedule;
  const done = await formDialog({
    title: t("confirm.pause", { name }),
    lead: t("schedules.pause.more"),
    button: t("action.pause"),
    fields: reasonField(),
    submit: (form) => post(`${pathOf(schedule)}/pause`, { reason: textOf(form, "reason") }),
  });
  if (done) toast(t("done.pause", { name }));
}

/** @param {Schedule} schedule */
async function resume(schedule) {
  await post(`${pathOf(schedule)}/resume`).then(() => toast(t("done.resume", { name: schedule.name })), toastError);
}

/** @param {Schedule} schedule */
async function runNow(schedule) {
  const { name } = schedule;
  /** @type {Job | null} */
  const job = await formDialog({
    title: t("schedules.run-now", { name }),
    lead: t("schedules.run-now.more"),
    button: t("action.run-now"),
    fields: reasonField(),
    submit: (form) => post(`${pathOf(schedule)}/run`, { reason: textOf(form, "reason") }),
  });
  if (job) toast(t("done.run-now", { name }), { job: job.id });
}

/** @param {Schedule} schedule */
async function remove(schedule) {
  const { name } = schedule;
  const done = await formDialog({
    title: t("schedules.remove", { name }),
    lead: t("schedules.remove.more"),
    button: t("action.remove"),
    danger: true,
    confirmText: name,
    submit: () => call("DELETE", pathOf(schedule)),
  });
  if (done) toast(t("done.remove", { name }));
}

async function add() {
  const added = await scheduleDialog();
  if (added) toast(t("done.add", { name: added.name }));
}

/** @param {Schedule} schedule */
async function edit(schedule) {
  const edited = await scheduleDialog(schedule);
  if (edited) toast(t("done.edit", { name: edited.name }));
}

/** @param {Schedule} schedule */
async function showNextRuns(schedule) {
  try {
    /** @type {SchedulePreview} */
    const { items, timezone, in_words } = await get(`${pathOf(schedule)}/preview`, { count: 20 });
    const zoneKey = timezone === timeZone ? "schedules.zone.same" : "schedules.zone";
    openDialog(t("schedules.next-runs", { name: schedule.name }), [
      in_words[WORDS] && h("p", {}, h("strong", {}, in_words[WORDS])),
      pausedNote(schedule),
      h("p", { class: "soft" }, t(zoneKey, { zone: timezone, viewerZone: timeZone })),
      runList(items),
    ]);
  } catch (error) {
    toastError(error);
  }
}

/** @param {() => Promise<void>} action */
const thenRefresh = (action) => async () => {
  await action();
  refresh();
};

/** @param {HTMLElement} root */
function build(root) {
  /** @type {Table<Schedule>} */
  const rows = table(t("page.schedules"), [
    { label: t("col.name"), cell: nameCell },
    {
      label: t("col.timing"),
      class: "wide",
      cell: ({ expression, in_words, schedule_type, timezone }) => [
        h("code", {}, expression),
        in_words[WORDS] && h("div", { class: "small" }, in_words[WORDS]),
        h("div", { class: "small soft" }, `${t(`schedules.type.${schedule_type}`)} · ${timezone ?? "UTC"}`),
      ],
    },
    { label: t("col.state"), cell: stateCell },
    { label: t("col.next-run"), class: "nowrap", cell: nextRunCell },
    {
      label: t("col.last-run"),
      class: "nowrap",
      cell: ({ last_fire_at, last_job_id }) => [
        timeElement(last_fire_at),
        last_job_id && [" ", h("a", { href: jobUrl(last_job_id) }, t("link.job"))],
      ],
    },
    {
      label: t("schedules.runs"),
      class: "number",
      cell: ({ fires, misfires }) => [
        formatNumber(fires),
        misfires > 0 && h("div", { class: "small soft" }, t("schedules.missed", { n: misfires })),
      ],
    },
    { label: t("col.tenant"), cell: ({ tenant_id }) => tenant_id },
    may("operate") && { label: t("col.actions"), class: "tight", cell: actionsCell },
  ]);
  const list = h("div");
  const addButton = button(t("schedules.add"), thenRefresh(add), { class: "primary" });
  const label = t("schedules.filter");
  const input = h("input", {
    type: "search",
    id: "filter",
    value: text,
    placeholder: label,
    "aria-label": label,
    maxlength: 200,
  });
  input.addEventListener("input", () => {
    text = input.value.trim();
    setQueryParams({ q: text });
    pages.restart();
  });
  fill(
    root,
    h("div", { class: "toolbar" }, h("div", { class: "filter" }, input), may("operate") && addButton),
    list,
    pages.foot,
  );
  return { rows, list };
}

/** @param {Schedule} schedule */
const nameCell = ({ name, declared, job_type, queue }) => [
  h("strong", {}, name),
  declared && [" ", tag(t("schedules.declared"))],
  h("div", { class: "small soft" }, `${job_type} · ${t("limits.named", { kind: t("kind.queue"), name: queue })}`),
];

/** @param {Schedule} schedule */
const stateBadge = ({ paused, held_back, next_fire_at }) => {
  if (paused) return badge("warning", t("queues.state.paused"));
  if (held_back) return badge("warning", t("schedules.held-back"));
  return next_fire_at ? badge("good", t("schedules.active")) : badge("neutral", t("schedules.finished"));
};

/** @param {Schedule} schedule */
const stateCell = (schedule) => [
  stateBadge(schedule),
  schedule.held_back && h("div", { class: "small soft" }, t("schedules.held-back.more")),
  schedule.last_error && canSeePayloads && h("div", { class: "small error" }, schedule.last_error),
];

/** @param {Schedule} schedule */
const nextRunCell = (schedule) => [
  button(timeElement(schedule.retry_at ?? schedule.next_fire_at), () => showNextRuns(schedule), {
    class: "plain",
    title: t("schedules.next-runs", { name: schedule.name }),
  }),
  schedule.held_back &&
  h("div", { class: "small soft" }, richText("schedules.due-since", { time: timeElement(schedule.next_fire_at) })),
];

/** @param {Schedule} schedule */
function actionsCell(schedule) {
  const props = { class: "tiny" };
  return h(
    "div",
    { class: "actions" },
    schedule.paused
      ? actionButton("resume", thenRefresh(() => resume(schedule)), props)
      : actionButton("pause", thenRefresh(() => pause(schedule)), props),
    actionButton("run-now", thenRefresh(() => runNow(schedule)), props),
    actionButton("edit", thenRefresh(() => edit(schedule)), props),
    actionButton("backfill", thenRefresh(() => backfill(schedule)), props),
    actionButton("remove", thenRefresh(() => remove(schedule)), { class: "tiny danger" }),
  );
}

/**
 * @param {HTMLElement} root
 * @param {Page<Schedule>} page
 */
function draw(root, { items, next_cursor }) {
  view ??= build(root);
  const empty = () =>
    text
      ? emptyState(t("schedules.no-match"), t("jobs.no-match.more"))
      : emptyState(t("schedules.none"), t(may("operate") ? "schedules.none.more" : "schedules.none.viewer"));
  showRows(view.list, view.rows, items, ({ id }) => id, empty);
  pages.draw(next_cursor);
}

const refresh = startPage({
  load: () => get("schedules", { ...(text ? { text } : {}), cursor: pages.cursor(), limit: 50 }),
  draw,
  every: 2000,
  poll: 5000,
});
