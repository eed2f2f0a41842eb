// What waits for people: the question, who has answered, and the two answers.
import { fill, h, jobLink } from "../core/dom.js";
import { get, may, payloads, person, post } from "../core/api.js";
import { ask, reasonField, toast } from "../core/dialog.js";
import { empty, page } from "../core/states.js";
import { table } from "../core/table.js";
import { moment } from "../core/time.js";
import { tree } from "../core/tree.js";
import { number, t } from "../core/words.js";
import "../core/shell.js";

let room = null;

// A job that is held before it begins has no question of its own.
const question = (one) => (one.name === null ? t("approvals.before") : one.summary ?? t("payload.hidden"));

async function decide(one, act) {
  const done = await ask({
    title: t(`ask.${act}`), lead: question(one), button: t(`act.${act}`), danger: act === "reject",
    fields: [one.about && payloads && h("div", { class: "trace" }, tree(one.about)), reasonField(act === "reject")],
    act: (form) => post(`jobs/${encodeURIComponent(one.job_id)}/${act}`, { reason: form.get("reason") || null, ...(one.digest ? { digest: one.digest } : {}) }),
  });
  if (done) toast(t(`did.${act}`));
  again();
}

function built(root) {
  const rows = table([
    { label: t("col.job"), cell: (one) => [h("a", { href: jobLink(one.job_id), "data-focus": "open" }, one.job_type), h("div", { class: "soft small mono" }, one.job_id)] },
    { label: t("col.asked"), cell: (one) => [h("div", { class: "break" }, question(one)), one.about && payloads && h("details", {}, h("summary", { class: "small" }, t("col.data")), tree(one.about))] },
    { label: t("col.tenant"), cell: (one) => one.tenant_id },
    { label: t("col.votes"), cell: (one) => [t("approvals.missing", { n: one.missing, quorum: one.quorum }), one.votes?.map((vote) => h("div", { class: "small soft" }, `${vote.approved ? "✓" : "✗"} ${vote.person}${vote.reason ? `: ${vote.reason}` : ""}`))] },
    { label: t("col.since"), class: "nowrap", cell: (one) => moment(one.since) },
    { label: t("col.deadline"), class: "nowrap", cell: (one) => moment(one.deadline) },
    may("review") && { label: t("col.actions"), class: "tight", cell: (one) => (!one.may_decide || one.votes?.some((vote) => vote.person === person && vote.approved)
      ? h("span", { class: "soft small" }, one.may_decide ? t("approvals.voted") : t("approvals.roles", { roles: one.roles.join(", ") }))
      : h("div", { class: "actions" }, ["approve", "reject"].map((act) => h("button", { type: "button", class: `tiny ${act === "approve" ? "primary" : "danger"}`, "data-act": act, "data-focus": act, on: { click: () => decide(one, act) } }, t(`act.${act}`))))) },
  ].filter(Boolean), { label: t("page.approvals") });
  const list = h("div");
  fill(root, !may("review") && h("p", { class: "soft" }, t("approvals.look")), list);
  return { rows, list };
}

function draw(root, { items }) {
  room ??= built(root);
  const count = document.querySelector('.menu [data-name="approvals"] .count');
  count.hidden = !items.length;
  count.textContent = number(items.length);
  if (items.length) {
    if (room.rows.node.parentNode !== room.list) fill(room.list, room.rows.node);
    room.rows.show(items, (one) => `${one.job_id}/${one.name ?? ""}`);
  } else fill(room.list, empty(t("approvals.none"), t("approvals.none.more")));
}

const again = page({ load: () => get("approvals", { limit: 100 }), draw, every: 700, poll: 10_000, concerns: () => !document.querySelector("dialog[open]") });
