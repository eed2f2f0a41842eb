// The API, asked as the person who is signed in. A refusal is a Problem with the server's code and sentence.
import { here } from "./dom.js";
import { parse } from "./json.js";
import { known, t } from "./words.js";

const body = document.body.dataset;
export const person = body.person;
export const payloads = body.payloads === "yes";
export const tenant = body.tenant || null;
const powers = new Set(body.powers.split(" "));
export const may = (power) => powers.has(power);

export class Problem extends Error {
  constructor(status, told) {
    super(sentence(status, told));
    this.status = status;
    this.code = told.code ?? "";
    this.told = told;
  }
}

// The server speaks English; what kind of refusal it is can be said in any language.
function sentence(status, { code, detail }) {
  if (!status || !detail) return t("state.unreachable");
  const lead = [`problem.${code}`, `problem.${status}`, "problem.other"].find(known);
  return t("problem.said", { what: t(lead), detail });
}

export const get = (path, query, options) => call("GET", path, { query, ...options });
export const post = (path, json = {}, options) => call("POST", path, { json, key: key(), ...options });
export const send = (method, path, json, options) => call(method, path, { json, ...options });

export async function call(method, path, { query, json, key, signal, csrf } = {}) {
  const url = new URL(here(`api/v1/${path}`));
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, value);
  }
  const headers = { Accept: "application/json" };
  if (json !== undefined) headers["Content-Type"] = "application/json";
  if (key) headers["Idempotency-Key"] = key;
  if (method !== "GET" && body.csrf) headers["X-CSRF-Token"] = csrf ?? body.csrf;
  let answer;
  try {
    answer = await fetch(url, { method, headers, signal, body: json === undefined ? undefined : JSON.stringify(json) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { code: "UNREACHABLE", detail: t("state.unreachable") });
  }
  const told = read(await answer.text());
  if (answer.status === 401 && body.page !== "sign_in") signIn();
  if (!answer.ok) throw new Problem(answer.status, told);
  return told;
}

function read(text) {
  try {
    return parse(text || "{}");
  } catch {
    return {};  // a proxy's own page
  }
}

let leaving = false;

// There is one way out of a page: who comes second would break off the first.
export function signIn() {
  if (leaving) return;
  leaving = true;
  const wanted = location.href.slice(here("").length);
  location.replace(here(`sign-in?next=${encodeURIComponent(wanted)}`));
}

export async function signOut() {
  leaving = true;
  try {
    await call("DELETE", "session");
  } catch (error) {
    leaving = error.status === 401;
    if (!leaving) throw error;
  }
  location.replace(here("sign-in"));
}

function key() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((one) => one.toString(16).padStart(2, "0")).join("");
}
