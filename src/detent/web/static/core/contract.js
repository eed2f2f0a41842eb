// Contracts as the API tells them: which tone a status has is read from the table, no status is known by its name here.
import { h } from "./dom.js";
import { get } from "./api.js";

const known = new Map();

export function contract(name) {
  if (!known.has(name)) {
    const asked = get(`contracts/${encodeURIComponent(name)}`).catch((error) => { known.delete(name); throw error; });
    known.set(name, asked);
  }
  return known.get(name);
}

export async function contracts(names) {
  const found = await Promise.all([...new Set(names)].map((name) => contract(name).catch(() => null)));
  return new Map(found.filter(Boolean).map((one) => [one.name, one]));
}

// good, bad or gone for a final status; its phase for every other.
export function tone(table, status, phase) {
  const its = table?.statuses[status] ?? phase ?? "gone";
  if (its !== "final") return its;
  const moves = new Set((table?.edges ?? []).filter((edge) => edge.target === status).map((edge) => edge.move));
  if (moves.has("SUCCEED")) return "good";
  if (moves.has("CANCEL") && !moves.has("FAIL") && !moves.has("FOLLOW")) return "gone";
  return table ? "bad" : "gone";
}

export const badge = (table, status, phase) =>
  h("span", { class: `badge ${tone(table, status, phase)}`, title: phase ?? table?.statuses[status] ?? "" }, h("span", {}, status));
