// What the list of workers and the page of one worker share: state, load, and the commands to drain or stop it.

/** @import { Worker } from "../../types.d.ts" */

import { shareBar } from "../../charts/share_bar.js";
import { formDialog, reasonField, textOf } from "../../components/dialog.js";
import { actionButton, badge } from "../../components/elements.js";
import { toast } from "../../components/toast.js";
import { may, post } from "../../core/api.js";
import { h } from "../../core/dom.js";
import { t, translated } from "../../core/words.js";

/**
 * @param {Worker} worker
 * @param {"drain" | "stop"} command
 */
async function send(worker, command) {
  const done = await formDialog({
    title: t(`workers.${command}`, { name: worker.id }),
    lead: t(`workers.${command}.more`),
    button: t(`action.${command}`),
    danger: command === "stop",
    fields: reasonField(),
    submit: (form) => post(`workers/${encodeURIComponent(worker.id)}/${command}`, { reason: textOf(form, "reason") }),
  });
  if (done) toast(t("done.command"));
}

/** @param {Worker} worker */
export function workerState({ live, state, order }) {
  const tone = live ? (order ? "warning" : "good") : "neutral";
  return [
    badge(tone, live ? translated("worker", state) : t("workers.offline")),
    order && h("div", { class: "small soft" }, `${translated("action", order.act)} · ${order.actor}`),
  ];
}

/** A job that it claimed since its last heartbeat is not in `busy` yet. @param {Worker} worker */
export function workerLoad({ busy: reported, held, slots }) {
  const busy = Math.max(reported, held.length);
  const bar = shareBar([["leased", busy], ["none", Math.max(0, slots - busy)]]);
  return [`${busy} / ${slots}`, h("div", { class: "load" }, bar)];
}

/**
 * The buttons for a live worker that has no command yet.
 * @param {Worker} worker
 * @param {() => void} refresh
 */
export const workerActions = (worker, refresh) =>
  may("operate") && worker.live && !worker.order && h(
    "div",
    { class: "actions" },
    actionButton("drain", () => send(worker, "drain").then(refresh), { class: "tiny" }),
    actionButton("stop", () => send(worker, "stop").then(refresh), { class: "tiny danger" }),
  );
