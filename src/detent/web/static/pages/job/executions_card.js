// The executions of a job and their steps as bars on an axis of time, with exact times and durations in the same rows.

/** @import { Contract, Job, JobEvent, JobView, Step, Table } from "../../types.d.ts" */
/** @import { TimeRange } from "../../charts/gantt.js" */

import { ganttAxis, ganttBar } from "../../charts/gantt.js";
import { button } from "../../components/elements.js";
import { jsonTree } from "../../components/json_tree.js";
import { table } from "../../components/table.js";
import { asProblem, canSeePayloads, get } from "../../core/api.js";
import { statusTone } from "../../core/contracts.js";
import { childElements, fill, h, requireElement } from "../../core/dom.js";
import { exactTime, formatDuration } from "../../core/time.js";
import { t } from "../../core/words.js";

const FIRST_ROWS = matchMedia("(max-width: 720px)").matches ? 15 : 40, MORE_ROWS = 200;

/**
 * `end`: the event that ended the execution. `error`: the data of the event that reported its error.
 * @typedef {object} Execution
 * @property {number} number
 * @property {string} startedAt
 * @property {string | null} worker
 * @property {JobEvent | null} end
 * @property {Record<string, unknown> | null} error
 */

/**
 * What an open row shows. Times that grow are drawn into the row, so that what somebody has opened in it stays open.
 * @typedef {{ key: string, execution: Execution, step: Step | null, from: number, tone: string, running: boolean }} Row
 */

/**
 * The executions whose start is loaded, oldest first.
 * @param {JobView} view
 */
export function executionsOf({ events, contract }) {
  /** @type {Map<number, Execution>} */
  const executions = new Map();
  for (const event of events) {
    const { execution_no: number, at, actor, data, target } = event;
    const execution = executions.get(number);
    if (!execution) {
      if (contract.statuses[target] !== "leased") continue;
      executions.set(number, { number, startedAt: at, worker: actor, end: null, error: null });
    } else {
      execution.end ??= event;
      if (data.error_code) execution.error ??= data;
    }
  }
  return [...executions.values()];
}

/**
 * good, bad or leased, from what the contract does in the event that ended the execution.
 * @param {Execution} execution
 * @param {Contract} contract
 */
export function executionTone({ end, error }, contract) {
  if (error) return "bad";
  if (!end) return "leased";
  const tone = statusTone(contract, end.target);
  return tone === "good" || tone === "bad" ? tone : "neutral";
}

/** @param {string} iso */
const millis = (iso) => new Date(iso).getTime();

/**
 * When an execution ended; one that runs or was lost without an event reaches to its last step or to now.
 * @param {Execution} execution
 * @param {Job} job
 */
export const endOf = (execution, job) =>
  execution.end ? millis(execution.end.at) : isRunning(execution, job) ? Date.now() : millis(execution.startedAt);

/**
 * @param {Execution} execution
 * @param {Job} job
 */
export const isRunning = (execution, job) =>
  !execution.end && job.phase === "leased" && execution.number === job.execution_no;

