// One job: where it stands in its contract, how it came there, what it carries, and what may be done to it.
import { $, fill, h, here, jobLink, keyed } from "../core/dom.js";
import { get, payloads } from "../core/api.js";
import { badge, contract, tone } from "../core/contract.js";
import { diagram } from "../core/diagram.js";
import { page } from "../core/states.js";
import { facts } from "../core/table.js";
import { between, exact, moment, span } from "../core/time.js";
import { copyButton, jsonCard, tree } from "../core/tree.js";
import { named, number, t } from "../core/words.js";
import { actButtons } from "../core/acts.js";
import { whyCard } from "../core/why.js";
import "../core/shell.js";

const id = decodeURIComponent(location.pathname.split("/").at(-1));
const path = `jobs/${encodeURIComponent(id)}`;
let room = null, seen = null, at = null;

function built(root) {
  const names = ["lead", "why", "facts", "drawing", "line", "tries", "steps", "family", "payload", "result", "check"];
  const made = Object.fromEntries(names.map((name) => [name, h("div")]));
  made.acts = h("div", { class: "toolbar" });
  made.where = h("span", { class: "soft small" });
  made.range = h("input", { type: "range", min: 1, max: 1, value: 1, "aria-label": t("job.slider"), on: { input: () => {
    at = Number(made.range.value) === Number(made.range.max) ? null : Number(made.range.value);
    scene();
  } } });
  made.moment = h("span", { class: "small nowrap" });
  made.timeline = h("ol", { class: "timeline" });
  fill(root, made.lead, made.acts, made.why,
    h("section", { class: "card lone" }, h("div", { class: "head" }, h("h2", {}, t("job.diagram")), made.where), made.drawing,
      h("div", { class: "slider" }, h("span", { class: "small soft" }, t("job.history")), made.range, made.moment)),
    h("div", { class: "grid" },
      h("section", { class: "card span-7" }, h("h2", {}, t("job.timeline")), made.timeline),
      h("div", { class: "span-5 stack" }, h("section", { class: "card" }, h("h2", {}, t("job.facts")), made.facts),
        made.tries, made.steps, made.family, made.payload, made.result, made.check)));
  return made;
}

async function load() {
  const [job, history, detail, why] = await Promise.all([get(path), all(), get(`${path}/detail`), get(`${path}/why`)]);
  return { job, history, detail, why, table: await contract(job.contract) };
}

async function all() {
  const rows = [];
  let cursor = null;
  do {
    const told = await get(`${path}/events`, { cursor, limit: 2000 });
    rows.push(...told.events);
    cursor = told.next_cursor;
  } while (cursor && rows.length < 10_000);
  return rows;
}

function draw(root, told) {
  room ??= built(root);
  const fresh = JSON.stringify(told) !== JSON.stringify(seen);
  if (!fresh) return;
  const before = seen;
  seen = told;
  const { job, detail, why, table } = told;
  document.querySelector("h1").textContent = job.job_type;
  document.title = `${job.job_type} ${job.status} · Detent`;
  fill(room.lead, h("p", { class: "row" }, badge(table, job.status, job.phase), h("code", { class: "break" }, job.id), copyButton(() => job.id),
    detail.cancel_requested && h("span", { class: "badge warning" }, h("span", {}, t("job.cancel-asked")))));
  keyed(room.acts, [{ acts: detail.acts, version: job.version }], () => "acts", () => h("div", { class: "actions" }, actButtons(job, detail, again)));
  room.acts.hidden = detail.acts.length === 0;
  fill(room.why, whyCard(why, job));
  drawFacts(job, detail);
  const steps = events(told).length;
  room.range.max = steps;
  if (at === null || at >= steps) { at = null; room.range.value = steps; }
  drawLine(told);
  drawTries(told);
  drawSteps(detail);
  drawFamily(told);
  if (!before || JSON.stringify(before.job.payload) !== JSON.stringify(job.payload)) fill(room.payload, jsonCard(t("job.payload"), job.payload, !payloads));
  if (!before || JSON.stringify(before.job.result) !== JSON.stringify(job.result)) fill(room.result, jsonCard(t("job.result"), job.result, !payloads));
  if (!before) drawCheck();
  scene();
}

const events = ({ history }) => history.filter((one) => !one.note);

