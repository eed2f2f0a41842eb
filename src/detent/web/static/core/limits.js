// Limits on what runs at once and how often jobs begin: shown, set, removed.
import { fill, h } from "./dom.js";
import { may, post, send } from "./api.js";
import { ask, field, reasonField, toast } from "./dialog.js";
import { table } from "./table.js";
import { number, t } from "./words.js";

const SCOPES = ["queue", "job_type", "tenant", "key"];
const scope = (one) => Object.fromEntries([...SCOPES, "per"].map((name) => [name, one[name]]));
const key = (one) => JSON.stringify(scope(one));

// What a limit bounds, in words.
export const limitScope = (one) => [...SCOPES.filter((name) => one[name] !== null).map((name) => t("limits.of", { kind: t(`kind.${name}`), name: one[name] })),
  one.per && t("limits.each", { kind: t(`kind.${one.per}`) })].filter(Boolean).join(t("list.comma")) || t("limits.everything");

async function add(again) {
  const done = await ask({
    title: t("limits.add"), lead: t("limits.add.more"), button: t("act.add"),
    fields: [
      field(t("field.queue"), h("input", { name: "queue", maxlength: 200 })), field(t("field.job-type"), h("input", { name: "job_type", maxlength: 200 })),
      field(t("field.tenant"), h("input", { name: "tenant", maxlength: 200 })),
      field(t("limits.per"), h("select", { name: "per" }, h("option", { value: "" }, "–"), ["queue", "type", "tenant", "key"].map((one) => h("option", { value: one }, t(`kind.${one}`))))),
      field(t("limits.concurrency"), h("input", { name: "concurrency", type: "number", min: 1 })), field(t("limits.rate"), h("input", { name: "rate", type: "number", min: 1 })), reasonField(),
    ],
    act: (form) => send("PUT", "limits", Object.fromEntries([
      ...["queue", "job_type", "tenant", "per", "reason"].map((name) => [name, form.get(name) || null]),
      ...["concurrency", "rate"].map((name) => [name, form.get(name) ? Number(form.get(name)) : null])])),
  });
  if (done) toast(t("did.limit"));
  again();
}

async function remove(one, again) {
  const done = await ask({ title: t("limits.remove"), lead: limitScope(one), button: t("act.remove"), danger: true, fields: [reasonField()],
    act: (form) => post("limits/remove", { ...scope(one), reason: form.get("reason") || null }) });
  if (done) toast(t("did.limit"));
  again();
}

function built(again) {
  const rows = table([
    { label: t("limits.bounds"), cell: limitScope },
    { label: t("limits.concurrency"), class: "number", cell: (one) => one.concurrency !== null && number(one.concurrency) },
    { label: t("limits.rate"), class: "number", cell: (one) => one.rate !== null && `${number(one.rate)} / ${one.period_seconds} s` },
    may("operate") && { label: t("col.actions"), class: "tight", cell: (one) => h("button", { type: "button", class: "tiny danger", "data-act": "unlimit", on: { click: () => remove(one, again) } }, t("act.remove")) },
  ].filter(Boolean), { label: t("queues.limits") });
  const none = h("p", { class: "soft" }, t("limits.none"));
  const node = h("section", { class: "card" }, h("div", { class: "head" }, h("h2", {}, t("queues.limits")),
    may("operate") && h("button", { type: "button", class: "tiny", "data-act": "limit", on: { click: () => add(again) } }, t("limits.add"))), none, rows.node);
  return { node, rows, none };
}

let card = null;

export function limitsCard(room, limits, again) {
  card ??= built(again);
  if (!room.children.length) fill(room, card.node);
  card.rows.node.hidden = !limits.length;
  card.none.hidden = limits.length > 0;
  card.rows.show(limits, key);
}
