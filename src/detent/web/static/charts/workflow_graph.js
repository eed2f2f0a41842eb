// A workflow as a graph: one box per child, in columns by what they run after. Zoomed with buttons, keys and the wheel,
// moved by dragging; the arrow keys go from box to box.

/** @import { ChildJob, Contract } from "../types.d.ts" */

import { button } from "../components/elements.js";
import { statusTone } from "../core/contracts.js";
import { fill, h, s } from "../core/dom.js";
import { jobUrl } from "../core/urls.js";
import { formatPercent, t } from "../core/words.js";

const NODE_WIDTH = 150, NODE_HEIGHT = 30, COLUMN_GAP = 46, ROW_GAP = 10, MARGIN = 14;
const IS_NARROW = matchMedia("(max-width: 720px)").matches;
/** On a phone names are as large as they can be read. */
const LONGEST_NAME = 20, ZOOM_STEP = 1.25, CLOSEST = 4, FARTHEST = 0.1, FIRST_FARTHEST = IS_NARROW ? 0.85 : 0.45;
/** Above this number of edges from one box to the next column, lines would only be a grey area. */
const MOST_EDGES = 1500;

/** @typedef {{ child: ChildJob, x: number, y: number }} Box */

export function workflowGraph() {
  /** @type {Box[]} */
  let boxes = [];
  let whole = { width: 1, height: 1 };
  let view = { x: 0, y: 0, scale: 1 };
  let fitted = false, selected = "";
  const svg = s("svg", { class: "graph", role: "group", tabindex: "0", "aria-label": t("graph.label") });
  const scale = h("span", { class: "small soft", role: "status" });
  const controls = h(
    "div",
    { class: "row graph-controls" },
    button("+", () => zoom(ZOOM_STEP), { class: "tiny", "aria-label": t("graph.zoom-in"), "data-zoom": "in" }),
    button("−", () => zoom(1 / ZOOM_STEP), { class: "tiny", "aria-label": t("graph.zoom-out"), "data-zoom": "out" }),
    button(t("graph.fit"), fit, { class: "tiny", "data-zoom": "fit" }),
    scale,
    h("span", { class: "small soft" }, t(IS_NARROW ? "graph.help.touch" : "graph.help")),
  );
  const node = h("div", { class: "graph-wrap" }, controls, svg);

  const size = () => ({ width: svg.clientWidth || 600, height: svg.clientHeight || 400 });

  function applyView() {
    const { width, height } = size();
    svg.setAttribute("viewBox", `${view.x} ${view.y} ${width / view.scale} ${height / view.scale}`);
    scale.textContent = formatPercent(Math.round(view.scale * 100) / 100);
    svg.dataset.scale = view.scale.toFixed(3);
    // A finger scrolls the page past a graph that is no higher than its area.
    svg.style.touchAction = whole.height * view.scale > height ? "none" : "pan-y";
  }

  /** @param {number} farthest */
  function fitTo(farthest) {
    const { width, height } = size();
    const fitting = Math.min(1, width / whole.width, height / whole.height);
    view = { x: 0, y: 0, scale: Math.max(farthest, fitting) };
    applyView();
  }

  function fit() {
    fitTo(FARTHEST);
  }

  /**
   * @param {number} factor
   * @param {{ x: number, y: number }} [at] the point of the drawing area that stays in its place, in pixels
   */
  function zoom(factor, at) {
    const { width, height } = size();
    const point = at ?? { x: width / 2, y: height / 2 };
    const newScale = Math.min(CLOSEST, Math.max(FARTHEST, view.scale * factor));
    view.x += point.x / view.scale - point.x / newScale;
    view.y += point.y / view.scale - point.y / newScale;
    view.scale = newScale;
    applyView();
  }

  /** @param {Box} box */
  function reveal({ x, y }) {
    const { width, height } = size();
    const right = view.x + width / view.scale, bottom = view.y + height / view.scale;
    if (x < view.x || x + NODE_WIDTH > right) view.x = x + NODE_WIDTH / 2 - width / view.scale / 2;
    if (y < view.y || y + NODE_HEIGHT > bottom) view.y = y + NODE_HEIGHT / 2 - height / view.scale / 2;
    applyView();
  }

  /** @param {string} id */
  function select(id) {
    selected = id;
    for (const link of svg.querySelectorAll("a")) {
      const current = link.dataset.job === id;
      link.setAttribute("tabindex", current ? "0" : "-1");
      if (current) link.focus({ preventScroll: true });
    }
    const box = boxes.find(({ child }) => child.id === id);
    if (box) reveal(box);
  }

  /** @type {Record<string, [number, number]>} */
  const ARROWS = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };

  svg.addEventListener("keydown", (event) => {
    const direction = ARROWS[event.key];
    if (event.key === "+" || event.key === "=") zoom(ZOOM_STEP);
    else if (event.key === "-") zoom(1 / ZOOM_STEP);
    else if (event.key === "0") fit();
    else if (direction) select(neighbour(boxes, selected, direction)?.child.id ?? selected);
    else return;
    event.preventDefault();
  });

  svg.addEventListener("wheel", (event) => {
    // Without the focus or Ctrl, the wheel scrolls the page past the graph.
    if (!event.ctrlKey && !svg.contains(document.activeElement)) return;
    event.preventDefault();
    const box = svg.getBoundingClientRect();
    zoom(event.deltaY < 0 ? ZOOM_STEP : 1 / ZOOM_STEP, { x: event.clientX - box.left, y: event.clientY - box.top });
  }, { passive: false });

  /** @type {{ x: number, y: number } | null} */
  let dragged = null;
  svg.addEventListener("pointerdown", (event) => {
    const onBox = event.target instanceof Element && event.target.closest("a");
    if (!event.isPrimary || (onBox && event.pointerType === "mouse")) return;
    dragged = { x: event.clientX, y: event.clientY };
    if (!onBox) svg.setPointerCapture(event.pointerId); // a captured tap would not open the box
  });
  svg.addEventListener("pointermove", (event) => {
    if (!dragged || !event.isPrimary) return;
    view.x -= (event.clientX - dragged.x) / view.scale;
    view.y -= (event.clientY - dragged.y) / view.scale;
    dragged = { x: event.clientX, y: event.clientY };
    applyView();
  });
  for (const end of /** @type {const} */ (["pointerup", "pointercancel"])) {
    svg.addEventListener(end, () => {
      dragged = null;
    });
  }
  new ResizeObserver(() => {
    if (!svg.clientWidth || !boxes.length) return;
    if (fitted) applyView();
    else fitTo(FIRST_FARTHEST);
    fitted = true;
  }).observe(svg);

  /**
   * @param {ChildJob[]} children
   * @param {Map<string, Contract>} contracts
   * @param {(child: ChildJob) => boolean} matches others are faded
   */
  function show(children, contracts, matches) {
    const { width, height } = size();
    const layout = layoutOf(children, width, height);
    boxes = layout.boxes;
    whole = layout;
    if (!boxes.some(({ child }) => child.id === selected)) selected = boxes[0]?.child.id ?? "";
    const hadFocus = svg.contains(document.activeElement) && document.activeElement !== svg;
    fill(
      svg,
      s("g", { "aria-hidden": "true" }, edgesOf(boxes).map((path) => s("path", { class: "link", d: path }))),
      boxes.map((box) => boxNode(box, contracts, matches(box.child), box.child.id === selected)),
    );
    if (hadFocus) select(selected);
    if (fitted) applyView();
    else fitTo(FIRST_FARTHEST);
  }

  return { node, show };
}

