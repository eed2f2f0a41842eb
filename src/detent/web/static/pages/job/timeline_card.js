// Every event and note of a job, with the time between them.

/** @import { Contract, JobEvent, JobView } from "../../types.d.ts" */

import { card } from "../../components/elements.js";
import { jsonTree } from "../../components/json_tree.js";
import { statusBadge, statusTone } from "../../core/contracts.js";
import { childElements, h, updateKeyed } from "../../core/dom.js";
import { formatDuration, millisecondsBetween, timeElement } from "../../core/time.js";
import { t } from "../../core/words.js";

/** @typedef {JobEvent & { index: number, milliseconds: number }} TimelineItem */

/** Fields that another card shows. */
const HIDDEN_FIELDS = new Set(["traceback"]);

export function timelineCard() {
  const list = h("ol", { class: "timeline" });
  return {
    node: card(t("job.timeline"), list),
    /** @param {JobView} view */
    show: ({ history, contract }) => {
      const items = history.map((event, index) => ({
        ...event,
        index,
        milliseconds: index ? millisecondsBetween(history[index - 1].at, event.at) : 0,
      }));
      updateKeyed(list, items, ({ seq, index }) => `${seq}/${index}`, (item) => itemNode(item, contract));
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
  const { event, source, target, note, at, actor, execution_no, milliseconds, index, seq } = item;
  const data = Object.fromEntries(Object.entries(item.data).filter(([name]) => !HIDDEN_FIELDS.has(name)));
  const names = Object.keys(data).join(", ");
  const title = note
    ? h("span", {}, event)
    : [h("strong", {}, event), source && h("span", { class: "soft" }, `${source} →`), statusBadge(contract, target)];
  const duration = `${milliseconds < 1 ? "" : "+"}${formatDuration(milliseconds)}`;
  return h(
    "li",
    { class: note ? "note" : statusTone(contract, target), "data-seq": seq },
    h(
      "div",
      {},
      h("div", { class: "row" }, title, index > 0 && h("span", { class: "wait" }, duration)),
      h(
        "div",
        { class: "when" },
        timeElement(at),
        actor && ` · ${actor}`,
        execution_no > 0 && ` · ${t("job.execution", { n: execution_no })}`,
      ),
      names && h("details", {}, h("summary", { class: "small" }, names), jsonTree(data)),
    ),
  );
}
