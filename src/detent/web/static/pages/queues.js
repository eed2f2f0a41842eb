// Queues: their state, jobs, throughput and running time; pause and resume; limits.

/** @import { Column, GroupSeries, Limit, Page, Pause, Queue, QueueList, SeriesGroups, Table } from "../types.d.ts" */

import { button } from "../components/elements.js";
import { showRows, table } from "../components/table.js";
import { get, may } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { startPage } from "../core/page.js";
import { emptyState } from "../core/states.js";
import { timeElement } from "../core/time.js";
import { jobTypeUrl, queueUrl } from "../core/urls.js";
import { t } from "../core/words.js";
import { currentSpan, spanTabs } from "./metrics/spans.js";
import { NUMBER_COLUMNS, SERIES_COLUMNS, withSeries } from "./queues/group_columns.js";
import { limitsCard } from "./queues/limits_card.js";
import { nameFilter } from "./queues/name_filter.js";
import { pauseButton, pauseByName } from "./queues/pausing.js";
import { queueState } from "./queues/state_badge.js";
import "../core/shell.js";

/** @typedef {Queue & { series: GroupSeries | null }} QueueRow */

const SHOWN_TYPES = 4;
/** @type {ReturnType<typeof build> | null} */
let view = null;

/** @param {HTMLElement} root */
function build(root) {
  const queues = buildQueueTable(), pauses = buildPauseTable(), limits = limitsCard(() => refresh());
  const list = h("div", { class: "block" });
  const filter = nameFilter(() => drawQueues());
  const pausesCard = h("section", { class: "card block" }, h("h2", {}, t("queues.pauses")), pauses.node);
  const toolbar = h(
    "div",
    { class: "toolbar between" },
    h("div", { class: "row" }, filter.node, may("operate") && button(t("queues.pause-any"), pauseAny)),
    spanTabs(() => refresh()),
  );
  fill(root, toolbar, list, pausesCard, limits.node);
  return { queues, pauses, limits, list, pausesCard, filter };
}

const pauseAny = () => pauseByName().then(() => refresh());

/** @returns {Table<QueueRow>} */
function buildQueueTable() {
  /** @type {(Column<QueueRow> | false)[]} */
  const columns = [
    { label: t("col.queue"), cell: ({ queue }) => h("a", { href: queueUrl(queue), "data-focus": "open" }, queue) },
    { label: t("col.state"), cell: queueState },
    ...NUMBER_COLUMNS,
    ...SERIES_COLUMNS,
    { label: t("col.types"), cell: typesCell },
    may("operate") && {
      label: t("col.actions"),
      class: "tight",
      cell: ({ queue, paused }) => pauseButton("queue", queue, paused !== null, () => refresh()),
    },
  ];
  return table(t("page.queues"), columns);
}

/** The first types, and a link to the page of the queue, which lists all. @param {QueueRow} row */
const typesCell = ({ queue, job_types }) =>
  h(
    "div",
    { class: "row" },
    job_types.slice(0, SHOWN_TYPES).map((name) => h("a", { class: "tag", href: jobTypeUrl(name) }, name)),
    job_types.length > SHOWN_TYPES &&
      h("a", { href: queueUrl(queue), class: "small" }, t("queues.more-types", { n: job_types.length - SHOWN_TYPES })),
  );

/** @returns {Table<Pause>} */
const buildPauseTable = () =>
  table(t("queues.pauses"), [
    { label: t("queues.kind"), cell: ({ kind }) => t(`kind.${kind}`) },
    { label: t("col.name"), cell: ({ name }) => name },
    { label: t("col.actor"), cell: ({ actor }) => actor },
    { label: t("col.reason"), class: "wide", cell: ({ reason }) => reason },
    { label: t("col.since"), cell: ({ at }) => timeElement(at) },
    may("operate") && {
      label: t("col.actions"),
      class: "tight",
      cell: ({ kind, name }) => pauseButton(kind, name, true, () => refresh()),
    },
  ]);

async function load() {
  /** @type {[QueueList, Page<Limit>, SeriesGroups]} */
  const [queues, limits, series] = await Promise.all([
    get("queues"),
    get("limits"),
    get("series/groups", { by: "queue", span: currentSpan() }),
  ]);
  return { ...queues, limits: limits.items, series };
}

/** @type {QueueRow[]} */
let rows = [];

function drawQueues() {
  if (!view) return;
  const { list, queues, filter } = view;
  const empty = () => emptyState(t("queues.none"), t("jobs.none.more"));
  showRows(list, queues, rows.filter(({ queue }) => filter.matches(queue)), ({ queue }) => queue, empty);
}

/**
 * @param {HTMLElement} root
 * @param {Awaited<ReturnType<typeof load>>} data
 */
function draw(root, { items, pauses, limits, series }) {
  view ??= build(root);
  rows = withSeries(items, series, ({ queue }) => queue);
  drawQueues();
  const otherPauses = pauses.filter(({ kind }) => kind !== "queue");
  view.pausesCard.hidden = !otherPauses.length;
  view.pauses.show(otherPauses, ({ kind, name }) => `${kind}/${name}`);
  view.limits.show(limits);
}

const refresh = startPage({ load, draw, every: 2000, poll: 3000 });
