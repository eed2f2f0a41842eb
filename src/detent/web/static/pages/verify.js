// Integrity check of the whole database: start it, watch its progress, read its findings.

/** @import { Table, Verification, VerifyReport, Violation } from "../types.d.ts" */

import { button } from "../components/elements.js";
import { table } from "../components/table.js";
import { toastError } from "../components/toast.js";
import { get, may, post } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { startPage } from "../core/page.js";
import { emptyState } from "../core/states.js";
import { timeElement } from "../core/time.js";
import { jobUrl } from "../core/urls.js";
import { formatNumber, t, translated } from "../core/words.js";
import "../core/shell.js";

const PROGRESS_MS = 400, SHOWN_FINDINGS = 500;
/** @type {ReturnType<typeof build> | null} */
let view = null;
/** @type {number | undefined} */
let progressTimer;

/** @param {HTMLElement} root */
function build(root) {
  const start = async () => {
    startButton.disabled = true;
    await post("verification").catch(toastError);
    refresh();
  };
  const startButton = button(t("verify.run"), start, { class: "primary", "data-action": "verify" });
  const bar = h("progress", { max: 1, value: 0, "aria-label": t("bulk.progress") });
  const progressText = h("span", { class: "soft" });
  const progress = h("div", { class: "row", hidden: true }, bar, progressText);
  const result = h("div");
  fill(
    root,
    h("p", { class: "soft" }, t("verify.lead")),
    h("div", { class: "toolbar" }, may("operate") && startButton, progress),
    result,
  );
  /** @type {Table<Violation>} */
  const findings = table(t("verify.findings"), [
    {
      label: t("col.rule"),
      cell: ({ rule }) => [h("code", {}, rule), h("div", { class: "small soft" }, translated("rule", rule))],
    },
    { label: t("col.job"), cell: ({ job_id }) => job_id && h("a", { href: jobUrl(job_id) }, job_id) },
    { label: t("verify.seq"), class: "number", cell: ({ seq }) => (seq === null ? "" : formatNumber(seq)) },
    { label: t("col.summary"), cell: ({ detail }) => detail },
  ]);
  return { startButton, bar, progress, progressText, result, findings };
}

/**
 * @param {HTMLElement} root
 * @param {Verification} state
 */
function draw(root, state) {
  view ??= build(root);
  view.startButton.disabled = state.under_way;
  view.progress.hidden = !state.under_way;
  view.bar.max = Math.max(1, state.total);
  view.bar.value = state.done;
  view.progressText.textContent = state.total ? t("verify.progress", { done: state.done, total: state.total }) : "";
  clearTimeout(progressTimer);
  if (state.under_way) {
    progressTimer = setTimeout(refresh, PROGRESS_MS);
    return void fill(view.result); // an older report is not the result of this check
  }
  const { report } = state;
  if (state.error) return void fill(view.result, emptyState(t("state.error"), state.error));
  if (!report) return void fill(view.result, emptyState(t("verify.never"), t("verify.never.more")));
  const findings = [...report.violations, ...report.warnings];
  fill(view.result, summary(state, report), findings.length > 0 && view.findings.node);
  view.findings.show(findings.slice(0, SHOWN_FINDINGS), (finding) => JSON.stringify(finding));
}

/**
 * @param {Verification} state
 * @param {VerifyReport} report
 */
function summary(state, { ok, jobs, events, violations, warnings }) {
  const title = t(ok ? "verify.passed" : "verify.failed", { n: violations.length });
  const counts = t("verify.counts", { jobs, events, warnings: warnings.length });
  return h(
    "section",
    { class: `card tile ${ok ? "good" : "bad"} block`, id: "verify-result" },
    h("b", {}, title),
    h("span", {}, counts, " · ", state.started_by, " · ", timeElement(state.ended_at)),
  );
}

const refresh = startPage({ load: () => get("verification"), draw, concerns: () => false, every: 200, poll: 10_000 });
