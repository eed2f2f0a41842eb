// Enqueue a job: choose its type, fill in the payload, whose fields come from the type's schema, and its options.

/** @import { ContractSummary, Declaration, Page, SubmitResponse } from "../../types.d.ts" */

import { button, card } from "../../components/elements.js";
import { payloadCard, showPayloadProblems } from "../../components/schema/payload_card.js";
import { asProblem, call, get, may, mayOpen, newIdempotencyKey, Problem } from "../../core/api.js";
import { contractDescription } from "../../core/contracts.js";
import { fill, h } from "../../core/dom.js";
import { startPage } from "../../core/page.js";
import { contractUrl, jobTypeUrl, jobUrl, nameInQuery, setQueryParams } from "../../core/urls.js";
import { richText, t } from "../../core/words.js";
import { optionsCard } from "./options_card.js";
import "../../core/shell.js";

async function load() {
  /** @type {[Page<Pick<Declaration, "job_type">>, Page<ContractSummary>]} */
  const [types, contracts] = await Promise.all([
    get("declarations", { fields: ["job_type"] }),
    may("read") ? get("contracts") : { items: [], next_cursor: null },
  ]);
  return { types: types.items.map(({ job_type }) => job_type), contracts: contracts.items };
}

let drawn = false;

/** Once: a form that is being filled in is not drawn again. @param {HTMLElement} root @param {Awaited<ReturnType<typeof load>>} data */
function draw(root, { types, contracts }) {
  if (drawn) return;
  drawn = true;
  const type = h("input", {
    id: "job-type",
    type: "text",
    list: "job-types",
    required: true,
    maxlength: 200,
    autocomplete: "off",
    spellcheck: "false",
    value: nameInQuery(),
    "aria-describedby": "job-type-about",
    on: { change: () => void chooseType() },
  });
  const about = h("div", { id: "job-type-about", role: "status" }), payloadPlace = h("div");
  const errorLine = h("p", { class: "error", role: "alert", id: "enqueue-error" }),
    result = h("div", { role: "status" });
  const options = optionsCard(contracts);
  const submitButton = h("button", { type: "submit", class: "primary" }, t("action.enqueue"));
  const clearButton = button(t("enqueue.again"), () => void chooseType());
  /** @type {ReturnType<typeof payloadCard> | null} */
  let payload = null;
  /** The request whose outcome is not known: it is repeated under its key, so that no second job is created. */
  let doubtful = { body: "", key: "" };

  async function chooseType() {
    const name = type.value.trim();
    setQueryParams({ name });
    fill(about);
    fill(payloadPlace);
    payload = null;
    submitButton.disabled = !name;
    clearButton.hidden = !name;
    options.showDefaults(null);
    if (!name) return fill(about, h("p", { class: "small soft" }, t("schedules.choose-type")));
    try {
      /** @type {Page<Declaration>} */
      const { items } = await get("declarations", { job_type: name });
      if (type.value.trim() === name) showType(name, items[0] ?? null);
    } catch (error) {
      fill(about, h("p", { class: "error" }, asProblem(error).message));
    }
  }

  /** @param {string} name @param {Declaration | null} declared */
  function showType(name, declared) {
    fill(about, declared ? aboutType(declared) : h("p", { class: "banner" }, t("enqueue.undeclared", { name })));
    options.showDefaults(declared);
    payload = payloadCard(declared?.payload_schema ?? null, {});
    fill(payloadPlace, payload.node);
  }

  /** @param {Declaration} declared */
  function aboutType({ job_type, options: declaredOptions }) {
    const contract = contracts.find(({ name }) => name === declaredOptions.contract) ??
      contracts.find((one) => one.default);
    const queue = h("code", {}, String(declaredOptions.queue ?? "default"));
    const link = mayOpen("job_types") ? h("a", { href: jobTypeUrl(job_type) }, job_type) : job_type;
    return [
      h("p", { class: "small" }, richText("enqueue.about", { type: link, queue })),
      contract && h(
        "p",
        { class: "small" },
        richText("enqueue.contract", {
          name: h("a", { href: contractUrl(contract.name) }, contract.name),
          description: contractDescription(contract),
        }),
      ),
    ];
  }

  /** @param {SubmitEvent} event */
  async function submit(event) {
    event.preventDefault();
    fill(errorLine);
    fill(result);
    options.clearProblems();
    const value = payload?.checkedValue();
    if (value === undefined || !options.check()) return void fill(errorLine, t("enqueue.invalid"));
    const body = { job_type: type.value.trim(), payload: value, ...options.values() };
    submitButton.disabled = true;
    try {
      showResult(await send(body));
    } catch (error) {
      showError(error);
    } finally {
      submitButton.disabled = false;
    }
  }

  /** @param {object} body @returns {Promise<SubmitResponse>} */
  async function send(body) {
    const text = JSON.stringify(body);
    const key = doubtful.body === text ? doubtful.key : newIdempotencyKey();
    doubtful = { body: "", key: "" };
    try {
      return await call("POST", "jobs", { json: body, idempotencyKey: key });
    } catch (error) {
      const { status = 0 } = asProblem(error);
      if (status === 0 || status >= 500) doubtful = { body: text, key };
      throw error;
    }
  }

  /** @param {SubmitResponse} response */
  function showResult({ job, idempotent_hit, warnings = [] }) {
    const link = may("read") ? h("a", { href: jobUrl(job.id) }, job.id) : h("code", {}, job.id);
    fill(
      result,
      h(
        "section",
        { class: "card block enqueued" },
        h("h2", {}, t(idempotent_hit ? "enqueue.exists" : "enqueue.done")),
        h("p", {}, `${job.job_type} · ${job.queue} · ${job.status} · `, link),
        warnings.map(({ message }) => h("p", { class: "small" }, message)),
      ),
    );
    result.scrollIntoView({ block: "nearest" });
  }

  /** @param {unknown} error */
  function showError(error) {
    const { message, code } = asProblem(error);
    fill(errorLine, message, code && h("code", {}, ` ${code}`));
    if (!(error instanceof Problem)) return;
    if (payload) showPayloadProblems(payload, error);
    if (error.field) options.showProblem(error.field, message);
  }

  const form = h(
    "form",
    { class: "enqueue", novalidate: true, on: { submit } },
    card(
      t("enqueue.type"),
      h(
        "div",
        { class: "schema-field" },
        h("label", { for: "job-type", class: "visually-hidden" }, t("enqueue.type")),
        h("div", { class: "schema-control" }, type),
      ),
      h("datalist", { id: "job-types" }, types.map((name) => h("option", { value: name }))),
      !types.length && h("p", { class: "soft small" }, t("enqueue.no-types")),
      about,
    ),
    h(
      "div",
      { class: "grid" },
      h("div", { class: "span-7" }, payloadPlace),
      h("div", { class: "span-5" }, options.node),
    ),
    errorLine,
    h("div", { class: "row" }, submitButton, clearButton),
  );
  fill(root, result, form);
  chooseType();
}

startPage({ load, draw, concerns: () => false });