/**
 * Columns by the longest chain of siblings that a child runs after; a column with many boxes is wrapped, so that the whole
 * has about the shape of the drawing area; on a phone so that it is no higher.
 * @param {ChildJob[]} children
 * @param {number} width of the drawing area
 * @param {number} height
 */
function layoutOf(children, width, height) {
  const cell = (NODE_WIDTH + ROW_GAP) / (NODE_HEIGHT + ROW_GAP);
  const mostRows = IS_NARROW
    ? Math.floor((height / FIRST_FARTHEST - 2 * MARGIN) / (NODE_HEIGHT + ROW_GAP))
    : Math.max(8, Math.ceil(Math.sqrt((children.length * cell * height) / width)));
  const byName = new Map(children.map((child) => [child.name, child]));
  /** @type {Map<string, number>} */
  const ranks = new Map();
  /** @param {ChildJob} child @param {number} depth @returns {number} */
  const rank = (child, depth) => {
    const known = ranks.get(child.id);
    if (known !== undefined || depth > children.length) return known ?? 0;
    const before = child.after.flatMap((name) => byName.get(name) ?? []).filter((other) => other !== child);
    const value = before.length ? 1 + Math.max(...before.map((other) => rank(other, depth + 1))) : 0;
    ranks.set(child.id, value);
    return value;
  };
  /** @type {ChildJob[][]} */
  const layers = [];
  for (const child of children) (layers[rank(child, 0)] ??= []).push(child);
  /** @type {Box[]} */
  const boxes = [];
  let x = MARGIN, bottom = 0;
  for (const layer of layers) {
    for (let start = 0; start < (layer?.length ?? 0); start += mostRows) {
      layer.slice(start, start + mostRows).forEach((child, row) => {
        boxes.push({ child, x, y: MARGIN + row * (NODE_HEIGHT + ROW_GAP) });
        bottom = Math.max(bottom, MARGIN + (row + 1) * (NODE_HEIGHT + ROW_GAP));
      });
      x += NODE_WIDTH + (start + mostRows < layer.length ? ROW_GAP : COLUMN_GAP);
    }
  }
  return { boxes, width: Math.max(1, x - COLUMN_GAP + MARGIN), height: bottom + MARGIN };
}

