// A contract drawn from its table: statuses in layers from the first to the final ones, one curve per pair of statuses.

/** @import { Contract, Edge } from "../types.d.ts" */

import { statusTone } from "../core/contracts.js";
import { s } from "../core/dom.js";

const NODE_WIDTH = 128, NODE_HEIGHT = 32, LAYER_GAP = 64, ROW_GAP = 18, MARGIN = 42;
const ORDERING_ROUNDS = 4, LONGEST_NAME = 18;

/** @typedef {{ x: number, y: number, layer: number, row: number }} Place */
/** @typedef {{ source: string | null, target: string, events: string[], moves: string[] }} Pair */

/**
 * @param {Contract} contract
 * @param {object} options
 * @param {string} options.label
 * @param {[source: string, target: string][]} [options.taken] the edges that the job took
 * @param {string | null} [options.current] the status to highlight
 */
export function contractDiagram(contract, { label, taken = [], current = null }) {
  const layers = layersOf(contract);
  const places = placesOf(layers);
  const height = Math.max(...layers.map((layer) => layer.length)) * (NODE_HEIGHT + ROW_GAP) - ROW_GAP + MARGIN * 2;
  const width = layers.length * (NODE_WIDTH + LAYER_GAP) + MARGIN;
  const visited = new Set(taken.flat());
  const takenKeys = new Set(taken.map(([source, target]) => edgeKey(source, target)));
  const svg = s("svg", { class: "diagram", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  svg.style.maxWidth = `${width * 1.25}px`;
  const drawingOrder = ["", " next", " taken"];
  const edges = pairsOf(contract.edges).map((pair) => {
    const isTaken = takenKeys.has(edgeKey(pair.source ?? "", pair.target));
    const kind = isTaken ? " taken" : pair.source !== null && pair.source === current ? " next" : "";
    return { kind, node: edgeNode(pair, places, height, kind) };
  });
  edges.sort((first, second) => drawingOrder.indexOf(first.kind) - drawingOrder.indexOf(second.kind));
  svg.append(...edges.map((edge) => edge.node));
  for (const [status, place] of places) {
    const marks = `${visited.has(status) ? " visited" : ""}${status === current ? " current" : ""}`;
    svg.append(statusNode(contract, status, place, marks));
  }
  return svg;
}

/**
 * @param {string} source
 * @param {string} target
 */
const edgeKey = (source, target) => `${source} → ${target}`;

/** @param {string} name */
const shorten = (name) => (name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME - 1)}…` : name);

/**
 * @param {Contract} contract
 * @param {string} status
 * @param {Place} place
 * @param {string} marks
 */
function statusNode(contract, status, { x, y }, marks) {
  const phase = contract.statuses[status];
  return s(
    "g",
    { class: `node ${phase} ${statusTone(contract, status)}${marks}`, "data-status": status },
    s("rect", { x, y, width: NODE_WIDTH, height: NODE_HEIGHT, rx: phase === "final" ? 16 : 8 }),
    s("text", { x: x + NODE_WIDTH / 2, y: y + NODE_HEIGHT / 2 + 4, "text-anchor": "middle" }, shorten(status)),
    s("title", {}, `${status} (${phase})`),
  );
}

/**
 * Edges with the same source and target, merged.
 * @param {Edge[]} edges
 */
function pairsOf(edges) {
  /** @type {Map<string, Pair>} */
  const pairs = new Map();
  for (const { source, target, event, move } of edges) {
    const key = edgeKey(source ?? "", target);
    const pair = pairs.get(key) ?? { source, target, events: [], moves: [] };
    pairs.set(key, pair);
    pair.events.push(event);
    if (move) pair.moves.push(move);
  }
  return [...pairs.values()];
}

/**
 * Statuses by their distance from the first one; final statuses are last. Cancel edges do not count.
 * @param {Contract} contract
 */
function layersOf(contract) {
  const statuses = Object.keys(contract.statuses);
  /** @param {string} status */
  const isFinal = (status) => contract.statuses[status] === "final";
  const ranks = distances(contract.edges.filter((edge) => edge.move !== "CANCEL"));
  const last = Math.max(0, ...statuses.filter((status) => !isFinal(status)).map((status) => ranks.get(status) ?? 0)) +
    1;
  for (const status of statuses) {
    if (isFinal(status)) ranks.set(status, last);
    else if (!ranks.has(status)) ranks.set(status, last - 1);
  }
  const layers = Array.from(
    { length: last + 1 },
    (_none, rank) => statuses.filter((status) => ranks.get(status) === rank),
  );
  const filled = layers.filter((layer) => layer.length);
  for (let round = 0; round < ORDERING_ROUNDS; round += 1) orderLayers(filled, contract.edges);
  return filled;
}

/**
 * The number of edges from the beginning to each status.
 * @param {Edge[]} edges
 */
function distances(edges) {
  /** @type {Map<string, number>} */
  const ranks = new Map();
  let frontier = edges.filter((edge) => edge.source === null).map((edge) => edge.target);
  for (let rank = 0; frontier.length; rank += 1) {
    const reached = new Set(frontier.filter((status) => !ranks.has(status)));
    for (const status of reached) ranks.set(status, rank);
    frontier = edges.filter((edge) => edge.source !== null && reached.has(edge.source)).map((edge) => edge.target);
  }
  return ranks;
}

/**
 * Sort each layer by the mean row of its sources in the layer before, so that fewer edges cross.
 * @param {string[][]} layers
 * @param {Edge[]} edges
 */
function orderLayers(layers, edges) {
  for (const [index, layer] of layers.entries()) {
    const before = layers[index - 1] ?? [];
    /** @param {string} status */
    const weight = (status) => {
      const rows = edges.filter((edge) => edge.target === status).map((edge) => before.indexOf(edge.source ?? ""));
      const sourceRows = rows.filter((row) => row >= 0);
      if (!sourceRows.length) return layer.indexOf(status);
      return sourceRows.reduce((sum, row) => sum + row, 0) / sourceRows.length;
    };
    const weights = new Map(layer.map((status) => [status, weight(status)]));
    layer.sort((first, second) => (weights.get(first) ?? 0) - (weights.get(second) ?? 0));
  }
}

/** @param {string[][]} layers */
function placesOf(layers) {
  /** @type {Map<string, Place>} */
  const places = new Map();
  const longest = Math.max(...layers.map((layer) => layer.length));
  layers.forEach((statuses, layer) => {
    const top = MARGIN + ((longest - statuses.length) * (NODE_HEIGHT + ROW_GAP)) / 2;
    const x = MARGIN / 2 + 20 + layer * (NODE_WIDTH + LAYER_GAP);
    statuses.forEach((status, row) => {
      places.set(status, { x, y: top + row * (NODE_HEIGHT + ROW_GAP), layer, row });
    });
  });
  return places;
}

/**
 * @param {Pair} pair
 * @param {Map<string, Place>} places
 * @param {number} height
 * @param {string} kind
 */
function edgeNode({ source, target, events, moves }, places, height, kind) {
  const to = places.get(target), from = source === null ? null : places.get(source);
  if (!to || from === undefined) {
    throw new Error(`an edge of the contract names an unknown status: ${source} → ${target}`);
  }
  const { path, x, y, angle } = curve(from, to, height);
  const moveNames = moves.length ? ` (${moves.join(", ")})` : "";
  return s(
    "g",
    { class: `edge${kind || (moves[0] === "CANCEL" ? " cancel" : "")}`, "data-from": source ?? "", "data-to": target },
    s("path", { d: path }),
    s("polygon", { points: "0,0 -8,-4 -8,4", transform: `translate(${x},${y}) rotate(${angle})` }),
    s("title", {}, `${source ?? "·"} → ${target}: ${events.join(", ")}${moveNames}`),
  );
}

/**
 * The path of an edge, and the position and angle of its arrow head.
 * @param {Place | null} from
 * @param {Place} to
 * @param {number} height
 */
function curve(from, to, height) {
  const middle = to.y + NODE_HEIGHT / 2;
  if (!from) return { path: `M${to.x - 26},${middle} L${to.x - 7},${middle}`, x: to.x, y: middle, angle: 0 };
  if (from === to) {
    const right = to.x + NODE_WIDTH, end = right - 46;
    const path = `M${right - 20},${to.y} C${right - 10},${to.y - 26} ${right - 62},${to.y - 26} ${end},${to.y - 6}`;
    return { path, x: end, y: to.y, angle: 90 };
  }
  const start = { x: from.x + NODE_WIDTH, y: from.y + NODE_HEIGHT / 2 };
  if (to.layer > from.layer) {
    const bend = Math.max(36, (to.x - start.x) / 2);
    const path = `M${start.x},${start.y} C${start.x + bend},${start.y} ${to.x - bend},${middle} ${to.x - 7},${middle}`;
    return { path, x: to.x, y: middle, angle: 0 };
  }
  if (to.layer === from.layer) {
    const out = start.x + 40, end = to.x + NODE_WIDTH;
    const path = `M${start.x},${start.y} C${out},${start.y} ${out},${middle} ${end + 7},${middle}`;
    return { path, x: end, y: middle, angle: 180 };
  }
  return backwardCurve(from, to, height);
}

/**
 * An edge to an earlier layer, drawn above or below the statuses between.
 * @param {Place} from
 * @param {Place} to
 * @param {number} height
 */
function backwardCurve(from, to, height) {
  const above = from.row <= 1 && to.row <= 1, direction = above ? -1 : 1;
  const start = { x: from.x + NODE_WIDTH / 2 + 14, y: above ? from.y : from.y + NODE_HEIGHT };
  const x = to.x + NODE_WIDTH / 2 + 14 * (to.layer % 2 ? 1 : -1), y = above ? to.y : to.y + NODE_HEIGHT;
  const room = above ? MARGIN + 30 : height - Math.max(start.y, y);
  const reach = direction * Math.min(room, 34 + 16 * (from.layer - to.layer));
  const control = `${start.x - 20},${start.y + reach} ${x + 20},${y + reach}`;
  return { path: `M${start.x},${start.y} C${control} ${x},${y + direction * 7}`, x, y, angle: above ? 90 : 270 };
}
