// The captured log lines of a job: the newest ones, followed while it runs.

/** @import { JobView, LogLine, Page } from "../../types.d.ts" */

import { asProblem, canSeePayloads, get } from "../../core/api.js";
import { fill, h } from "../../core/dom.js";
import { exactTime } from "../../core/time.js";
import { t } from "../../core/words.js";

const POLL_MS = 1500, LINES_PER_REQUEST = 200, MAX_LINES = 1000;

/** @param {string} jobPath */
export function logCard(jobPath) {
  /** @type {string | null} */
  let position = null;
  let isRunning = false, loading = false, lastExecution = 0;
  const follow = h("input", { type: "checkbox", checked: true, id: "log-follow" });
  const lines = h("ol", { class: "log" });
  const empty = h("p", { class: "soft" });
  const box = h("div", {
    class: "log-box",
    tabindex: "0",
    role: "log",
    "aria-label": t("job.logs"),
    "aria-live": "off",
  }, lines);
  const node = h(
    "section",
    { class: "card block", id: "logs", hidden: true },
    h(
      "div",
      { class: "head" },
      h("h2", {}, t("job.logs")),
      h("label", { class: "row small" }, follow, t("job.logs.follow")),
    ),
    empty,
    box,
  );
  // Reading further up stops following, as in a terminal.
  box.addEventListener("scroll", () => {
    follow.checked = box.scrollTop + box.clientHeight >= box.scrollHeight - 8;
  });
  follow.addEventListener("change", toEnd);

  function toEnd() {
    if (follow.checked) box.scrollTop = box.scrollHeight;
  }

  /** Read the lines after the last one shown; each request and the list are bounded. */
  async function load() {
    if (loading) return;
    loading = true;
    try {
      /** @type {Page<LogLine>} */
      const { items, next_cursor } = await get(`${jobPath}/logs`, { cursor: position, limit: LINES_PER_REQUEST });
      const atEnd = follow.checked;
      for (const item of items) append(item);
      while (lines.children.length > MAX_LINES) lines.firstElementChild?.remove();
      const last = items.at(-1);
      if (last) position = `${last.execution_no}.${last.n}`;
      empty.textContent = lines.children.length ? "" : t("job.logs.none");
      empty.hidden = lines.children.length > 0;
      box.hidden = lines.children.length === 0;
      if (atEnd) {
        follow.checked = true;
        toEnd();
      }
      loading = false;
      if (next_cursor) await load();
    } catch (error) {
      empty.hidden = false;
      empty.textContent = asProblem(error).message;
    } finally {
      loading = false;
    }
  }

  /** @param {LogLine} line */
  function append({ execution_no, at, level, logger, message }) {
    if (execution_no !== lastExecution) {
      lastExecution = execution_no;
      lines.append(h("li", { class: "log-head" }, t("job.execution", { n: execution_no })));
    }
    lines.append(
      h(
        "li",
        { class: `level-${level.toLowerCase()}` },
        exactTime(at),
        h("span", { class: "level" }, level),
        h("span", { class: "soft" }, logger),
        h("span", { class: "message" }, canSeePayloads ? message : t("payload.hidden")),
      ),
    );
  }

  setInterval(() => {
    if (isRunning && !document.hidden && !node.hidden) load();
  }, POLL_MS);

  return {
    node,
    /** @param {JobView} view */
    show: ({ job, detail }) => {
      const ended = isRunning && job.phase !== "leased";
      isRunning = job.phase === "leased";
      const appeared = node.hidden && detail.has_logs;
      node.hidden = !detail.has_logs;
      if (appeared) {
        fill(lines);
        position = null;
      }
      if (appeared || ended || isRunning) load();
    },
  };
}
