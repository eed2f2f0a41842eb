// The contract's diagram with the job's current status and path, and a slider through the job's history.

/** @import { JobView } from "../../types.d.ts" */

import { contractDiagram } from "../../charts/contract_diagram.js";
import { fill, h } from "../../core/dom.js";
import { formatExact } from "../../core/time.js";
import { joined, t } from "../../core/words.js";

/**
 * `onMove` is called with the sequence number of the event that the slider selects, null for the last one.
 * @param {(seq: number | null) => void} onMove
 */
export function stateCard(onMove) {
  /** @type {JobView | null} */
  let view = null;
  /** The sequence number of the event; the first ones may not be loaded. @type {number | null} */
  let selected = null;
  const diagram = h("div", { class: "diagram-wrap", tabindex: "0", role: "region", "aria-label": t("job.state") });
  const nextMoves = h("span", { class: "soft small" });
  const position = h("span", { class: "small nowrap" });
  const slider = h("input", { type: "range", min: 1, max: 1, value: 1, "aria-label": t("job.slider") });
  slider.addEventListener("input", () => {
    selected = slider.value === slider.max ? null : Number(slider.value);
    draw();
  });

  /** The job as it was after the selected event. */
  function draw() {
    if (!view) return;
    const { contract, job, events } = view;
    const past = events.filter(({ seq }) => selected === null || seq <= selected);
    const last = past.at(-1);
    const current = last?.target ?? job.status;
    const path = past.map(({ target }) => target).join(" → ");
    const taken = past.map(({ source, target }) => /** @type {[string, string]} */ ([source ?? "", target]));
    const label = t("job.diagram", { status: current, path });
    fill(diagram, contractDiagram(contract, { label, taken, current }));
    scrollToCurrent(diagram);
    const next = new Set(contract.edges.filter(({ source }) => source === current).map(({ event }) => event));
    nextMoves.textContent = next.size ? t("job.next", { events: joined(next) }) : t("job.no-next");
    position.textContent = last ? `${last.seq} / ${slider.max} · ${last.target}` : "";
    slider.setAttribute("aria-valuetext", last ? `${last.target}, ${formatExact(last.at)}` : "");
    onMove(selected);
  }

  return {
    node: h(
      "section",
      { class: "card block" },
      h("div", { class: "head" }, h("h2", {}, t("job.state")), nextMoves),
      diagram,
      h("div", { class: "slider" }, h("span", { class: "small soft" }, t("job.history")), slider, position),
    ),
    /** @param {JobView} newView */
    show: (newView) => {
      view = newView;
      const { events } = view, newest = events.at(-1)?.seq ?? 1;
      slider.min = String(events[0]?.seq ?? 1);
      slider.max = String(newest);
      if (selected === null || selected >= newest) {
        selected = null;
        slider.value = String(newest);
      }
      draw();
    },
  };
}

/** @param {HTMLElement} diagram */
function scrollToCurrent(diagram) {
  const node = diagram.querySelector(".node.current");
  if (!node) return;
  const offset = node.getBoundingClientRect().left - diagram.getBoundingClientRect().left;
  diagram.scrollLeft += offset - diagram.clientWidth / 2 + 50;
}
