// Contracts as the API returns them. The tone of a status comes from the contract's table, never from the status's name.

/** @import { Contract } from "../types.d.ts" */

import { get } from "./api.js";
import { h } from "./dom.js";
import { hasText, t } from "./words.js";

/** @type {Map<string, Promise<Contract>>} */
const cache = new Map();

/**
 * @param {string} name
 * @returns {Promise<Contract>}
 */
export function loadContract(name) {
  const cached = cache.get(name);
  if (cached) return cached;
  /** @type {Promise<Contract>} */
  const request = get(`contracts/${encodeURIComponent(name)}`);
  cache.set(name, request);
  request.catch(() => cache.delete(name));
  return request;
}

/**
 * By name; contracts that cannot be loaded are left out.
 * @param {string[]} names
 */
export async function loadContracts(names) {
  const results = await Promise.all([...new Set(names)].map((name) => loadContract(name).catch(() => null)));
  return new Map(results.flatMap((contract) => (contract ? [[contract.name, contract]] : [])));
}

/**
 * What a contract is for; of a built-in one in the viewer's language.
 * @param {{ name: string, description: string }} contract
 */
export const contractDescription = ({ name, description }) =>
  hasText(`contract.${name}`) ? t(`contract.${name}`) : description;

/**
 * good, bad or neutral for a final status; else the status's phase.
 * @param {Contract | null | undefined} contract
 * @param {string} status
 * @param {string} [phase]
 */
export function statusTone(contract, status, phase) {
  const statusPhase = contract?.statuses[status] ?? phase ?? "neutral";
  if (statusPhase !== "final") return statusPhase;
  if (!contract) return "neutral";
  const moves = new Set(contract.edges.filter((edge) => edge.target === status).map((edge) => edge.move));
  if (moves.has("SUCCEED")) return "good";
  return moves.has("CANCEL") && !moves.has("FAIL") && !moves.has("FOLLOW") ? "neutral" : "bad";
}

/**
 * @param {Contract | null | undefined} contract
 * @param {string} status
 * @param {string} [phase]
 */
export function statusBadge(contract, status, phase) {
  const title = phase ?? contract?.statuses[status] ?? "";
  return h("span", { class: `badge ${statusTone(contract, status, phase)}`, title }, h("span", {}, status));
}
