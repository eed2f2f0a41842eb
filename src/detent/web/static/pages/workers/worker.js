// One worker: what it runs now, what it takes, its load, and what it has done lately.

/** @import { Page, RunningJob, Table, WorkerDetail, WorkerMinute, WorkerRecovery } from "../../types.d.ts" */

import { lineChart } from "../../charts/line_chart.js";
import { card, cardWithHead, linkWithId } from "../../components/elements.js";
import { filterTerm } from "../../components/filter_query.js";
import { progressBar } from "../../components/progress_bar.js";
import { detailsList, showRows, table } from "../../components/table.js";
import { asProblem, get } from "../../core/api.js";
import { fill, h, requireElement } from "../../core/dom.js";
import { startPage } from "../../core/page.js";
import { emptyState } from "../../core/states.js";
import { elapsedElement, formatDuration, timeElement } from "../../core/time.js";
import { jobsUrl, jobTypeUrl, jobUrl, nameInQuery, queueUrl, urlFor } from "../../core/urls.js";
import { formatNumber, t } from "../../core/words.js";
import { perMinute } from "../metrics/series_cards.js";
import { workerActions, workerLoad, workerState } from "./worker_parts.js";
import "../../core/shell.js";

/** @typedef {{ worker: WorkerDetail | null, recovery: WorkerRecovery | undefined }} Data */
/** @typedef {{ at: number, succeeded: number, failed: number, retried: number }} Point */

const MINUTE_MS = 60_000, NOT_FOUND = 404;
const id = nameInQuery();
const allJobs = jobsUrl(filterTerm("worker", id));
/** @type {ReturnType<typeof build> | null} */
let view = null;
requireElement("h1").textContent = t("worker.title", { name: id });
document.title = `${id} · Detent`;

/** @param {HTMLElement} root */
function build(root) {
  const head = h("div", { class: "toolbar between" }), tiles = h("div", { class: "tiles" });
  const running = buildRunning(), runningList = h("div"), details = h("div"), blocked = h("div");
  const lost = h("div");
  const chart = lineChart({
    label: t("worker.recent"),
    format: perMinute,
    series: [
      { name: t("overview.succeeded"), tone: "good", value: (/** @type {Point} */ point) => point.succeeded },
      { name: t("worker.retried"), tone: "blocked", value: (point) => point.retried },
      { name: t("overview.failed"), tone: "bad", value: (point) => point.failed },
    ],
  });
  const window = h("span", { class: "soft small" });
  const jobsLink = h("a", { class: "button", href: allJobs }, t("worker.all-jobs"));
  fill(
    root,
    head,
    blocked,
    tiles,
    h("div", { class: "block", id: "running" }, cardWithHead(t("group.running"), jobsLink, runningList)),
    h(
      "div",
      { class: "grid" },
      h("div", { class: "span-7" }, cardWithHead(t("worker.recent"), window, chart.node)),
      h("div", { class: "span-5" }, card(t("worker.details"), details)),
    ),
    lost,
  );
  return { head, tiles, blocked, running, runningList, chart, window, details, lost };
}

/** @returns {Table<RunningJob>} */
const buildRunning = () =>
  table(t("group.running"), [
    { label: t("col.job"), cell: (job) => linkWithId(jobUrl(job.id), job.job_type, job.id) },
    { label: t("col.elapsed"), class: "nowrap", cell: ({ since }) => elapsedElement(since) },
    { label: t("col.progress"), cell: ({ progress }) => progressBar(progress) },
    { label: t("col.queue"), cell: ({ queue }) => h("a", { href: queueUrl(queue) }, queue) },
    { label: t("col.tenant"), cell: ({ tenant_id }) => tenant_id },
    { label: t("col.executions"), class: "number", cell: ({ execution_no }) => formatNumber(execution_no) },
  ]);

/** @returns {Promise<Data>} */
async function load() {
  /** @type {[WorkerDetail | null, Page<WorkerRecovery>]} */
  const [worker, recoveries] = await Promise.all([
    get(`workers/${encodeURIComponent(id)}`).catch(orNull),
    get("workers/recoveries"),
  ]);
  return { worker, recovery: recoveries.items.find((recovery) => recovery.worker === id) };
}

/** @param {unknown} error */
function orNull(error) {
  if (asProblem(error).status === NOT_FOUND) return null;
  throw error;
}

/**
 * @param {HTMLElement} root
 * @param {Data} data
 */
