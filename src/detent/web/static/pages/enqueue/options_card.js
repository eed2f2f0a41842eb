// The options of a new job: queue, priority, contract, start, idempotency key, tenant.

/** @import { Child, ContractSummary, Declaration, Props } from "../../types.d.ts" */

import { card } from "../../components/elements.js";
import { tenant } from "../../core/api.js";
import { fill, h } from "../../core/dom.js";
import { timeZone } from "../../core/time.js";
import { t } from "../../core/words.js";

const HIGHEST_PRIORITY = 100, MOST_RETRIES = 1000, LONGEST_KEY = 200;
const START_KINDS = ["now", "delay", "at"];
/** @type {[string, number][]} */
const UNITS = [["seconds", 1], ["minutes", 60], ["hours", 3600], ["days", 86_400]];

/** @param {ContractSummary[]} contracts */
export function optionsCard(contracts) {
  /** @type {Map<string, { control: HTMLInputElement | HTMLSelectElement, errorLine: HTMLElement }>} */
  const rows = new Map();

  /**
   * A labelled control with a line for its error.
   * @param {string} name of the field in REST
   * @param {string} label
   * @param {HTMLInputElement | HTMLSelectElement} control
   * @param {Child} [more]
   */
  function row(name, label, control, more) {
    const errorLine = h("p", { class: "error small", id: `option-${name}-error`, role: "status" });
    control.id = `option-${name}`;
    control.setAttribute("aria-describedby", errorLine.id);
    control.addEventListener("input", () => showProblem(name, ""));
    rows.set(name, { control, errorLine });
    return h(
      "div",
      { class: "schema-field" },
      h("label", { for: control.id }, label),
      h("div", { class: "schema-control" }, control, more),
      errorLine,
    );
  }

  /** @param {Props} [props] */
  const text = (props) => h("input", { type: "text", autocomplete: "off", maxlength: LONGEST_KEY, ...props });
  /** @param {number} min @param {number} max */
  const number = (min, max) => h("input", { type: "number", min, max, step: 1 });
  const queue = text(), priority = number(-HIGHEST_PRIORITY, HIGHEST_PRIORITY), retries = number(0, MOST_RETRIES);
  const key = text(), tenantInput = text({ placeholder: "default" });
  const contract = h("select");
  const hold = h("input", { type: "checkbox", id: "option-hold" });
  const start = startFields();
  const node = card(
    t("enqueue.options"),
    row("queue", t("field.queue"), queue),
    row("priority", t("enqueue.priority"), priority),
    row("scheduled_at", t("enqueue.start"), start.kind, start.nodes),
    row("idempotency_key", t("enqueue.key"), key),
    !tenant && row("tenant_id", t("col.tenant"), tenantInput),
    contracts.length > 0 && row("contract", t("col.contract"), contract),
    row("max_retries", t("enqueue.retries"), retries),
    h("label", { class: "check" }, hold, t("enqueue.hold")),
  );

  /** @param {string} name @param {string} message */
  function showProblem(name, message) {
    const found = rows.get(name);
    if (!found) return false;
    found.errorLine.textContent = message;
    found.control.setAttribute("aria-invalid", String(message !== ""));
    if (message) found.control.focus();
    return true;
  }

  return {
    node,
    showProblem,
    clearProblems: () => {
      for (const name of rows.keys()) showProblem(name, "");
    },
    /** Show what applies where the viewer enters nothing. @param {Declaration | null} declared */
    showDefaults: (declared) => {
      const options = declared?.options ?? {};
      const own = String(options.contract ?? contracts.find((one) => one.default)?.name ?? "standard");
      queue.placeholder = String(options.queue ?? "default");
      priority.placeholder = String(options.priority ?? 0);
      retries.placeholder = String(
        options.max_retries ?? contracts.find(({ name }) => name === own)?.max_retries ?? "",
      );
      fill(
        contract,
        h("option", { value: "" }, t("enqueue.default", { value: own })),
        contracts.filter(({ name }) => name !== own).map(({ name }) => h("option", { value: name }, name)),
      );
    },
    /** Shows the problem of a field that is wrong and returns false. */
    check: () => {
      for (const [name, { control }] of rows) {
        if (!control.checkValidity()) return !showProblem(name, control.validationMessage);
      }
      const problem = start.problem();
      return !problem || !showProblem("scheduled_at", problem);
    },
    /** The given options with the names of REST. */
    values: () => ({
      queue: queue.value.trim() || undefined,
      priority: priority.value === "" ? undefined : Number(priority.value),
      max_retries: retries.value === "" ? undefined : Number(retries.value),
      idempotency_key: key.value || undefined,
      tenant_id: tenantInput.value.trim() || undefined,
      contract: contract.value || undefined,
      scheduled_at: start.moment()?.toISOString(),
      hold: hold.checked || undefined,
    }),
  };
}

/** When the job may start: now, after a delay, or at a time. */
function startFields() {
  const kind = h("select", { on: { change: () => draw() } }, START_KINDS.map(startOption));
  const amount = h("input", {
    type: "number",
    min: 0,
    step: "any",
    value: "5",
    "aria-label": t("enqueue.start.delay"),
  });
  const unit = h(
    "select",
    { "aria-label": t("enqueue.unit") },
    UNITS.map(([name, size]) => h("option", { value: size, selected: name === "minutes" }, t(`enqueue.unit.${name}`))),
  );
  const at = h("input", { type: "datetime-local", step: 1, "aria-label": t("enqueue.start.at") });
  const zone = h("span", { class: "soft small" }, timeZone);
  const nodes = h("span", { class: "row" });
  function draw() {
    fill(nodes, kind.value === "delay" ? [amount, unit] : kind.value === "at" ? [at, zone] : []);
  }
  const moment = () => {
    if (kind.value === "delay") return new Date(Date.now() + Number(amount.value) * Number(unit.value) * 1000);
    return kind.value === "at" ? new Date(at.value) : undefined;
  };
  return {
    kind,
    nodes,
    moment,
    problem: () => {
      const isMissing = (kind.value === "delay" && amount.value === "") || (kind.value === "at" && at.value === "");
      if (isMissing) return t("enqueue.problem.required");
      if (kind.value === "delay" && amount.validationMessage) return amount.validationMessage;
      return Number.isNaN(moment()?.getTime()) ? t("enqueue.problem.date") : "";
    },
  };
}

/** @param {string} kind */
const startOption = (kind) => h("option", { value: kind }, t(`enqueue.start.${kind}`));
