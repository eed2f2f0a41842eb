// The REST API, called as the person who is signed in. An error response is thrown as a Problem.

/** @import { ProblemBody } from "../types.d.ts" */

import { parseJson } from "./json.js";
import { forgetKey, keyHeaders } from "./session.js";
import { urlFor } from "./urls.js";
import { hasText, t } from "./words.js";

// A connection that broke without a word would keep a page from ever loading again.
const LONGEST_READ_MS = 60_000;
const session = document.body.dataset;
export const person = session.person;
export const canSeePayloads = session.payloads === "yes";
export const tenant = session.tenant || null;
const powers = new Set((session.powers ?? "").split(" "));
/** @param {string} power */
export const may = (power) => powers.has(power);
/** Whether the viewer may open this page, which is in the menu then. @param {string} page */
export const mayOpen = (page) => document.querySelector(`#menu a[data-name=${page}]`) !== null;

/** An error response of the API; status 0 if the server did not answer. */
export class Problem extends Error {
  /**
   * @param {number} status
   * @param {ProblemBody} body
   */
  constructor(status, body) {
    super(problemMessage(status, body));
    this.status = status;
    this.code = body.code ?? "";
    this.detail = body.detail ?? "";
    this.field = body.field ?? "";
    this.errors = body.errors ?? [];
  }
}

/**
 * The status and code of a caught error, if it came from the API.
 * @param {unknown} error
 * @returns {{ message: string, status?: number, code?: string, detail?: string }}
 */
export const asProblem = (error) => (error instanceof Error ? error : { message: String(error) });

/**
 * The kind of the error in the viewer's language, followed by the server's English detail.
 * @param {number} status
 * @param {ProblemBody} body
 */
function problemMessage(status, { code, detail }) {
  if (!status || !detail) return t("state.unreachable");
  const key = [`problem.${code}`, `problem.${status}`].find(hasText) ?? "problem.other";
  return t("problem.message", { kind: t(key), detail });
}

/**
 * @typedef {object} CallOptions
 * @property {Record<string, string | number | string[] | null | undefined>} [query] several values of an array
 * @property {unknown} [json]
 * @property {string} [idempotencyKey]
 */

/**
 * @template Answer
 * @param {string} path
 * @param {CallOptions["query"]} [query]
 * @returns {Promise<Answer>}
 */
export const get = (path, query) => call("GET", path, { query });

/**
 * POST with a new idempotency key, to a route that keeps its answers.
 * @template Answer
 * @param {string} path
 * @param {unknown} [json]
 * @returns {Promise<Answer>}
 */
export const post = (path, json = {}) => call("POST", path, { json, idempotencyKey: newIdempotencyKey() });

/**
 * @template Answer
 * @param {string} method
 * @param {string} path
 * @param {CallOptions} [options]
 * @returns {Promise<Answer>}
 */
export async function call(method, path, { query = {}, json, idempotencyKey } = {}) {
  const url = new URL(urlFor(`api/v1/${path}`));
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== "") url.searchParams.append(name, String(one));
    }
  }
  /** @type {Record<string, string>} */
  const headers = { Accept: "application/json", ...(await keyHeaders()) };
  if (json !== undefined) headers["Content-Type"] = "application/json";
  if (idempotencyKey) headers["Idempotency-Key"] = idempotencyKey;
  const silence = new AbortController();
  const timer = method === "GET" ? setTimeout(() => silence.abort(), LONGEST_READ_MS) : undefined;
  let response, text;
  try {
    const sent = json === undefined ? undefined : JSON.stringify(json);
    response = await fetch(url, { method, headers, body: sent, signal: silence.signal });
    text = await response.text();
  } catch {
    throw new Problem(0, { code: "UNREACHABLE" });
  } finally {
    clearTimeout(timer);
  }
  const body = parseBody(text);
  if (response.status === 401 && session.page !== "sign_in") goToSignIn();
  if (!response.ok) throw new Problem(response.status, body);
  return body;
}

/**
 * Save what the API answers as a file.
 * @param {string} path
 * @param {NonNullable<CallOptions["query"]>} query
 * @param {string} fileName
 */
export async function download(path, query, fileName) {
  const url = new URL(urlFor(`api/v1/${path}`));
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) url.searchParams.append(name, String(one));
  }
  const response = await fetch(url, { headers: await keyHeaders() }).catch(() => null);
  if (!response) throw new Problem(0, { code: "UNREACHABLE" });
  if (!response.ok) throw new Problem(response.status, parseBody(await response.text()));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await response.blob());
  link.download = fileName;
  link.click();
  URL.revokeObjectURL(link.href);
}

/** @param {string} text */
function parseBody(text) {
  try {
    return parseJson(text || "{}");
  } catch {
    return {}; // an HTML page of a proxy
  }
}

let leaving = false;

/** Navigates once: a second navigation would abort the first. */
export function goToSignIn() {
  if (leaving) return;
  leaving = true;
  forgetKey();
  const next = location.href.slice(urlFor("").length);
  location.replace(urlFor(`sign-in?next=${encodeURIComponent(next)}`));
}

export async function signOut() {
  leaving = true;
  try {
    await call("DELETE", "session");
  } catch (error) {
    leaving = asProblem(error).status === 401;
    if (!leaving) throw error;
  }
  forgetKey();
  location.replace(urlFor("sign-in"));
}

/**
 * Replaces the token of this session, which ends with it. Failing requests of the page must not leave it before the new
 * token was read.
 * @param {string} token
 * @returns {Promise<{ token: string }>}
 */
export async function rotateToken(token) {
  leaving = true;
  try {
    return await call("POST", "tokens/rotate", { json: { token } });
  } catch (error) {
    leaving = false;
    throw error;
  }
}

export function newIdempotencyKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
