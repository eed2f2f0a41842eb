// Hold every job against its log and its contract; watch it, read what it found.
import { fill, h, jobLink } from "../core/dom.js";
import { get, may, post } from "../core/api.js";
import { told } from "../core/dialog.js";
import { empty, page } from "../core/states.js";
import { table } from "../core/table.js";
import { moment } from "../core/time.js";
import { named, number, t } from "../core/words.js";
import "../core/shell.js";

let room = null, timer = null;

function built(root) {
  const run = h("button", { type: "button", class: "primary", "data-act": "verify", on: { click: async () => {
    run.disabled = true;
    await post("verification").catch(told);
    again();
  } } }, t("verify.run"));
  const bar = h("progress", { max: 1, value: 0, "aria-label": t("bulk.progress") });
  const way = h("div", { class: "row", hidden: true }, bar, h("span", { class: "soft" }));
  const result = h("div");
  fill(root, h("p", { class: "soft" }, t("verify.lead")), h("div", { class: "toolbar" }, may("operate") && run, way), result);
  return { run, bar, way, result, findings: table([
    { label: t("col.rule"), cell: (one) => [h("code", {}, one.rule), h("div", { class: "small soft" }, named("rule", one.rule))] },
    { label: t("col.job"), cell: (one) => one.job_id && h("a", { href: jobLink(one.job_id) }, one.job_id) },
    { label: t("verify.seq"), class: "number", cell: (one) => (one.seq === null ? "" : number(one.seq)) },
    { label: t("col.summary"), cell: (one) => one.detail },
  ], { label: t("verify.findings") }) };
}

function draw(root, state) {
  room ??= built(root);
  room.run.disabled = state.under_way;
  room.way.hidden = !state.under_way;
  room.bar.max = Math.max(1, state.total);
  room.bar.value = state.done;
  room.way.lastChild.textContent = t("verify.progress", { done: state.done, total: state.total });
  clearTimeout(timer);
  if (state.under_way) timer = setTimeout(again, 400);
  const { report } = state;
  if (state.error) return void fill(room.result, empty(t("state.broken"), state.error));
  if (!report) return void fill(room.result, empty(t("verify.never"), t("verify.never.more")));
  const found = [...report.violations, ...report.warnings];
  fill(room.result, h("section", { class: `card tile ${report.ok ? "good" : "bad"} lone`, id: "verdict" }, h("b", {}, t(report.ok ? "verify.sound" : "verify.unsound", { n: report.violations.length })),
    h("span", {}, t("verify.counted", { jobs: report.jobs, events: report.events, warnings: report.warnings.length }), " · ", state.started_by, " · ", moment(state.ended_at))),
  found.length > 0 && room.findings.node);
  room.findings.show(found.slice(0, 500), (one) => JSON.stringify(one));
}

const again = page({ load: () => get("verification"), draw, concerns: () => false, every: 200, poll: 10_000 });