// The diagram as it was after the event the slider stands at; after the last one, as it is.
function scene() {
  const { table } = seen;
  const walked = events(seen).slice(0, at ?? undefined);
  const last = walked.at(-1);
  const status = last?.target ?? seen.job.status;
  const next = table.edges.filter((edge) => edge.source === status).map((edge) => [edge.target, edge.event]);
  const steps = walked.map((one) => [one.source ?? "", one.target]);
  fill(room.drawing, h("div", { class: "diagram-wrap", tabindex: "0", role: "region", "aria-label": t("job.diagram") },
    diagram(table, { walked: steps, at: status, next, label: t("job.diagram.label", { status, path: walked.map((one) => one.target).join(" → ") }) })));
  const wrap = room.drawing.firstElementChild, node = wrap.querySelector(".node.here");
  if (node) wrap.scrollLeft += node.getBoundingClientRect().left - wrap.getBoundingClientRect().left - wrap.clientWidth / 2 + 50;
  room.where.textContent = next.length ? t("job.next", { moves: [...new Set(next.map(([, event]) => event))].join(", ") }) : t("job.ended");
  room.moment.textContent = last ? `${last.seq} / ${events(seen).length} · ${last.target}` : "";
  room.range.setAttribute("aria-valuetext", last ? `${last.target}, ${exact(last.at)}` : "");
  for (const line of room.timeline.children) line.classList.toggle("later", at !== null && Number(line.dataset.seq) > at);
}

function drawFacts(job, detail) {
  const link = (target) => target && h("a", { href: jobLink(target) }, target);
  fill(room.facts, facts([
    [t("col.contract"), h("a", { href: here(`contracts/${encodeURIComponent(job.contract)}`) }, job.contract)],
    [t("col.queue"), job.queue], [t("col.tenant"), job.tenant_id],
    [t("job.priority"), number(job.priority)], [t("job.version"), number(job.version)],
    [t("col.execution"), t("job.executions", { n: job.execution_no, retries: detail.retries, most: job.max_retries })],
    [t("job.created"), moment(job.created_at)], [t("job.started"), moment(job.started_at)], [t("job.finished"), moment(job.finished_at)],
    job.due_at && [t("job.due"), moment(job.due_at)],
    job.worker && [t("col.worker"), job.worker], job.lease_until && [t("job.lease"), moment(job.lease_until)],
    detail.wait && [t("job.waits"), [h("strong", {}, detail.wait.name), detail.wait.until && [" ", t("job.until"), " ", moment(detail.wait.until)]]],
    job.idempotency_key && [t("job.key"), h("code", {}, job.idempotency_key)],
    job.task_id && [t("job.task"), h("code", {}, job.task_id)],
    job.trace_id && [t("job.trace"), h("code", {}, job.trace_id)],
    job.error_code && [t("col.error"), [h("code", {}, job.error_code), job.error_message && [h("br"), job.error_message]]],
    job.dlq_id && [t("job.letter"), h("a", { href: here(`dead-letters/${encodeURIComponent(job.dlq_id)}`) }, job.dlq_id)],
    job.requeued_from && [t("job.requeued-from"), link(job.requeued_from)],
    job.parent_id && [t("job.parent"), link(job.parent_id)],
  ]));
}

const HIDDEN = new Set(["traceback"]);

function drawLine({ history, table }) {
  const rows = history.map((one, index) => ({ ...one, index, after: index ? between(history[index - 1].at, one.at) : 0 }));
  keyed(room.timeline, rows, (one) => `${one.seq}/${one.index}`, (one) => {
    const data = Object.fromEntries(Object.entries(one.data).filter(([name]) => !HIDDEN.has(name)));
    const item = h("li", { class: one.note ? "note" : tone(table, one.target) },
      h("div", {}, h("div", { class: "row" },
        one.note ? h("span", {}, one.event) : [h("strong", {}, one.event), one.source && h("span", { class: "soft" }, `${one.source} →`), badge(table, one.target)],
        one.index > 0 && h("span", { class: "wait" }, one.after < 1 ? span(one.after) : `+${span(one.after)}`)),
      h("div", { class: "when" }, moment(one.at), one.actor && ` · ${one.actor}`, one.execution_no > 0 && ` · ${t("job.execution", { n: one.execution_no })}`),
      Object.keys(data).length > 0 && h("details", {}, h("summary", { class: "small" }, Object.keys(data).join(", ")), tree(data))));
    item.dataset.seq = one.seq;
    return item;
  });
}

