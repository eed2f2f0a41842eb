// Workers: their state, load and jobs, and the commands to drain or stop them.

/** @import { Page, Table, Worker } from "../types.d.ts" */

import { shareBar } from "../charts/share_bar.js";
import { formDialog, reasonField, textOf } from "../components/dialog.js";
import { actionButton, badge, tag } from "../components/elements.js";
import { showRows, table } from "../components/table.js";
import { toast } from "../components/toast.js";
import { get, may, post } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { startPage } from "../core/page.js";
import { emptyState } from "../core/states.js";
import { elapsedElement, timeElement } from "../core/time.js";
import { jobUrl } from "../core/urls.js";
import { t, translated } from "../core/words.js";
import "../core/shell.js";

const SHOWN_TYPES = 10, SHOWN_JOBS = 50, OPEN_JOBS = 5;
/** @type {ReturnType<typeof build> | null} */
let view = null;

/**
 * @param {Worker} worker
 * @param {"drain" | "stop"} command
 */
async function send(worker, command) {
  const done = await formDialog({
    title: t(`workers.${command}`, { name: worker.id }),
    lead: t(`workers.${command}.more`),
    button: t(`action.${command}`),
    danger: command === "stop",
    fields: reasonField(),
    submit: (form) => post(`workers/${encodeURIComponent(worker.id)}/${command}`, { reason: textOf(form, "reason") }),
  });
  if (done) toast(t("done.command"));
  refresh();
}

/** @param {HTMLElement} root */
function build(root) {
  /** @type {Table<Worker>} */
  const rows = table(t("page.workers"), [
    {
      label: t("col.worker"),
      cell: ({ id, host, pid, version }) => [
        h("strong", { class: "break" }, id),
        h("div", { class: "small soft" }, `${host} · ${pid} · ${version}`),
      ],
    },
    { label: t("col.state"), cell: stateCell },
    { label: t("col.load"), cell: loadCell },
    { label: t("col.queues"), cell: ({ queues }) => (queues?.length ? queues.join(", ") : t("workers.all-queues")) },
    {
      label: t("col.types"),
      cell: ({ job_types }) => h("div", { class: "row" }, job_types.slice(0, SHOWN_TYPES).map(tag)),
    },
    { label: t("col.running"), cell: jobsCell },
    { label: t("col.heartbeat"), class: "nowrap", cell: ({ seen_at }) => timeElement(seen_at) },
    may("operate") && { label: t("col.actions"), class: "tight", cell: actionsCell },
  ]);
  const list = h("div");
  fill(root, list);
  return { rows, list };
}

/** @param {Worker} worker */
function stateCell({ live, state, order }) {
  const tone = live ? (order ? "warning" : "good") : "neutral";
  return [
    badge(tone, live ? translated("worker", state) : t("workers.offline")),
    order && h("div", { class: "small soft" }, `${translated("action", order.act)} · ${order.actor}`),
  ];
}

/** @param {Worker} worker */
function loadCell({ busy, slots }) {
  const bar = shareBar([["leased", busy], ["none", Math.max(0, slots - busy)]]);
  return [`${busy} / ${slots}`, h("div", { class: "load" }, bar)];
}

/** @param {Worker} worker */
function jobsCell({ held }) {
  if (!held.length) return null;
  const links = held.slice(0, SHOWN_JOBS).map((job) =>
    h(
      "li",
      {},
      h("a", { href: jobUrl(job.id) }, job.job_type),
      " ",
      h("span", { class: "soft" }, elapsedElement(job.since)),
    )
  );
  const open = held.length <= OPEN_JOBS;
  return h("details", { open }, h("summary", {}, t("workers.jobs", { n: held.length })), h("ul", {}, links));
}

/** @param {Worker} worker */
const actionsCell = (worker) =>
  worker.live && !worker.order && h(
    "div",
    { class: "actions" },
    actionButton("drain", () => send(worker, "drain"), { class: "tiny" }),
    actionButton("stop", () => send(worker, "stop"), { class: "tiny danger" }),
  );

/**
 * @param {HTMLElement} root
 * @param {Page<Worker>} page
 */
function draw(root, { items }) {
  view ??= build(root);
  const empty = () => emptyState(t("workers.none"), t("workers.none.more"));
  showRows(view.list, view.rows, items, ({ id }) => id, empty);
}

const refresh = startPage({ load: () => get("workers"), draw, poll: 2000, concerns: () => false });
