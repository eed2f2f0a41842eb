// One job: its state, why it is in it, its timeline, details, payload and result, and the actions that are allowed.

/** @import { Job, JobDetail, JobEvent, JobView, Page, Why } from "../types.d.ts" */

import { badge, card, copyButton } from "../components/elements.js";
import { jsonCard } from "../components/json_tree.js";
import { canSeePayloads, get } from "../core/api.js";
import { loadContract, statusBadge } from "../core/contracts.js";
import { fill, h, requireElement, updateKeyed } from "../core/dom.js";
import { startPage } from "../core/page.js";
import { idInPath } from "../core/urls.js";
import { t } from "../core/words.js";
import { jobActionButtons } from "./job/actions.js";
import { approvalsCard } from "./job/approvals_card.js";
import { childrenCard } from "./job/children_card.js";
import { jobDetails } from "./job/details_card.js";
import { executionsCard, executionsOf } from "./job/executions_card.js";
import { integrityCard } from "./job/integrity_card.js";
import { stateCard } from "./job/state_card.js";
import { stepsCard } from "./job/steps_card.js";
import { timelineCard } from "./job/timeline_card.js";
import { whyCard } from "./job/why_card.js";
import "../core/shell.js";

const EVENTS_PER_REQUEST = 2000, MOST_EVENTS = 10_000;
const id = idInPath();
const path = `jobs/${encodeURIComponent(id)}`;

const head = h("div"), actions = h("div", { class: "toolbar" }), why = h("div"), details = h("div");
const timeline = timelineCard();
const state = stateCard(timeline.fadeAfter);
const executions = h("div"), steps = h("div"), children = h("div"), approvals = h("div");
const payload = h("div"), result = h("div");
let drawn = "";

/** @param {HTMLElement} root */
function build(root) {
  const side = [
    card(t("job.details"), details),
    executions,
    steps,
    children,
    approvals,
    payload,
    result,
    integrityCard(path),
  ];
  const columns = h(
    "div",
    { class: "grid" },
    h("div", { class: "span-7" }, timeline.node),
    h("div", { class: "span-5 stack" }, side),
  );
  fill(root, head, actions, why, state.node, columns);
}

/** @returns {Promise<JobView>} */
async function load() {
  /** @type {[Job, JobEvent[], JobDetail, Why]} */
  const [job, history, detail, why] = await Promise.all([
    get(path),
    loadHistory(),
    get(`${path}/detail`),
    get(`${path}/why`),
  ]);
  return { job, history, detail, why, contract: await loadContract(job.contract) };
}

async function loadHistory() {
  /** @type {JobEvent[]} */
  const history = [];
  /** @type {string | null} */
  let cursor = null;
  do {
    /** @type {Page<JobEvent>} */
    const page = await get(`${path}/events`, { cursor, limit: EVENTS_PER_REQUEST });
    history.push(...page.items);
    cursor = page.next_cursor;
  } while (cursor && history.length < MOST_EVENTS);
  return history;
}

/**
 * @param {HTMLElement} root
 * @param {JobView} view
 */
function draw(root, view) {
  const signature = JSON.stringify(view);
  if (signature === drawn) return;
  if (!drawn) build(root);
  drawn = signature;
  const { job, detail, history } = view;
  requireElement("h1").textContent = job.job_type;
  document.title = `${job.job_type} ${job.status} · Detent`;
  drawHead(view);
  fill(why, whyCard(view.why, job));
  fill(details, jobDetails(view));
  timeline.show(view);
  state.show(view);
  const executionList = executionsOf(history);
  drawCard(executions, executionList, executionList.length, () => executionsCard(executionList, view));
  drawCard(steps, detail.steps, detail.steps.length, () => stepsCard(detail.steps));
  drawCard(children, detail.children, detail.children.jobs.length, () => childrenCard(detail.children));
  drawCard(approvals, detail.approvals, detail.approvals.length, () => approvalsCard(detail.approvals));
  drawCard(payload, { value: job.payload }, 1, () => jsonCard(t("job.payload"), job.payload, !canSeePayloads));
  drawCard(result, { value: job.result }, 1, () => jsonCard(t("job.result"), job.result, !canSeePayloads));
}

/** @param {JobView} view */
function drawHead({ job, detail, contract }) {
  fill(
    head,
    h(
      "p",
      { class: "row" },
      statusBadge(contract, job.status, job.phase),
      h("code", { class: "break" }, job.id),
      copyButton(() => job.id),
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
});