// One execution after the other: from the event that numbered it to the event that ended it.
function drawTries({ history, job }) {
  const tries = new Map();
  for (const one of history) {
    if (one.execution_no < 1 || one.note) continue;
    const entry = tries.get(one.execution_no) ?? { number: one.execution_no, began: one.at, worker: one.actor, ended: null, error: null };
    if (tries.has(one.execution_no)) {
      entry.ended ??= one;
      if (one.data.error_code) entry.error ??= one.data;
    }
    tries.set(one.execution_no, entry);
  }
  const list = [...tries.values()].reverse();
  keyed(room.tries, list.length ? [list] : [], () => "tries", () => h("section", { class: "card" }, h("h2", {}, t("job.tries")), h("div", { class: "stack" }, list.map((one) =>
    h("div", {}, h("div", { class: "row between" }, h("strong", {}, t("job.execution", { n: one.number })),
      h("span", { class: "soft small" }, one.ended ? span(between(one.began, one.ended.at)) : moment(one.began))),
    h("div", { class: "small soft break" }, one.worker ?? "", one.ended ? ` · ${one.ended.event}` : job.phase === "leased" ? ` · ${t("job.running")}` : ""),
    one.error && h("div", { class: "small break" }, h("code", {}, one.error.error_code), " ", one.error.error_message ?? ""),
    one.error?.traceback && h("details", {}, h("summary", { class: "small" }, t("job.traceback")), h("pre", { class: "trace", tabindex: "0" }, one.error.traceback)))))));
}

function drawSteps({ steps }) {
  keyed(room.steps, steps.length ? [steps] : [], () => "steps", () => h("section", { class: "card" }, h("h2", {}, t("job.steps")), h("ol", { class: "timeline" }, steps.map((one) =>
    h("li", { class: one.finished ? "good" : "leased" }, h("div", {}, h("div", { class: "row between" }, h("strong", { class: "break" }, one.name),
      h("span", { class: "soft small" }, t("job.execution", { n: one.execution_no }), " · ", moment(one.at))),
    !one.finished ? h("span", { class: "soft small" }, t("job.step.open")) : payloads ? tree(one.result) : h("span", { class: "soft small" }, t("payload.hidden"))))))));
}

function drawFamily({ detail }) {
  const { children, approvals } = detail;
  const cards = [children.jobs.length && { children }, approvals.length && { approvals }].filter(Boolean);
  keyed(room.family, cards, (one) => Object.keys(one)[0], (one) => (one.children
    ? h("section", { class: "card" }, h("h2", {}, t("job.children", { n: children.total })),
      h("ul", { class: "plain-list" }, children.jobs.map((child) => h("li", { class: "row" }, h("a", { href: jobLink(child.id) }, child.job_type), badge(null, child.status, child.phase), child.error_code && h("code", {}, child.error_code)))))
    : h("section", { class: "card" }, h("h2", {}, t("page.approvals")), approvals.map((asked) => h("div", {}, h("strong", { class: "break" }, asked.name), h("p", { class: "break" }, asked.summary ?? t("payload.hidden")),
      asked.votes.map((vote) => h("div", { class: "small soft break" }, `${vote.approved ? "✓" : "✗"} ${vote.person}${vote.reason ? `: ${vote.reason}` : ""}`)),
      h("p", { class: "small soft" }, asked.decision ? named("decision", asked.decision) : t("approvals.missing", { n: asked.missing, quorum: asked.quorum })))))));
}

function drawCheck() {
  const said = h("p", { class: "soft", id: "verified" }, t("job.verify.more"));
  fill(room.check, h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, t("job.verify")),
    h("button", { type: "button", class: "tiny", on: { click: async () => {
      const told = await get(`${path}/verify`).catch((error) => ({ ok: false, violations: [{ rule: error.code, detail: error.message }] }));
      fill(said, told.ok ? t("verify.ok", { n: told.events }) : told.violations.map((one) => h("span", { class: "break" }, `${named("rule", one.rule)} ${one.rule}: ${one.detail}`, h("br"))));
    } } }, t("act.verify"))), said));
}

$("page").dataset.job = id;
const again = page({ load, draw, every: 150, poll: 15_000, filter: { job_id: id }, concerns: (event) => event.job_id === id });
