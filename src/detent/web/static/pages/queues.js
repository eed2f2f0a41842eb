// Queues: how many jobs are ready, scheduled and running; pause and resume; limits.

/** @import { Limit, Page, Pause, Queue, QueueList, Table } from "../types.d.ts" */

import { field, formDialog, reasonField, textOf } from "../components/dialog.js";
import { actionButton, badge, button, tag } from "../components/elements.js";
import { filterTerm } from "../components/filter_query.js";
import { showRows, table } from "../components/table.js";
import { toast, toastError } from "../components/toast.js";
import { get, may, post } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { startPage } from "../core/page.js";
import { emptyState } from "../core/states.js";
import { timeElement } from "../core/time.js";
import { jobsUrl } from "../core/urls.js";
import { formatNumber, t } from "../core/words.js";
import { limitsCard } from "./queues/limits_card.js";
import "../core/shell.js";

const KINDS = ["queue", "job_type", "tenant"];
const SHOWN_TYPES = 12;
/** @type {ReturnType<typeof build> | null} */
let view = null;

/** @param {string} queue */
async function pauseQueue(queue) {
  const done = await formDialog({
    title: t("confirm.pause", { name: queue }),
    lead: t("confirm.pause.more"),
    button: t("action.pause"),
    fields: reasonField(),
    submit: (form) => sendPause("queue", queue, form),
  });
  if (done) toast(t("done.pause", { name: queue }));
  refresh();
}

/** Pause a queue, a job type or a tenant by its name. */
async function pauseByName() {
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
  refresh();
}

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
async function resume(kind, name) {
  try {
    await post(`queues/${encodeURIComponent(name)}/resume?kind=${kind}`);
    toast(t("done.resume", { name }));
  } catch (error) {
    toastError(error);
  }
  refresh();
}

/** @param {HTMLElement} root */
function build(root) {
  const queues = buildQueueTable(), pauses = buildPauseTable(), limits = limitsCard(() => refresh());
  const list = h("div", { class: "block" });
  const pausesCard = h("section", { class: "card block" }, h("h2", {}, t("queues.pauses")), pauses.node);
  const toolbar = may("operate") && h("div", { class: "toolbar" }, button(t("queues.pause-any"), pauseByName));
  fill(root, toolbar, list, pausesCard, limits.node);
  return { queues, pauses, limits, list, pausesCard };
}

/** @returns {Table<Queue>} */
const buildQueueTable = () =>
  table(t("page.queues"), [
    { label: t("col.queue"), cell: ({ queue }) => h("a", { href: jobsUrl(filterTerm("queue", queue)) }, queue) },
    { label: t("col.state"), cell: stateCell },
    { label: t("col.ready"), class: "number", cell: ({ due }) => formatNumber(due) },
    { label: t("col.scheduled"), class: "number", cell: ({ later }) => formatNumber(later) },
    { label: t("col.running"), class: "number", cell: ({ held }) => formatNumber(held) },
    { label: t("col.oldest"), class: "nowrap", cell: ({ oldest_due_at }) => timeElement(oldest_due_at) },
    { label: t("col.workers"), class: "number", cell: ({ workers }) => formatNumber(workers) },
    {
      label: t("col.types"),
      cell: ({ job_types }) =>
        h("div", { class: "row" }, job_types.slice(0, SHOWN_TYPES).map(tag), job_types.length > SHOWN_TYPES && "…"),
    },
    may("operate") && {
      label: t("col.actions"),
      class: "tight",
      cell: ({ queue, paused }) =>
        paused
          ? actionButton("resume", () => resume("queue", queue), { class: "tiny" })
          : actionButton("pause", () => pauseQueue(queue), { class: "tiny" }),
    },
  ]);

/** @returns {Table<Pause>} */
const buildPauseTable = () =>
  table(t("queues.pauses"), [
    { label: t("queues.kind"), cell: ({ kind }) => t(`kind.${kind}`) },
    { label: t("col.name"), cell: ({ name }) => name },
    { label: t("col.actor"), cell: ({ actor }) => actor },
    { label: t("col.reason"), cell: ({ reason }) => reason },
    { label: t("col.since"), cell: ({ at }) => timeElement(at) },
    may("operate") && {
      label: t("col.actions"),
      class: "tight",
      cell: ({ kind, name }) => actionButton("resume", () => resume(kind, name), { class: "tiny" }),
    },
  ]);

/** @param {Queue} queue */
function stateCell({ paused }) {
  if (!paused) return badge("good", t("queues.active"));
  return [
    badge("warning", t("queues.paused")),
    h("div", { class: "small soft break" }, paused.actor, paused.reason && `: ${paused.reason}`),
  ];
}

async function load() {
  /** @type {[QueueList, Page<Limit>]} */
  const [queues, limits] = await Promise.all([get("queues"), get("limits")]);
  return { queues: queues.items, pauses: queues.pauses, limits: limits.items };
}

/**
 * @param {HTMLElement} root
 * @param {{ queues: Queue[], pauses: Pause[], limits: Limit[] }} data
 */
function draw(root, { queues, pauses, limits }) {
  view ??= build(root);
  const empty = () => emptyState(t("queues.none"), t("jobs.none.more"));
  showRows(view.list, view.queues, queues, ({ queue }) => queue, empty);
  const otherPauses = pauses.filter(({ kind }) => kind !== "queue");
  view.pausesCard.hidden = !otherPauses.length;
  view.pauses.show(otherPauses, ({ kind, name }) => `${kind}/${name}`);
  view.limits.show(limits);
}

const refresh = startPage({ load, draw, poll: 3000 });
