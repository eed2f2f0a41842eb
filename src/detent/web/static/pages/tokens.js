// Tokens: made, shown once, revoked.
import { fill, h } from "../core/dom.js";
import { get, post } from "../core/api.js";
import { ask, field, openDialog, toast } from "../core/dialog.js";
import { empty, page } from "../core/states.js";
import { table } from "../core/table.js";
import { moment } from "../core/time.js";
import { copyButton } from "../core/tree.js";
import { t } from "../core/words.js";
import "../core/shell.js";

let room = null;

async function create() {
  const made = await ask({
    title: t("tokens.create"), lead: t("tokens.create.more"), button: t("act.create"),
    fields: [
      field(t("field.person"), h("input", { name: "name", required: true, maxlength: 200 })),
      field(t("field.role"), h("select", { name: "role" }, ["viewer", "operator", "reviewer", "admin"].map((role) => h("option", { value: role }, t(`role.${role}`))))),
      field(t("field.roles"), h("input", { name: "roles", maxlength: 2000 })),
      field(t("field.tenant"), h("input", { name: "tenant", maxlength: 200 })),
      field(t("field.expires"), h("input", { name: "days", type: "number", min: 1, max: 3650 })),
      h("label", { class: "check" }, h("input", { type: "checkbox", name: "payloads", checked: true }), t("field.payloads")),
    ],
    act: (form) => post("tokens", { name: form.get("name"), role: form.get("role"), tenant: form.get("tenant") || null, payloads: form.get("payloads") === "on",
      roles: form.get("roles").split(",").map((role) => role.trim()).filter(Boolean), expires_days: form.get("days") ? Number(form.get("days")) : null }),
  });
  again();
  if (made) openDialog(t("tokens.made"), h("div", {}, h("p", {}, t("tokens.once")), h("code", { class: "secret", id: "secret" }, made.token)), copyButton(() => made.token));
}

async function revoke(one) {
  const done = await ask({ title: t("tokens.revoke", { who: one.name }), lead: t("tokens.revoke.more"), button: t("act.revoke"), danger: true,
    act: () => post(`tokens/${encodeURIComponent(one.id)}/revoke`) });
  if (done) toast(t("did.revoke"));
  again();
}

function built(root) {
  const rows = table([
    { label: t("field.person"), cell: (one) => [h("strong", {}, one.name), h("div", { class: "soft small mono" }, one.id)] },
    { label: t("col.role"), cell: (one) => [t(`role.${one.role}`), one.roles.length > 0 && h("div", { class: "soft small break" }, one.roles.join(", "))] }, { label: t("col.tenant"), cell: (one) => one.tenant ?? t("tokens.all") },
    { label: t("job.payload"), cell: (one) => t(one.payloads ? "yes" : "no") },
    { label: t("col.state"), cell: (one) => h("span", { class: `badge ${one.valid ? "good" : "gone"}` }, h("span", {}, t(one.valid ? "tokens.valid" : one.revoked_at ? "tokens.revoked" : "tokens.expired"))) },
    { label: t("col.expires"), cell: (one) => (one.expires_at ? moment(one.expires_at) : t("tokens.never")) },
    { label: t("col.made"), cell: (one) => [moment(one.created_at), ` · ${one.created_by}`] },
    { label: t("col.actions"), class: "tight", cell: (one) => one.valid && h("button", { type: "button", class: "tiny danger", on: { click: () => revoke(one) } }, t("act.revoke")) },
  ], { label: t("page.tokens") });
  const list = h("div");
  fill(root, h("div", { class: "toolbar" }, h("button", { type: "button", class: "primary", on: { click: create } }, t("tokens.create"))), list);
  return { rows, list };
}

function draw(root, { tokens }) {
  room ??= built(root);
  if (tokens.length) {
    if (room.rows.node.parentNode !== room.list) fill(room.list, room.rows.node);
    room.rows.show(tokens, (one) => one.id);
  } else fill(room.list, empty(t("tokens.none"), t("tokens.none.more")));
}

const again = page({ load: () => get("tokens"), draw, concerns: () => false, every: 300, poll: 10_000 });