/** @param {string} jobPath */
export function executionsCard(jobPath) {
  /** @type {JobView | null} */
  let view = null;
  let shown = FIRST_ROWS;
  let zoom = "all";
  const axisHead = h("div");
  const zoomSelect = h("select", { "aria-label": t("job.zoom"), id: "gantt-zoom" });
  zoomSelect.addEventListener("change", () => {
    zoom = zoomSelect.value;
    draw();
  });
  /** @type {Table<Row>} */
  const rows = table(t("job.executions"), [
    { label: t("col.name"), cell: (row) => nameCell(row) },
    {
      label: t("job.time-line"),
      head: axisHead,
      class: "bar",
      cell: () => h("div", { class: "gantt-slot" }),
    },
    { label: t("job.started"), class: "nowrap", cell: ({ from }) => exactTime(new Date(from).toISOString()) },
    { label: t("col.duration"), class: "number nowrap", cell: () => h("span", { class: "duration" }) },
  ], Infinity);
  rows.node.classList.add("gantt");
  const more = h("div", { class: "row" });
  const node = h(
    "section",
    { class: "card", id: "executions" },
    h("div", { class: "head" }, h("h2", {}, t("job.executions-and-steps")), zoomSelect),
    rows.node,
    more,
  );

  /** @param {Row} row */
  function nameCell({ execution, step, running }) {
    if (step) return stepCell(step);
    const { number, worker, end, error } = execution;
    const outcome = end ? end.target : running && view ? view.job.status : "";
    return [
      h("strong", {}, t("job.execution", { n: number })),
      h("div", { class: "small soft break" }, [outcome, worker].filter(Boolean).join(" · ")),
      error &&
      h(
        "div",
        { class: "small break" },
        h("code", {}, String(error.error_code)),
        " ",
        String(error.error_message ?? ""),
      ),
      Boolean(error?.traceback) && h(
        "details",
        {},
        h("summary", { class: "small" }, t("job.traceback")),
        h("pre", { class: "trace", tabindex: "0" }, String(error?.traceback)),
      ),
    ];
  }

  /** @param {Step} step */
  function stepCell({ name, finished }) {
    if (!finished) {
      return h("div", { class: "step" }, name, " ", h("span", { class: "soft small" }, t("job.step-open")));
    }
    if (!canSeePayloads) return h("div", { class: "step" }, name);
    const content = h("div");
    const details = h("details", { class: "step" }, h("summary", {}, name), content);
    details.addEventListener("toggle", async () => {
      if (!details.open || content.firstChild) return;
      try {
        /** @type {{ items: Step[] }} */
        const { items } = await get(`${jobPath}/steps`, { name });
        fill(content, items.length > 0 && jsonTree(items[0].result));
      } catch (error) {
        fill(content, h("p", { class: "error" }, asProblem(error).message));
      }
    });
    return details;
  }

  function draw() {
    if (!view) return;
    const { job, contract } = view;
    const executions = executionsOf(view);
    drawZoom(executions);
    const zoomed = zoom === "all" ? executions : executions.filter(({ number }) => String(number) === zoom);
    const stepsBy = groupSteps(view.steps);
    /** @param {Execution} execution @returns {TimeRange} */
    const range = (execution) => {
      const from = millis(execution.startedAt);
      const last = (stepsBy.get(execution.number) ?? []).reduce((end, step) => Math.max(end, stepEnd(step)), from);
      return { from, to: Math.max(from, last, endOf(execution, job)) };
    };
    const ranges = zoomed.map(range);
    const axis = {
      from: Math.min(...ranges.map(({ from }) => from)),
      to: Math.max(...ranges.map(({ to }) => to)),
    };
    /** @type {Row[]} */
    const items = [];
    /** @type {number[]} */
    const ends = [];
    for (const [index, execution] of [...zoomed.entries()].reverse()) {
      const tone = executionTone(execution, contract), running = isRunning(execution, job);
      const { from, to } = ranges[index];
      items.push({ key: `${execution.number}`, execution, step: null, from, tone, running });
      ends.push(to);
      for (const step of stepsBy.get(execution.number) ?? []) {
        const stepTone = step.finished ? "claimable" : "leased", isOpen = running && !step.finished;
        const key = `${execution.number}/${step.name}`;
        items.push({ key, execution, step, from: millis(step.started_at), tone: stepTone, running: isOpen });
        ends.push(isOpen ? to : stepEnd(step));
      }
    }
    fill(axisHead, items.length > 0 && ganttAxis(axis));
    rows.show(items.slice(0, shown), ({ key }) => key);
    childElements(rows.body).forEach((row, index) =>
      drawTimes(row, items[index], { from: items[index].from, to: ends[index] }, axis)
    );
    const rest = items.length - shown;
    const showMore = () => {
      shown += MORE_ROWS;
      draw();
    };
    fill(more, rest > 0 && button(t("job.more-rows", { n: rest }), showMore, { class: "tiny", "data-focus": "more" }));
    node.hidden = items.length === 0 && zoom === "all";
  }

  /** @param {HTMLElement} node @param {Row} row @param {TimeRange} bar @param {TimeRange} axis */
  function drawTimes(node, { tone, running }, bar, axis) {
    fill(requireElement(".gantt-slot", node), ganttBar(bar, axis, tone));
    const text = `${formatDuration(bar.to - bar.from)}${running ? " …" : ""}`;
    requireElement(".duration", node).textContent = text;
  }

  /** @param {Execution[]} executions */
  function drawZoom(executions) {
    const values = ["all", ...executions.map(({ number }) => String(number)).reverse()];
    zoomSelect.hidden = executions.length < 2;
    if (!values.includes(zoom)) zoom = "all";
    if (zoomSelect.dataset.values === values.join()) return;
    zoomSelect.dataset.values = values.join();
    const label = (/** @type {string} */ value) =>
      value === "all" ? t("job.zoom.all") : t("job.execution", { n: Number(value) });
    fill(zoomSelect, values.map((value) => h("option", { value }, label(value))));
    zoomSelect.value = zoom;
  }

  return {
    node,
    /** @param {JobView} newView */
    show: (newView) => {
      view = newView;
      draw();
    },
  };
}

/** @param {Step} step */
const stepEnd = ({ started_at, finished_at }) => millis(finished_at ?? started_at);

/** Steps by execution. @param {Step[]} steps */
export function groupSteps(steps) {
  /** @type {Map<number, Step[]>} */
  const groups = new Map();
  for (const step of steps) {
    const group = groups.get(step.execution_no) ?? [];
    groups.set(step.execution_no, group);
    group.push(step);
  }
  return groups;
}