function draw(root, { worker, recovery }) {
  if (!worker) {
    view = null;
    return void fill(root, goneState(), recovery && lostCard(recovery));
  }
  view ??= build(root);
  fill(view.head, h("div", {}, workerState(worker)), workerActions(worker, refresh));
  fill(view.blocked, worker.blocked && blockedBanner(worker.blocked));
  fill(view.tiles, tilesOf(worker));
  const none = () => h("p", { class: "soft" }, t("worker.idle"));
  showRows(view.runningList, view.running, worker.running_jobs, (job) => job.id, none);
  const { points, since, seconds } = worker.recent, to = new Date(worker.at).getTime();
  view.chart.show(points.map((minute) => pointOf(minute, to)), new Date(since).getTime(), to);
  view.window.textContent = t("worker.window", { span: formatDuration(seconds * 1000) });
  fill(view.details, detailsOf(worker));
  fill(view.lost, recovery && lostCard(recovery));
}

/**
 * The middle of the minute, or the present if that is earlier.
 * @param {WorkerMinute} minute
 * @param {number} now
 * @returns {Point}
 */
const pointOf = ({ at, ended_well, ended_badly, retries }, now) => ({
  at: Math.min(new Date(at).getTime() + MINUTE_MS / 2, now),
  succeeded: ended_well,
  failed: ended_badly,
  retried: retries,
});

/** @param {WorkerDetail} worker */
function tilesOf({ held, slots, recent }) {
  const window = t("worker.window", { span: formatDuration(recent.seconds * 1000) });
  const rate = recent.seconds ? ((recent.ended_well + recent.ended_badly) * 60) / recent.seconds : 0;
  /** @type {[string, string, string][]} */
  const tiles = [
    ["leased", `${formatNumber(held.length)} / ${formatNumber(slots)}`, t("worker.busy")],
    ["good", perMinute(rate), `${t("group.throughput")} · ${window}`],
    ["good", formatNumber(recent.ended_well), `${t("overview.succeeded")} · ${window}`],
    ["blocked", formatNumber(recent.retries), `${t("worker.retried")} · ${window}`],
    [recent.ended_badly ? "bad" : "good", formatNumber(recent.ended_badly), `${t("overview.failed")} · ${window}`],
  ];
  return tiles.map(([tone, value, label]) =>
    h("div", { class: `tile card ${tone}` }, h("b", {}, value), h("span", {}, label))
  );
}

/** @param {WorkerDetail} worker */
function detailsOf(worker) {
  const { queues, job_types, host, pid, version, started_at, seen_at, lease_seconds } = worker;
  /** @param {string[]} names @param {(name: string) => string} url */
  const tags = (names, url) =>
    h("div", { class: "row" }, names.map((name) => h("a", { class: "tag", href: url(name) }, name)));
  return detailsList([
    [t("col.load"), workerLoad({ ...worker, busy: worker.held.length })],
    [t("col.queues"), queues?.length ? tags(queues, queueUrl) : t("workers.all-queues")],
    [t("col.types"), tags(job_types, jobTypeUrl)],
    [t("worker.host"), host],
    [t("worker.pid"), String(pid || "–")],
    [t("worker.version"), version],
    [t("worker.started"), timeElement(started_at)],
    [t("col.heartbeat"), timeElement(seen_at)],
    [t("worker.lease"), formatDuration(lease_seconds * 1000)],
  ]);
}

/** @param {NonNullable<WorkerDetail["blocked"]>} blocked */
const blockedBanner = ({ since, location, job_id, job_type }) =>
  h(
    "p",
    { class: "banner block" },
    t("worker.blocked"),
    " ",
    elapsedElement(since),
    " · ",
    h("code", {}, location),
    job_id && [" · ", h("a", { href: jobUrl(job_id) }, job_type ?? job_id)],
  );

/** @param {WorkerRecovery} recovery */
const lostCard = ({ jobs, charged, given_up, ended_at }) =>
  h(
    "section",
    { class: "card block", id: "reclaimed" },
    h("h2", {}, t("worker.reclaimed", { n: jobs.length })),
    h("p", { class: "soft" }, t("worker.reclaimed.more", { charged, failed: given_up }), " ", timeElement(ended_at)),
    h(
      "ul",
      {},
      jobs.slice(0, 20).map((job) => h("li", {}, h("a", { href: jobUrl(job.id) }, job.job_type), ` · ${job.status}`)),
    ),
  );

const goneState = () =>
  emptyState(
    t("worker.gone"),
    t("worker.gone.more"),
    h("p", {}, h("code", {}, "WORKER_NOT_FOUND")),
    h(
      "div",
      { class: "row center" },
      h("a", { class: "button", href: urlFor("workers") }, t("state.list", { page: t("page.workers") })),
      h("a", { class: "button", href: allJobs }, t("worker.all-jobs")),
    ),
  );

const refresh = startPage({ load, draw, poll: 2000, concerns: () => false });
