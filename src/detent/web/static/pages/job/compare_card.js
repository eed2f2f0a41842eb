// Two executions of a job side by side: worker, times, outcome, error and steps.

/** @import { Child, JobView, Step } from "../../types.d.ts" */
/** @import { Execution } from "./executions_card.js" */

import { codeName } from "../../components/elements.js";
import { fill, h } from "../../core/dom.js";
import { exactTime, formatDuration, millisecondsBetween } from "../../core/time.js";
import { t } from "../../core/words.js";
import { endOf, executionsOf, groupSteps, isRunning } from "./executions_card.js";

const MAX_STEPS = 200;

/** A card that is shown from the second execution on. */
export function compareCard() {
  /** @type {JobView | null} */
  let view = null;
  let chosen = false;
  const selects = ["a", "b"].map((name) => h("select", { "aria-label": t(`compare.${name}`), id: `compare-${name}` }));
  const body = h("tbody"); // the selects stay where they are: an open one would close
  const heads = selects.map((select) => h("th", { scope: "col" }, select));
  const content = h(
    "div",
    { class: "table-wrap", tabindex: "0", role: "region", "aria-label": t("compare.title") },
    h("table", { class: "compare" }, h("thead", {}, h("tr", {}, h("td", {}), heads)), body),
  );
  const node = h(
    "section",
    { class: "card block", id: "compare", hidden: true },
    h("details", {}, h("summary", {}, h("h2", { class: "inline" }, t("compare.title"))), content),
  );
  for (const select of selects) {
    select.addEventListener("change", () => {
      chosen = true;
      draw();
    });
  }

  function draw() {
    if (!view) return;
    const executions = executionsOf(view);
    node.hidden = executions.length < 2;
    if (node.hidden) return;
    drawOptions(executions);
    const sides = selects.map((select) => executions.find(({ number }) => String(number) === select.value));
    if (sides[0] && sides[1]) fill(body, comparison([sides[0], sides[1]], view));
  }

  /** @param {Execution[]} executions */
  function drawOptions(executions) {
    const numbers = executions.map(({ number }) => String(number));
    if (content.dataset.numbers === numbers.join()) return;
    content.dataset.numbers = numbers.join();
    const values = selects.map((select) => select.value);
    const newest = numbers.slice(-2);
    selects.forEach((select, index) => {
      fill(
        select,
        numbers.map((number) => h("option", { value: number }, t("job.execution", { n: Number(number) }))),
      );
      select.value = chosen && numbers.includes(values[index]) ? values[index] : newest[index];
    });
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

/**
 * @param {[Execution, Execution]} sides
 * @param {JobView} view
 */
function comparison(sides, { job, steps }) {
  const groups = groupSteps(steps);
  const stepsOf = sides.map(({ number }) => groups.get(number) ?? []);
  /** @param {string} label @param {(execution: Execution) => Child} cell */
  const row = (label, cell) => line(label, sides.map(cell));
  /** @param {Execution} execution */
  const duration = (execution) => {
    if (!execution.end && !isRunning(execution, job)) return "–";
    return formatDuration(endOf(execution, job) - new Date(execution.startedAt).getTime());
  };
  const names = [...new Set(stepsOf.flat().map(({ name }) => name))];
  return [
    row(t("col.worker"), ({ worker }) => worker ?? "–"),
    row(t("job.started"), ({ startedAt }) => exactTime(startedAt)),
    row(t("job.finished"), ({ end }) => end ? exactTime(end.at) : "–"),
    row(t("col.duration"), duration),
    row(
      t("compare.outcome"),
      (execution) => execution.end?.target ?? (isRunning(execution, job) ? job.status : "–"),
    ),
    row(
      t("col.error"),
      ({ error }) =>
        error
          ? [codeName(String(error.error_code)), h("div", { class: "break" }, String(error.error_message ?? ""))]
          : "–",
    ),
    row(t("job.steps"), ({ number }) => String((groups.get(number) ?? []).length)),
    names.slice(0, MAX_STEPS).map((name) =>
      line(h("code", { class: "break" }, name), stepsOf.map((list) => stepDuration(list, name)))
    ),
  ];
}

/** @param {Step[]} steps @param {string} name */
function stepDuration(steps, name) {
  const step = steps.find((each) => each.name === name);
  if (!step) return "–";
  return step.finished_at ? formatDuration(millisecondsBetween(step.started_at, step.finished_at)) : t("job.step-open");
}

/** @param {Child} label @param {Child[]} cells */
const line = (label, cells) => h("tr", {}, h("th", { scope: "row" }, label), cells.map((cell) => h("td", {}, cell)));
