// Workers: their state, load and jobs.

/** @import { Page, Table, Worker } from "../types.d.ts" */

import { tag } from "../components/elements.js";
import { showRows, table } from "../components/table.js";
import { get, may } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { startPage } from "../core/page.js";
import { emptyState } from "../core/states.js";
import { elapsedElement, timeElement } from "../core/time.js";
import { jobUrl, workerUrl } from "../core/urls.js";
import { joined, t } from "../core/words.js";
import { workerActions, workerLoad, workerState } from "./workers/worker_parts.js";
import "../core/shell.js";

const SHOWN_TYPES = 10, SHOWN_JOBS = 50, OPEN_JOBS = 5;
/** @type {ReturnType<typeof build> | null} */
let view = null;

/** @param {HTMLElement} root */
function build(root) {
  /** @type {Table<Worker>} */
  const rows = table(t("page.workers"), [
    {
      label: t("col.worker"),
      cell: ({ id, host, pid, version }) => [
        h("a", { href: workerUrl(id), class: "break", "data-focus": "open" }, id),
        h("div", { class: "small soft uuid" }, `${host} · ${pid} · ${version}`),
      ],
    },
    { label: t("col.state"), cell: workerState },
    { label: t("col.load"), cell: workerLoad },
    {
      label: t("col.queues"),
      cell: ({ queues }) => (queues?.length ? joined(queues) : h("span", { class: "nowrap" }, t("workers.all-queues"))),
    },
    {
      label: t("col.types"),
      cell: typesCell,
    },
    { label: t("col.running"), cell: jobsCell },
    { label: t("col.heartbeat"), class: "nowrap wide", cell: ({ seen_at }) => timeElement(seen_at) },
    may("operate") && { label: t("col.actions"), class: "tight", cell: (worker) => workerActions(worker, refresh) },
  ]);
  const list = h("div");
  fill(root, list);
  return { rows, list };
}

/** @param {Worker} worker */
function typesCell({ job_types }) {
  const left = job_types.length - SHOWN_TYPES;
  const more = left > 0 && h("span", { class: "soft small" }, t("queues.more-types", { n: left }));
  return h("div", { class: "row" }, job_types.slice(0, SHOWN_TYPES).map(tag), more);
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
      h("span", { class: "soft nowrap" }, elapsedElement(job.since)),
    )
  );
  const open = held.length <= OPEN_JOBS;
  return h("details", { open }, h("summary", {}, t("workers.jobs", { n: held.length })), h("ul", {}, links));
}

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
