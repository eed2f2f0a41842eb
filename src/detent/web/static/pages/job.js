// One job: its error, progress, executions and steps, payload, children, log lines, state, timeline, details, and the
// actions that are allowed.

/** @import { Job, JobDetail, JobEvent, JobView, Page, Step, Why } from "../types.d.ts" */

import { badge, card, copyButton } from "../components/elements.js";
import { jsonCard } from "../components/json_tree.js";
import { progressBar } from "../components/progress_bar.js";
import { canSeePayloads, get } from "../core/api.js";
import { loadContract, statusBadge } from "../core/contracts.js";
import { fill, h, requireElement, updateKeyed } from "../core/dom.js";
import { startPage } from "../core/page.js";
import { idInPath } from "../core/urls.js";
import { t } from "../core/words.js";
import { jobActionButtons } from "./job/actions.js";
import { approvalsCard } from "./job/approvals_card.js";
import { childrenCard } from "./job/children_card.js";
import { compareCard } from "./job/compare_card.js";
import { jobDetails } from "./job/details_card.js";
import { errorCard } from "./job/error_card.js";
import { executionsCard } from "./job/executions_card.js";
import { integrityCard } from "./job/integrity_card.js";
import { logCard } from "./job/log_card.js";
import { originCard } from "./job/origin_card.js";
import { stateCard } from "./job/state_card.js";
import { timelineCard } from "./job/timeline_card.js";
import { whyCard } from "./job/why_card.js";
import "../core/shell.js";

const ENTRIES_PER_PAGE = 200, MOST_ENTRIES = 5000, MOST_STEPS = 1000, LIVE_MS = 2000;
const id = idInPath();
const path = `jobs/${encodeURIComponent(id)}`;

let entries = ENTRIES_PER_PAGE;
const head = h("div"), actions = h("div", { class: "toolbar" }), error = h("div"), progress = h("div");
const why = h("div"), details = h("div"), approvals = h("div"), payload = h("div"), result = h("div");
const timeline = timelineCard(() => {
  entries = Math.min(entries + ENTRIES_PER_PAGE, MOST_ENTRIES);
  refresh();
});
const state = stateCard(timeline.fadeAfter);
const executions = executionsCard(path), compare = compareCard(), children = childrenCard(path), logs = logCard(path);
const origin = originCard();
let drawn = "";
/** @type {JobView | null} */
let view = null;

/** @param {HTMLElement} root */
function build(root) {
  const top = h(
    "div",
    { class: "grid job-top" },
    h("div", { class: "span-7 stack" }, executions.node),
    h("div", { class: "span-5 stack" }, payload, result),
  );
  const side = [card(t("job.details"), details), approvals, origin.node, integrityCard(path)];
  const bottom = h(
    "div",
    { class: "grid" },
    h("div", { class: "span-7" }, timeline.node),
    h("div", { class: "span-5 stack" }, side),
  );
  fill(root, head, actions, error, progress, why, top, children.node, logs.node, compare.node, state.node, bottom);
}

/** @returns {Promise<JobView>} */
async function load() {
  /** @type {[Job, Page<JobEvent>, JobDetail, Why]} */
  const [job, log, detail, why] = await Promise.all([
    get(path),
    get(`${path}/events`, { order: "desc", limit: entries }),
    get(`${path}/detail`),
    get(`${path}/why`),
  ]);
  const [steps, contract, events] = await Promise.all([
    loadSteps(detail),
    loadContract(job.contract),
    log.next_cursor ? loadEvents() : log.items.filter(({ note }) => !note),
  ]);
  const hasOlder = log.next_cursor !== null && entries < MOST_ENTRIES;
  return { job, history: log.items.reverse(), events: events.reverse(), hasOlder, detail, why, steps, contract };
}

/** Notes can be many, and the log then holds few status changes. @returns {Promise<JobEvent[]>} newest first */
async function loadEvents() {
  /** @type {Page<JobEvent>} */
  const page = await get(`${path}/events`, { order: "desc", limit: entries, notes: "false" });
  return page.items;
}

/**
 * The steps without their results, which are loaded when somebody opens one.
 * @param {JobDetail} detail
 * @returns {Promise<Step[]>}
 */
