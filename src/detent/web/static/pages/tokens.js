// API tokens: create, show once, revoke.

/** @import { Page, Table, Token } from "../types.d.ts" */

import { field, formDialog, showSecret, textOf } from "../components/dialog.js";
import { actionButton, badge, button } from "../components/elements.js";
import { showRows, table } from "../components/table.js";
import { toast } from "../components/toast.js";
import { call, get } from "../core/api.js";
import { fill, h } from "../core/dom.js";
import { startPage } from "../core/page.js";
import { emptyState } from "../core/states.js";
import { timeElement } from "../core/time.js";
import { joined, t } from "../core/words.js";
import "../core/shell.js";

const ROLES = ["viewer", "operator", "reviewer", "admin", "worker", "producer"];
/** The name that the server stores for whoever can read its console and its database. */
const SERVER_OPERATOR = "operator of the server";
/** @type {ReturnType<typeof build> | null} */
let view = null;

/** @returns {Promise<{ token: string } | null>} */
const askForToken = () =>
  formDialog({
    title: t("tokens.create"),
    lead: t("tokens.create.more"),
    button: t("action.create"),
    fields: [
      field(t("field.person"), h("input", { name: "name", required: true, maxlength: 200 })),
      field(
        t("field.role"),
        h("select", { name: "role" }, ROLES.map((role) => h("option", { value: role }, t(`role.${role}`)))),
      ),
      field(t("field.roles"), h("input", { name: "roles", maxlength: 2000 })),
      field(t("field.tenant"), h("input", { name: "tenant_id", maxlength: 200 })),
      field(t("field.queues"), h("input", { name: "queues", maxlength: 2000 })),
      field(t("field.types"), h("input", { name: "job_types", maxlength: 2000 })),
      field(t("field.expires"), h("input", { name: "days", type: "number", min: 1, max: 3650 })),
      h("label", { class: "check" }, h("input", { type: "checkbox", name: "never" }), t("field.never")),
      h(
        "label",
        { class: "check" },
        h("input", { type: "checkbox", name: "payloads", checked: true }),
        t("field.payloads"),
      ),
    ],
    submit: (form) => {
      const days = textOf(form, "days");
      /** @param {string} name */
      const listOf = (name) => (textOf(form, name) ?? "").split(",").map((entry) => entry.trim()).filter(Boolean);
      const json = {
        name: form.get("name"),
        role: form.get("role"),
        tenant_id: textOf(form, "tenant_id"),
        payloads: form.get("payloads") === "on",
        roles: listOf("roles"),
        queues: listOf("queues"),
        job_types: listOf("job_types"),
        expires_days: form.get("never") === "on" ? "never" : days ? Number(days) : null,
      };
      return call("POST", "tokens", { json });
    },
  });

async function create() {
  const created = await askForToken();
  refresh();
  if (created) showSecret(t("tokens.created"), created.token, t("tokens.once"));
}

/** @param {Token} token */
async function revoke(token) {
  const done = await formDialog({
    title: t("tokens.revoke", { person: token.name }),
    lead: t("tokens.revoke.more"),
    button: t("action.revoke"),
    danger: true,
    submit: () => call("POST", `tokens/${encodeURIComponent(token.id)}/revoke`),
  });
  if (done) toast(t("done.revoke"));
  refresh();
}

/** @param {Token} token */
function knownToCell({ shared_with }) {
  const names = shared_with.map((name) => (name === SERVER_OPERATOR ? t("tokens.server-operator") : name));
  return joined(names) || t("tokens.owner");
}

/** @param {HTMLElement} root */
function build(root) {
  /** @type {Table<Token>} */
  const rows = table(t("page.tokens"), [
    {
      label: t("field.person"),
      cell: ({ id, name }) => [h("strong", {}, name), h("div", { class: "soft small mono uuid" }, id)],
    },
    {
      label: t("col.role"),
      class: "wide",
      cell: ({ role, roles }) => [
        t(`role.${role}`),
        roles.length > 0 && h("div", { class: "soft small break" }, joined(roles)),
      ],
    },
    { label: t("col.tenant"), cell: ({ tenant_id }) => tenant_id ?? t("tokens.all") },
    { label: t("col.queues"), cell: ({ queues }) => joined(queues) || t("tokens.all") },
    { label: t("col.types"), cell: ({ job_types }) => joined(job_types) || t("tokens.all") },
    {
      label: t("tokens.payloads"),
      cell: ({ payloads }) => t(payloads ? "tokens.payloads.shown" : "tokens.payloads.hidden"),
    },
    { label: t("col.state"), cell: stateCell },
    {
      label: t("col.expires"),
      cell: ({ expires_at, revoked_at }) => !revoked_at && (expires_at ? timeElement(expires_at) : t("tokens.never")),
    },
    {
      label: t("col.created"),
      class: "wide",
      cell: ({ created_at, created_by }) => [timeElement(created_at), ` · ${created_by}`],
    },
    { label: t("tokens.known-to"), class: "wide", cell: knownToCell },
    {
      label: t("col.actions"),
      class: "tight",
      cell: (token) => token.valid && actionButton("revoke", () => revoke(token), { class: "tiny danger" }),
    },
  ]);
  const list = h("div");
  const createButton = button(t("tokens.create"), create, { class: "primary" });
  fill(root, h("div", { class: "toolbar" }, createButton), list);
  return { rows, list };
}

/** @param {Token} token */
function stateCell({ valid, revoked_at, expires_soon }) {
  if (valid) return badge(expires_soon ? "blocked" : "good", t(expires_soon ? "tokens.expires-soon" : "tokens.valid"));
  return badge("neutral", t(revoked_at ? "tokens.revoked" : "tokens.expired"));
}

/**
 * @param {HTMLElement} root
 * @param {Page<Token>} page
 */
function draw(root, { items }) {
  view ??= build(root);
  const empty = () => emptyState(t("tokens.none"), t("tokens.none.more"));
  showRows(view.list, view.rows, items, ({ id }) => id, empty);
}

const refresh = startPage({ load: () => get("tokens"), draw, concerns: () => false, every: 300, poll: 10_000 });
