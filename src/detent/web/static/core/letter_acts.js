// What may be done to a dead letter, and what became of it.
import { h, jobLink } from "./dom.js";
import { may, payloads, person, post } from "./api.js";
import { ask, reasonField, toast } from "./dialog.js";
import { editor } from "./editor.js";
import { t } from "./words.js";

const TONES = { open: "bad", requeued: "good", discarded: "gone" };

export const fate = (letter) => [h("span", { class: `badge ${TONES[letter.status]}` }, h("span", {}, t(`fate.${letter.status}`))),
  letter.status === "open" && letter.proposed_by && h("div", { class: "small soft" }, t("letters.proposed", { who: letter.proposed_by }))];

export function letterButtons(letter, again) {
  if (letter.status !== "open") return [];
  const path = `dlq/items/${encodeURIComponent(letter.dlq_id)}`;
  const mine = letter.proposed_by === person;
  return [
    may("operate") && h("button", { type: "button", class: "primary", "data-act": "requeue", on: { click: () => requeue(letter, path, again) } }, t("act.requeue")),
    may("discard") && h("button", { type: "button", class: "danger", "data-act": "discard", disabled: mine, title: mine ? t("letters.mine") : null,
      on: { click: () => discard(letter, path, again) } }, t(letter.proposed_by ? "letters.confirm-discard" : "act.discard")),
    mine && h("span", { class: "soft small" }, t("letters.mine")),
  ];
}

async function requeue(letter, path, again) {
  const content = editor({ label: t("field.payload"), value: letter.payload_json, object: true });
  const done = await ask({
    title: t("ask.requeue"), lead: t("ask.requeue.more"), button: t("act.requeue"), fields: [payloads && content.node, reasonField()],
    act: (form) => post(`${path}/requeue`, { reason: form.get("reason") || null, ...(payloads && content.changed() ? { payload: content.value() } : {}) }),
  });
  if (!done) return;
  toast(t("did.requeue"));
  if (done.job) location.assign(jobLink(done.job.id));
  else again();
}

async function discard(letter, path, again) {
  const second = Boolean(letter.proposed_by);
  const done = await ask({
    title: t(second ? "letters.confirm-discard" : "ask.discard"), lead: second ? t("ask.discard.second", { who: letter.proposed_by, why: letter.proposed_reason ?? "" }) : t("ask.discard.more"),
    button: t(second ? "letters.confirm-discard" : "act.discard"), danger: true, fields: [reasonField(true)],
    act: (form) => post(`${path}/discard`, { reason: form.get("reason") || null }),
  });
  if (done) toast(t(done.confirmed ? "did.discard" : "did.propose"));
  again();
}