/** @param {Box[]} boxes */
function edgesOf(boxes) {
  const byName = new Map(boxes.map((box) => [box.child.name, box]));
  /** @type {string[]} */
  const paths = [];
  for (const { child, x, y } of boxes) {
    for (const name of child.after) {
      const from = byName.get(name);
      if (!from || paths.length >= MOST_EDGES) continue;
      const start = from.x + NODE_WIDTH, bend = Math.max(20, (x - start) / 2);
      const startY = from.y + NODE_HEIGHT / 2, endY = y + NODE_HEIGHT / 2;
      paths.push(`M${start},${startY} C${start + bend},${startY} ${x - bend},${endY} ${x},${endY}`);
    }
  }
  return paths;
}

/**
 * @param {Box} box
 * @param {Map<string, Contract>} contracts
 * @param {boolean} matches
 * @param {boolean} isSelected
 */
function boxNode({ child, x, y }, contracts, matches, isSelected) {
  const tone = statusTone(contracts.get(child.contract), child.status, child.phase);
  const label = [child.name, child.status, child.error_code].filter(Boolean).join(" · ");
  const short = child.name.length > LONGEST_NAME ? `${child.name.slice(0, LONGEST_NAME - 1)}…` : child.name;
  const share = child.progress?.share;
  return s(
    "a",
    {
      href: jobUrl(child.id),
      class: `node ${child.phase} ${tone}${matches ? "" : " faded"}`,
      tabindex: isSelected ? "0" : "-1",
      "data-job": child.id,
      "data-status": child.status,
      "aria-label": label,
    },
    s("title", {}, share === undefined ? label : `${label} · ${formatPercent(Math.round(share * 100) / 100)}`),
    s("rect", { x, y, width: NODE_WIDTH, height: NODE_HEIGHT, rx: 6 }),
    share !== undefined &&
      s("rect", { class: "share", x, y: y + NODE_HEIGHT - 4, width: NODE_WIDTH * share, height: 4 }),
    s("circle", { class: "dot", cx: x + 12, cy: y + NODE_HEIGHT / 2, r: 4 }),
    s("text", { x: x + 22, y: y + NODE_HEIGHT / 2 + 4 }, short),
  );
}

/**
 * The nearest box in a direction.
 * @param {Box[]} boxes
 * @param {string} id
 * @param {[number, number]} direction
 */
function neighbour(boxes, id, [right, down]) {
  const current = boxes.find(({ child }) => child.id === id);
  if (!current) return boxes[0];
  /** @param {Box} box */
  const distance = (box) => {
    const along = (box.x - current.x) * right + (box.y - current.y) * down;
    const across = Math.abs((box.x - current.x) * down) + Math.abs((box.y - current.y) * right);
    return along > 0 ? along + across * 3 : Infinity;
  };
  const nearest = boxes.reduce((best, box) => (distance(box) < distance(best) ? box : best), current);
  return distance(nearest) === Infinity ? current : nearest;
}