async function loadSteps(detail) {
  if (!detail.steps) return [];
  const limit = MOST_STEPS, skipped = Math.max(0, detail.steps - limit);
  /** @type {Page<Step>} */
  const page = await get(`${path}/steps`, { limit, results: "false", cursor: skipped ? String(skipped) : null });
  return page.items;
}

/**
 * @param {HTMLElement} root
 * @param {JobView} newView
 */
function draw(root, newView) {
  view = newView;
  const signature = JSON.stringify(newView);
  if (signature === drawn) return;
  if (!drawn) build(root);
  drawn = signature;
  const { job, detail } = newView;
  requireElement("h1").textContent = job.job_type;
  document.title = `${job.job_type} ${job.status} · Detent`;
  drawHead(newView);
  drawCard(
    error,
    [job.error_code, job.error_message, newView.events.length],
    job.error_code ? 1 : 0,
    () => errorCard(newView) ?? h("div"),
  );
  fill(why, whyCard(newView.why, job));
  fill(details, jobDetails(newView));
  timeline.show(newView);
  state.show(newView);
  drawLive(newView);
  drawCard(approvals, detail.approvals, detail.approvals.length, () => approvalsCard(detail.approvals));
  drawCard(payload, { value: job.payload }, 1, () => jsonCard(t("job.payload"), job.payload, !canSeePayloads));
  const hasResult = job.result !== null || job.phase === "final" ? 1 : 0;
  drawCard(result, { value: job.result }, hasResult, () => jsonCard(t("job.result"), job.result, !canSeePayloads));
  origin.show(newView);
}

/** What changes without a change of the status. @param {JobView} current */
function drawLive(current) {
  const isRunning = current.job.phase === "leased" &&
    current.detail.progress?.execution_no === current.job.execution_no;
  fill(progress, isRunning && current.detail.progress && progressBar(current.detail.progress));
  executions.show(current);
  compare.show(current);
  children.show(current);
  logs.show(current);
}

/** @param {JobView} view */
function drawHead({ job, detail, contract }) {
  fill(
    head,
    h(
      "p",
      { class: "row" },
      statusBadge(contract, job.status, job.phase),
      h("span", { class: "row nowrap" }, h("code", { class: "break" }, job.id), copyButton(() => job.id)),
      detail.cancel_requested && badge("warning", t("job.cancel-requested")),
    ),
  );
  const buttons = { acts: detail.acts, version: job.version };
  updateKeyed(
    actions,
    [buttons],
    () => "actions",
    () => h("div", { class: "actions" }, jobActionButtons(job, detail, refresh)),
  );
  actions.hidden = detail.acts.length === 0;
}

/**
 * Redraw a card only if its data changed, so that unfolded parts stay open; no card if there are no items.
 * @param {HTMLElement} container
 * @param {unknown} data
 * @param {number} count
 * @param {() => HTMLElement} create
 */
const drawCard = (container, data, count, create) => updateKeyed(container, count ? [data] : [], () => "card", create);

requireElement("#page").dataset.job = id;
const refresh = startPage({
  load,
  draw,
  every: 150,
  poll: 15_000,
  filter: { job_id: id },
  concerns: (event) => event.job_id === id,
  onProgress: (jobId, progress) => {
    if (!view || jobId !== id) return;
    view = { ...view, detail: { ...view.detail, progress } };
    drawLive(view);
    timeline.show(view);
  },
});

// Steps of a running job are no events: read them on their own, without the log.
let isReading = false;
setInterval(async () => {
  if (!view || view.job.phase !== "leased" || document.hidden || isReading) return;
  isReading = true;
  try {
    /** @type {JobDetail} */
    const detail = await get(`${path}/detail`);
    if (detail.version !== view.job.version) return refresh();
    const steps = detail.steps === view.detail.steps ? view.steps : await loadSteps(detail);
    view = { ...view, detail, steps };
    drawLive(view);
    timeline.show(view);
  } catch {
    // The page's own poll shows that the server does not answer.
  } finally {
    isReading = false;
  }
}, LIVE_MS);
