// Status changes and notes of a job, newest first, with the time between them. Progress is one line that changes.

/** @import { Contract, JobEvent, JobView } from "../../types.d.ts" */

import { button, card } from "../../components/elements.js";
import { jsonTree } from "../../components/json_tree.js";
import { progressBar } from "../../components/progress_bar.js";
import { statusBadge, statusTone } from "../../core/contracts.js";
import { childElements, fill, h, updateKeyed } from "../../core/dom.js";
import { exactTime, formatDuration, millisecondsBetween, timeElement } from "../../core/time.js";
import { joined, t } from "../../core/words.js";

/** @typedef {JobEvent & { milliseconds: number | null, key: string }} TimelineItem */

/** Fields that another card shows. */
const HIDDEN_FIELDS = new Set(["traceback"]);

/** @param {() => void} showOlder */
export function timelineCard(showOlder) {
  const list = h("ol", { class: "timeline" }), progress = h("div", { class: "timeline-progress" });
  const older = h("div", { class: "row" });
  return {
    node: card(t("job.timeline"), progress, list, older),
    /** @param {JobView} view */
    show: ({ history, contract, detail, hasOlder }) => {
      /** @type {Map<number, number>} */
      const places = new Map();
      const items = history.map((event, index) => {
        const place = (places.get(event.seq) ?? -1) + 1;
        places.set(event.seq, place);
        const milliseconds = index ? millisecondsBetween(history[index - 1].at, event.at) : null;
        return { ...event, milliseconds, key: `${event.seq}/${place}` };
      }).reverse();
      fill(
        progress,
        detail.progress && [
          progressBar(detail.progress),
          h(
            "div",
            { class: "when" },
            t("job.execution", { n: detail.progress.execution_no }),
            " · ",
            timeElement(detail.progress.at),
          ),
        ],
      );
      updateKeyed(list, items, ({ key }) => key, (item) => itemNode(item, contract));
      fill(older, hasOlder && button(t("job.older"), showOlder, { class: "tiny", id: "older-events" }));
    },
    /** Fade the events after `seq`; null: none. @param {number | null} seq */
    fadeAfter: (seq) => {
      for (const line of childElements(list)) {
        line.classList.toggle("future", seq !== null && Number(line.dataset.seq) > seq);
      }
    },
  };
}

/**
 * @param {TimelineItem} item
 * @param {Contract} contract
 */
function itemNode(item, contract) {
  const { event, source, target, note, at, actor, execution_no, milliseconds, seq } = item;
  const data = Object.fromEntries(Object.entries(item.data).filter(([name]) => !HIDDEN_FIELDS.has(name)));
  const names = joined(Object.keys(data));
  const title = note
    ? h("span", {}, event)
    : [h("strong", {}, event), source && h("span", { class: "soft" }, `${source} →`), statusBadge(contract, target)];
  return h(
    "li",
    { class: note ? "note" : statusTone(contract, target), "data-seq": seq },
    h(
      "div",
      {},
      h(
        "div",
        { class: "row" },
        title,
        milliseconds !== null &&
          h("span", { class: "wait" }, `${milliseconds < 1 ? "" : "+"}${formatDuration(milliseconds)}`),
      ),
      h(
        "div",
        { class: "when" },
        timeElement(at),
        " · ",
        exactTime(at),
        actor && ` · ${actor}`,
        execution_no > 0 && [" · ", h("span", { class: "nowrap" }, t("job.execution", { n: execution_no }))],
      ),
      names && h("details", {}, h("summary", { class: "small" }, names), jsonTree(data)),
    ),
  );
}
