// The page of a queue and the page of a job type: state, what runs now, throughput and percentiles, workers, limits.

/** @import { JobKind, JobTypeDetail, QueueDetail, RunningJob, Series, ServingWorker, Table } from "../../types.d.ts" */

import { card, cardWithHead } from "../../components/elements.js";
import { progressBar } from "../../components/progress_bar.js";
import { filterTerm } from "../../components/filter_query.js";
import { showRows, table } from "../../components/table.js";
import { get, may } from "../../core/api.js";
import { fill, h, requireElement } from "../../core/dom.js";
import { startPage } from "../../core/page.js";
import { elapsedElement, timeElement } from "../../core/time.js";
import { enqueueUrl, jobsUrl, jobTypeUrl, jobUrl, nameInQuery, queueUrl, workerUrl } from "../../core/urls.js";
import { formatNumber, t, translated } from "../../core/words.js";
import { failureShare, perMinute, seriesCards, throughputOf } from "../metrics/series_cards.js";
import { currentSpan } from "../metrics/spans.js";
import { limitsCard } from "./limits_card.js";
import { pauseButton } from "./pausing.js";

/** @typedef {QueueDetail & JobTypeDetail} Detail */

/** @param {"queue" | "job_type"} by @returns {Table<RunningJob>} */
const buildRunning = (by) =>
  table(t("group.running"), [
    {
      label: t("col.job"),
      cell: ({ id, job_type }) => [
        h("a", { href: jobUrl(id), "data-focus": "open" }, job_type),
        h("div", { class: "soft small mono" }, id),
      ],
    },
    { label: t("col.elapsed"), class: "nowrap", cell: ({ since }) => elapsedElement(since) },
    { label: t("col.progress"), cell: ({ progress }) => progressBar(progress) },
    by !== "queue" && { label: t("col.queue"), cell: ({ queue }) => h("a", { href: queueUrl(queue) }, queue) },
    { label: t("col.tenant"), cell: ({ tenant_id }) => tenant_id },
    { label: t("col.worker"), cell: ({ worker }) => h("a", { href: workerUrl(worker), class: "mono break" }, worker) },
    { label: t("col.executions"), class: "number", cell: ({ execution_no }) => formatNumber(execution_no) },
  ]);

/** @param {"queue" | "job_type"} by @returns {Table<JobKind>} */
const buildKinds = (by) =>
  table(t("group.kinds"), [
    { label: t("col.type"), cell: ({ job_type }) => h("a", { href: jobTypeUrl(job_type) }, job_type) },
    by !== "queue" && { label: t("col.queue"), cell: ({ queue }) => h("a", { href: queueUrl(queue) }, queue) },
    { label: t("col.contract"), cell: ({ contract }) => contract },
    { label: t("col.ready"), class: "number", cell: ({ due }) => formatNumber(due) },
    { label: t("col.scheduled"), class: "number", cell: ({ later }) => formatNumber(later) },
    { label: t("col.running"), class: "number", cell: ({ held }) => formatNumber(held) },
    { label: t("col.oldest"), cell: ({ oldest_due_at }) => timeElement(oldest_due_at) },
  ]);

/** @returns {Table<ServingWorker>} */
const buildWorkers = () =>
  table(t("page.workers"), [
    { label: t("col.worker"), cell: ({ id }) => h("a", { href: workerUrl(id), class: "mono break" }, id) },
    { label: t("col.state"), cell: ({ state }) => translated("worker", state) },
    { label: t("col.load"), class: "number", cell: ({ busy, slots }) => `${busy} / ${slots}` },
  ]);

/**
 * @param {object} options
 * @param {"queue" | "job_type"} options.by
 * @param {string} options.path of the API
 * @param {(detail: Detail) => (HTMLElement | string | null)[]} options.state
 */
export function startGroupPage({ by, path, state }) {
  const name = nameInQuery();
  requireElement("h1").textContent = t(`group.title.${by}`, { name });
  document.title = `${name} · Detent`;
  const term = filterTerm(by === "queue" ? "queue" : "type", name);
  /** @type {ReturnType<typeof build> | null} */
  let view = null;

  /** @param {HTMLElement} root */
  function build(root) {
    const head = h("div", { class: "toolbar between" }), tiles = h("div", { class: "tiles" });
    const series = seriesCards(() => refresh()),
      running = buildRunning(by),
      kinds = buildKinds(by),
      workers = buildWorkers();
    const limits = limitsCard(() => refresh());
    const runningList = h("div"), kindsList = h("div"), workersList = h("div");
    const jobsLink = h("a", { class: "button", href: jobsUrl(`${term} phase:leased`) }, t("group.all-running"));
    fill(
      root,
      head,
      tiles,
      h("div", { class: "block" }, cardWithHead(t("group.running"), jobsLink, runningList)),
      series.node,
      h(
        "div",
        { class: "grid" },
        h("div", { class: "span-7" }, card(t("group.kinds"), kindsList)),
        h("div", { class: "span-5" }, card(t("group.workers"), workersList)),
      ),
      limits.node,
    );
    return { head, tiles, series, running, kinds, workers, limits, runningList, kindsList, workersList };
  }

  async function load() {
    /** @type {[Detail, Series]} */
    const [detail, series] = await Promise.all([
      get(`${path}/${encodeURIComponent(name)}`),
      get("series", { [by]: name, span: currentSpan() }),
    ]);
    return { detail, series };
  }

  /**
   * @param {HTMLElement} root
   * @param {{ detail: Detail, series: Series }} data
   */
  function draw(root, { detail, series }) {
    view ??= build(root);
    fill(
      view.head,
      h("div", {}, state(detail)),
      h(
        "div",
        { class: "row" },
        by === "job_type" && may("submit") &&
          h("a", { class: "button tiny", href: enqueueUrl(name) }, t("action.enqueue")),
        may("operate") && pauseButton(by, name, detail.paused !== null, () => refresh()),
      ),
    );
    fill(view.tiles, tilesOf(detail, series));
    const none = () => h("p", { class: "soft" }, t("group.running.none"));
    showRows(view.runningList, view.running, detail.running_jobs, ({ id }) => id, none);
    showRows(
      view.kindsList,
      view.kinds,
      detail.kinds,
      (kind) => `${kind.contract}/${kind.queue}/${kind.job_type}`,
      () => h("p", { class: "soft" }, t("jobs.none")),
    );
    const noWorker = () => h("p", { class: "soft" }, t("group.workers.none"));
    showRows(view.workersList, view.workers, detail.serving, ({ id }) => id, noWorker);
    view.series.show(series);
    view.limits.show(detail.limits);
  }

  /**
   * @param {Detail} detail
   * @param {Series} series
   */
  function tilesOf({ due, later, held }, { total, seconds }) {
    /** @type {[string, string, string, string][]} */
    const tiles = [
      ["claimable", formatNumber(due), t("col.ready"), `${term} phase:claimable`],
      ["claimable", formatNumber(later), t("col.scheduled"), term],
      ["leased", formatNumber(held), t("col.running"), `${term} phase:leased`],
      ["good", perMinute(throughputOf(total, seconds)), t("group.throughput"), `${term} phase:final`],
      [total.ended_badly ? "bad" : "good", failureShare(total), t("group.failed"), term],
    ];
    return tiles.map(([tone, value, label, filter]) =>
      h("a", { class: `tile card ${tone}`, href: jobsUrl(filter) }, h("b", {}, value), h("span", {}, label))
    );
  }

  const refresh = startPage({ load, draw, every: 2000, poll: 3000 });
}
