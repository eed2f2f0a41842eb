// A contract drawn from its table: statuses in layers from the beginning to the ends, one curve for each pair of statuses.
import { s } from "./dom.js";
import { tone } from "./contract.js";

const WIDE = 128, TALL = 32, ACROSS = 64, DOWN = 18, EDGE = 42;

// path: [[source, target], …] as walked; at: the status to light; next: [[target, event], …] legal from here.
export function diagram(table, { walked = [], at = null, next = [], label } = {}) {
  const layers = layered(table);
  const place = placed(layers);
  const height = Math.max(...layers.map((one) => one.length)) * (TALL + DOWN) - DOWN + EDGE * 2;
  const width = layers.length * (WIDE + ACROSS) + EDGE;
  const seen = new Set(walked.flat());
  const gone = new Set(walked.map(([source, target]) => `${source} → ${target}`));
  const legal = new Set(next.map(([target]) => `${at} → ${target}`));
  const node = s("svg", { class: "diagram", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  node.style.maxWidth = `${width * 1.25}px`;
  const edges = pairs(table.edges).map((edge) => {
    const key = `${edge.source ?? ""} → ${edge.target}`;
    const kind = gone.has(key) ? " walked" : legal.has(key) ? " next" : "";
    return { edge, kind, drawn: curve(edge, place, height, kind) };
  });
  const order = { "": 0, " next": 1, " walked": 2 };
  edges.sort((one, other) => order[one.kind] - order[other.kind]).forEach(({ drawn }) => node.append(drawn));
  for (const [status, { x, y }] of Object.entries(place)) {
    const its = table.statuses[status];
    const classes = ["node", its, tone(table, status), seen.has(status) ? "seen" : "", status === at ? "here" : ""].join(" ");
    node.append(s("g", { class: classes, "data-status": status },
      s("rect", { x, y, width: WIDE, height: TALL, rx: its === "final" ? 16 : 8 }),
      s("text", { x: x + WIDE / 2, y: y + TALL / 2 + 4, "text-anchor": "middle" }, short(status)), s("title", {}, `${status} (${its})`)));
  }
  return node;
}

const short = (text) => (text.length > 18 ? `${text.slice(0, 17)}…` : text);

function pairs(edges) {
  const found = new Map();
  for (const { source, target, event, move } of edges) {
    const key = `${source ?? ""}\n${target}`;
    if (!found.has(key)) found.set(key, { source, target, events: [], moves: [] });
    found.get(key).events.push(event);
    if (move) found.get(key).moves.push(move);
  }
  return [...found.values()];
}

// Layers by the shortest way from the beginning; ends go last; within a layer near those they come from.
function layered(table) {
  const rank = {}, statuses = Object.keys(table.statuses);
  const plain = table.edges.filter((edge) => edge.move !== "CANCEL");
  let frontier = plain.filter((edge) => !edge.source).map((edge) => edge.target);
  for (let depth = 0; frontier.length; depth += 1) {
    frontier = [...new Set(frontier)].filter((status) => !(status in rank));
    for (const status of frontier) rank[status] = depth;
    frontier = plain.filter((edge) => frontier.includes(edge.source)).map((edge) => edge.target);
  }
  const open = statuses.filter((status) => table.statuses[status] !== "final");
  const last = Math.max(0, ...open.map((status) => rank[status] ?? 0)) + 1;
  for (const status of statuses) if (!(status in rank) || table.statuses[status] === "final") rank[status] = table.statuses[status] === "final" ? last : last - 1;
  const layers = Array.from({ length: last + 1 }, (_, depth) => statuses.filter((status) => rank[status] === depth)).filter((one) => one.length);
  for (let round = 0; round < 4; round += 1) {
    for (const [depth, layer] of layers.entries()) {
      const before = layers[depth - 1] ?? [];
      const weight = (status) => {
        const from = table.edges.filter((edge) => edge.target === status && before.includes(edge.source)).map((edge) => before.indexOf(edge.source));
        return from.length ? from.reduce((sum, one) => sum + one, 0) / from.length : layer.indexOf(status);
      };
      const weights = new Map(layer.map((status) => [status, weight(status)]));
      layer.sort((one, other) => weights.get(one) - weights.get(other));
    }
  }
  return layers;
}

function placed(layers) {
  const place = {}, most = Math.max(...layers.map((one) => one.length));
  layers.forEach((layer, depth) => {
    const top = EDGE + ((most - layer.length) * (TALL + DOWN)) / 2;
    layer.forEach((status, row) => {
      place[status] = { x: EDGE / 2 + 20 + depth * (WIDE + ACROSS), y: top + row * (TALL + DOWN), layer: depth, row };
    });
  });
  return place;
}

function curve({ source, target, events, moves }, place, height, kind) {
  const to = place[target], from = source ? place[source] : null;
  const end = { x: to.x, y: to.y + TALL / 2 };
  let path, heading = 0;
  if (!from) {
    path = `M${to.x - 26},${end.y} L${end.x - 7},${end.y}`;
  } else if (source === target) {
    path = `M${to.x + WIDE - 20},${to.y} C${to.x + WIDE - 10},${to.y - 26} ${to.x + WIDE - 62},${to.y - 26} ${to.x + WIDE - 46},${to.y - 6}`;
    heading = 90;
    end.x = to.x + WIDE - 46;
    end.y = to.y;
  } else if (to.layer > from.layer) {
    const start = { x: from.x + WIDE, y: from.y + TALL / 2 }, bend = Math.max(36, (end.x - start.x) / 2);
    path = `M${start.x},${start.y} C${start.x + bend},${start.y} ${end.x - bend},${end.y} ${end.x - 7},${end.y}`;
  } else if (to.layer === from.layer) {
    const start = { x: from.x + WIDE, y: from.y + TALL / 2 }, out = start.x + 40;
    end.x = to.x + WIDE;
    heading = 180;
    path = `M${start.x},${start.y} C${out},${start.y} ${out},${end.y} ${end.x + 7},${end.y}`;
  } else {
    const up = from.row <= 1 && to.row <= 1, side = up ? -1 : 1;
    const start = { x: from.x + WIDE / 2 + 14, y: up ? from.y : from.y + TALL };
    end.x = to.x + WIDE / 2 + 14 * (to.layer % 2 ? 1 : -1);
    end.y = up ? to.y : to.y + TALL;
    const reach = Math.min(up ? EDGE + 30 : height - Math.max(start.y, end.y), 34 + 16 * (from.layer - to.layer));
    path = `M${start.x},${start.y} C${start.x - 20},${start.y + side * reach} ${end.x + 20},${end.y + side * reach} ${end.x},${end.y + side * 7}`;
    heading = up ? 90 : 270;
  }
  return s("g", { class: `edge${kind || (moves[0] === "CANCEL" ? " aside" : "")}`, "data-from": source ?? "", "data-to": target },
    s("path", { d: path }), s("polygon", { points: "0,0 -8,-4 -8,4", transform: `translate(${end.x},${end.y}) rotate(${heading})` }),
    s("title", {}, `${source ?? "·"} → ${target}: ${events.join(", ")}${moves.length ? ` (${moves.join(", ")})` : ""}`));
}
