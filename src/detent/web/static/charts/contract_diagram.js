// A contract drawn from its table: statuses in layers from the first to the final ones, one line per pair of statuses. A
// line that passes a layer does so in a lane of its own between the boxes, so that none runs through a box.

/** @import { Contract, Edge } from "../types.d.ts" */

import { statusTone } from "../core/contracts.js";
import { s } from "../core/dom.js";

const NODE_WIDTH = 128, NODE_HEIGHT = 32, LANE_HEIGHT = 10, LAYER_GAP = 64, ROW_GAP = 16, MARGIN = 42;
const ORDERING_ROUNDS = 6, LONGEST_NAME = 18;

/**
 * A place in a layer: of a status, or of a lane that the lines to one target use to pass the layer.
 * @typedef {{ key: string, isLane: boolean, layer: number, x: number, y: number, height: number }} Place
 */
/** @typedef {{ source: string | null, target: string, events: string[], moves: string[] }} Pair */

/**
 * @param {Contract} contract
 * @param {object} options
 * @param {string} options.label
 * @param {[source: string, target: string][]} [options.taken] the edges that the job took
 * @param {string | null} [options.current] the status to highlight
 */
export function contractDiagram(contract, { label, taken = [], current = null }) {
  const pairs = pairsOf(contract.edges);
  const { places, width, height } = layoutOf(contract, pairs);
  const visited = new Set(taken.flat());
  const takenKeys = new Set(taken.map(([source, target]) => edgeKey(source, target)));
  const svg = s("svg", { class: "diagram", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  svg.style.maxWidth = `${width * 1.25}px`;
  svg.style.setProperty("--drawn-width", `${width}px`);
  const drawingOrder = ["", " next", " taken"];
  const edges = pairs.map((pair) => {
    const isTaken = takenKeys.has(edgeKey(pair.source ?? "", pair.target));
    const kind = isTaken ? " taken" : pair.source !== null && pair.source === current ? " next" : "";
    return { kind, node: edgeNode(pair, places, kind) };
  });
  edges.sort((first, second) => drawingOrder.indexOf(first.kind) - drawingOrder.indexOf(second.kind));
  svg.append(...edges.map((edge) => edge.node));
  for (const [status, place] of places) {
    if (place.isLane) continue;
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
  return layers.filter((layer) => layer.length);
}

/** @param {string} target @param {number} layer @param {boolean} backward */
const laneKey = (target, layer, backward) => `${backward ? "<" : ">"} ${target} ${layer}`;

/**
 * The layers with lanes for the lines that pass them, ordered so that few lines cross, and the position of each place.
 * @param {Contract} contract
 * @param {Pair[]} pairs
 */
function layoutOf(contract, pairs) {
  const layers = layersOf(contract);
  const layerOf = new Map(layers.flatMap((statuses, layer) => statuses.map((status) => [status, layer])));
  const lanes = new Set();
  /** Neighbours in the layer to the left. @type {Map<string, Set<string>>} */
  const links = new Map();
  for (const { source, target } of pairs) {
    const from = source === null ? undefined : layerOf.get(source), to = layerOf.get(target);
    if (source === null || from === undefined || to === undefined || from === to) continue;
    const backward = to < from, chain = [backward ? target : source];
    for (let layer = Math.min(from, to) + 1; layer < Math.max(from, to); layer += 1) {
      const key = laneKey(target, layer, backward);
      if (!lanes.has(key)) layers[layer].push(key);
      lanes.add(key);
      chain.push(key);
    }
    chain.push(backward ? source : target);
    for (let index = 1; index < chain.length; index += 1) {
      const before = links.get(chain[index]) ?? new Set();
      links.set(chain[index], before.add(chain[index - 1]));
    }
  }
  for (let round = 0; round < ORDERING_ROUNDS; round += 1) orderLayers(layers, links, round % 2 === 1);
  /** @param {string} key */
  const heightOf = (key) => (lanes.has(key) ? LANE_HEIGHT : NODE_HEIGHT);
  /** @param {string[]} layer */
  const total = (layer) => layer.reduce((sum, key) => sum + heightOf(key) + ROW_GAP, -ROW_GAP);
  const highest = Math.max(...layers.map(total));
  /** @type {Map<string, Place>} */
  const places = new Map();
  layers.forEach((keys, layer) => {
    let y = MARGIN + (highest - total(keys)) / 2;
    const x = MARGIN / 2 + 20 + layer * (NODE_WIDTH + LAYER_GAP);
    for (const key of keys) {
      places.set(key, { key, isLane: lanes.has(key), layer, x, y, height: heightOf(key) });
      y += heightOf(key) + ROW_GAP;
    }
  });
  return { places, width: layers.length * (NODE_WIDTH + LAYER_GAP) + MARGIN, height: highest + MARGIN * 2 };
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
 * Sort each layer by the mean row of its neighbours in the layer before (or after), so that fewer lines cross.
 * @param {string[][]} layers
 * @param {Map<string, Set<string>>} links
 * @param {boolean} fromRight
 */
function orderLayers(layers, links, fromRight) {
  const order = fromRight ? [...layers.keys()].reverse() : [...layers.keys()];
  for (const index of order) {
    const layer = layers[index], beside = layers[index + (fromRight ? 1 : -1)] ?? [];
    /** @param {string} key */
    const weight = (key) => {
      const rows = fromRight
        ? beside.flatMap((other, row) => (links.get(other)?.has(key) ? [row] : []))
        : [...(links.get(key) ?? [])].map((other) => beside.indexOf(other)).filter((row) => row >= 0);
      if (!rows.length) return layer.indexOf(key) * beside.length / Math.max(1, layer.length);
      return rows.reduce((sum, row) => sum + row, 0) / rows.length;
    };
    const weights = new Map(layer.map((key) => [key, weight(key)]));
    layer.sort((first, second) => (weights.get(first) ?? 0) - (weights.get(second) ?? 0));
  }
}

/**
 * @param {Pair} pair
 * @param {Map<string, Place>} places
 * @param {string} kind
 */
function edgeNode({ source, target, events, moves }, places, kind) {
  const to = places.get(target), from = source === null ? null : places.get(source);
  if (!to || from === undefined) {
    throw new Error(`an edge of the contract names an unknown status: ${source} → ${target}`);
  }
  const { path, x, y, angle } = route(from, to, places);
  const moveNames = moves.length ? ` (${moves.join(", ")})` : "";
  return s(
    "g",
    { class: `edge${kind || (moves[0] === "CANCEL" ? " cancel" : "")}`, "data-from": source ?? "", "data-to": target },
    s("path", { d: path }),
    s("polygon", { points: "0,0 -8,-4 -8,4", transform: `translate(${x},${y}) rotate(${angle})` }),
    s("title", {}, `${source ?? "·"} → ${target}: ${events.join(", ")}${moveNames}`),
  );
}

/** @param {Place} place */
const middleOf = ({ y, height }) => y + height / 2;

/**
 * The path of an edge, and the position and angle of its arrow head. It crosses a layer only in a lane; between two
 * layers there is nothing to cross.
 * @param {Place | null} from
 * @param {Place} to
 * @param {Map<string, Place>} places
 */
function route(from, to, places) {
  const end = middleOf(to), right = to.x + NODE_WIDTH;
  if (!from) return { path: `M${to.x - 26},${end} L${to.x - 7},${end}`, x: to.x, y: end, angle: 0 };
  if (from === to) {
    const x = right - 46;
    const path = `M${right - 20},${to.y} C${right - 10},${to.y - 15} ${right - 62},${to.y - 15} ${x},${to.y - 6}`;
    return { path, x, y: to.y, angle: 90 };
  }
  const start = middleOf(from);
  if (from.layer === to.layer) {
    // It arrives beside the middle, where the lines to the next layer leave.
    const out = right + 40, y = end + (start < end ? -8 : 8);
    return {
      path: `M${right},${start} C${out},${start} ${out},${y} ${right + 7},${y}`,
      x: right,
      y,
      angle: 180,
    };
  }
  const backward = to.layer < from.layer, step = backward ? -1 : 1;
  // Backward lines leave a box above, and arrive below, the lines of the other direction.
  const shift = backward ? 8 : 0;
  let x = backward ? from.x : from.x + NODE_WIDTH, y = start - shift;
  let path = `M${x},${y}`;
  for (let layer = from.layer + step; layer !== to.layer; layer += step) {
    const lane = places.get(laneKey(to.key, layer, backward));
    if (!lane) continue;
    const enter = backward ? lane.x + NODE_WIDTH : lane.x, leave = backward ? lane.x : lane.x + NODE_WIDTH;
    path += `${curveTo(x, y, enter, middleOf(lane))} L${leave},${middleOf(lane)}`;
    x = leave;
    y = middleOf(lane);
  }
  const arrow = backward ? right : to.x;
  path += curveTo(x, y, arrow - step * 7, end + shift);
  return { path, x: arrow, y: end + shift, angle: backward ? 180 : 0 };
}

/** @param {number} x @param {number} y @param {number} endX @param {number} endY */
function curveTo(x, y, endX, endY) {
  const middle = (x + endX) / 2;
  return ` C${middle},${y} ${middle},${endY} ${endX},${endY}`;
}
