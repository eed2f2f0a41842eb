// The children of a job: how many are in each status, a list in pages, and a graph of the workflow; live.

/** @import { ChildCount, ChildJob, Contract, JobView, Page, Table } from "../../types.d.ts" */

import { workflowGraph } from "../../charts/workflow_graph.js";
import { badge, button, linkWithId } from "../../components/elements.js";
import { progressBar } from "../../components/progress_bar.js";
import { table } from "../../components/table.js";
import { asProblem, get } from "../../core/api.js";
import { loadContracts, statusBadge, statusTone } from "../../core/contracts.js";
import { fill, h } from "../../core/dom.js";
import { elapsedElement, formatDuration, millisecondsBetween, timeElement } from "../../core/time.js";
import { throttle } from "../../core/throttle.js";
import { jobUrl } from "../../core/urls.js";
import { formatNumber, t } from "../../core/words.js";

const POLL_MS = 3000, ROWS_PER_PAGE = 50, GRAPH_PAGE = 1000;

const byName = new Intl.Collator(undefined, { numeric: true });

/** @typedef {{ phase?: string, status?: string }} ChildFilter */

/** @param {string} jobPath */
export function childrenCard(jobPath) {
  /** @type {ChildJob[]} */
  let children = [];
  /** @type {Map<string, Contract>} */
  let contracts = new Map();
  /** @type {ChildCount[]} */
  let counts = [];
  /** The chosen filter; null: not chosen yet. @type {string | null} */
  let chosen = null;
  let shown = ROWS_PER_PAGE, shape = "list", isLive = false, total = 0;
  const title = h("h2"), chips = h("div", { class: "tabs", role: "group", "aria-label": t("children.filter") });
  const shapes = h("div", { class: "tabs", role: "group", "aria-label": t("children.shape") });
  const problem = h("p", { class: "error", hidden: true }), more = h("div", { class: "row" });
  const note = h("p", { class: "small soft", hidden: true });
  const graph = workflowGraph();
  graph.node.hidden = true;
  /** @type {Table<ChildJob>} */
  const rows = table(t("children.title"), [
    { label: t("col.name"), cell: (child) => linkWithId(jobUrl(child.id), child.name, child.job_type) },
    {
      label: t("col.status"),
      cell: ({ contract, status, phase }) => statusBadge(contracts.get(contract), status, phase),
    },
    { label: t("col.error"), cell: ({ error_code }) => error_code && h("code", {}, error_code) },
    {
      label: t("job.progress"),
      cell: ({ progress, phase }) => phase === "leased" && progress && progressBar(progress),
    },
    { label: t("col.worker"), cell: ({ worker }) => worker && h("span", { class: "small break" }, worker) },
    { label: t("col.executions"), class: "number", cell: ({ execution_no }) => formatNumber(execution_no) },
    { label: t("job.started"), class: "nowrap", cell: ({ started_at }) => started_at && timeElement(started_at) },
    {
      label: t("col.duration"),
      class: "number nowrap",
      cell: ({ started_at, finished_at }) =>
        started_at &&
        (finished_at ? formatDuration(millisecondsBetween(started_at, finished_at)) : elapsedElement(started_at)),
    },
  ], Infinity);
  const list = h("div", { hidden: true }, rows.node, more);
  const node = h(
    "section",
    { class: "card block", id: "children", hidden: true },
    h("div", { class: "head" }, title, shapes),
    chips,
    problem,
    note,
    list,
    graph.node,
  );

  /** @param {ChildJob | ChildCount} item */
  const matches = (item) =>
    !chosen || (chosen === "unfinished" ? item.phase !== "final" : `${item.contract}/${item.status}` === chosen);

  function draw() {
    drawShapes();
    drawChips();
    const isGraph = shape === "graph";
    list.hidden = isGraph;
    graph.node.hidden = !isGraph;
    note.hidden = !(isGraph && total > children.length);
    note.textContent = t("children.graph-part", { n: children.length, total });
    if (isGraph) return graph.show(children, contracts, matches);
    const matching = children.filter(matches);
    rows.show(matching.slice(0, shown), ({ id }) => id);
    const rest = matching.length - shown;
    const showMore = () => {
      shown += ROWS_PER_PAGE;
      if (shown > children.length) load();
      draw();
    };
    fill(more, rest > 0 && button(t("job.more-rows", { n: rest }), showMore, { class: "tiny", "data-focus": "more" }));
  }

  function drawShapes() {
    const buttons = ["list", "graph"].map((name) =>
      button(t(`children.${name}`), () => {
        shape = name;
        draw();
      }, { "aria-pressed": String(shape === name), "data-shape": name })
    );
    fill(shapes, buttons);
  }

  function drawChips() {
    const unfinished = counts.filter(({ phase }) => phase !== "final").reduce((sum, { count }) => sum + count, 0);
    chosen ??= unfinished > 0 ? "unfinished" : "";
    if (chosen === "unfinished" && !unfinished) chosen = "";
    /** @param {string} value @param {string | HTMLElement} text @param {number} count */
    const chip = (value, text, count) =>
      button([text, " ", formatNumber(count)], () => {
        chosen = value;
        shown = ROWS_PER_PAGE;
        load();
        draw();
      }, { "aria-pressed": String(chosen === value), "data-filter": value, "data-focus": `filter ${value}` });
    fill(
      chips,
      chip("", t("children.all"), total),
      unfinished > 0 && chip("unfinished", t("children.unfinished"), unfinished),
      counts.map(({ contract, status, phase, count }) =>
        chip(`${contract}/${status}`, badge(statusTone(contracts.get(contract), status, phase), status), count)
      ),
    );
  }

  /** Reads up to 1,000 children; of more, those that match the filter. */
  const load = throttle(async () => {
    try {
      const filters = total > GRAPH_PAGE ? serverFilters() : [{}];
      /** @type {Page<ChildJob>[]} */
      const pages = await Promise.all(
        filters.map((filter) => get(`${jobPath}/children`, { limit: GRAPH_PAGE, ...filter })),
      );
      children = pages.flatMap(({ items }) => items).sort((first, second) => byName.compare(first.name, second.name));
      contracts = await loadContracts([...children, ...counts].map(({ contract }) => contract));
      problem.hidden = true;
      draw();
    } catch (error) {
      problem.hidden = false;
      problem.textContent = asProblem(error).message;
    }
  }, 0);

  /** Each of them is one request. @returns {ChildFilter[]} */
  function serverFilters() {
    if (!chosen) return [{}];
    if (chosen !== "unfinished") return [{ status: chosen.slice(chosen.indexOf("/") + 1) }];
    const phases = new Set(counts.filter(({ phase }) => phase !== "final").map(({ phase }) => phase));
    return [...phases].map((phase) => ({ phase }));
  }

  setInterval(async () => {
    if (!isLive || document.hidden || node.hidden) return;
    try {
      const detail = await get(`${jobPath}/detail`);
      setCounts(detail.children);
      load();
    } catch {
      // The page shows that it is outdated; the next poll tries again.
    }
  }, POLL_MS);

  /** @param {{ total: number, counts: ChildCount[] }} summary */
  function setCounts(summary) {
    total = summary.total;
    counts = summary.counts;
    isLive = counts.some(({ phase }) => phase !== "final");
    title.textContent = t("job.children", { n: total });
    node.hidden = total === 0;
  }

  return {
    node,
    /** @param {JobView} view */
    show: ({ detail }) => {
      const before = JSON.stringify(counts);
      setCounts(detail.children);
      if (total && before !== JSON.stringify(counts)) load();
    },
  };
}
