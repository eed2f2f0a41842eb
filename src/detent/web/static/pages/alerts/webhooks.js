// Webhooks: URLs to which events of jobs are sent; add, edit, pause, resume, remove, deliveries and replay.

/** @import { EditedWebhook, Page, Props, Table, Webhook, WebhookDelivery } from "../../types.d.ts" */

import { field, formDialog, openDialog, reasonField, showSecret, textOf } from "../../components/dialog.js";
import { actionButton, badge, button } from "../../components/elements.js";
import { showRows, table } from "../../components/table.js";
import { toast, toastError } from "../../components/toast.js";
import { call, get, may, post } from "../../core/api.js";
import { fill, h } from "../../core/dom.js";
import { startPage } from "../../core/page.js";
import { emptyState } from "../../core/states.js";
import { exactTime, timeElement } from "../../core/time.js";
import { jobUrl } from "../../core/urls.js";
import { formatNumber, joined, richText, t } from "../../core/words.js";
import "../../core/shell.js";

/** @type {Record<string, string>} */
const TONES = { active: "good", paused: "warning", disabled: "bad" };
const SHOWN_DELIVERIES = 50;
/** @type {ReturnType<typeof build> | null} */
let view = null;
/** @param {Webhook} webhook */
const pathOf = ({ id }) => `webhooks/${encodeURIComponent(id)}`;

/** @param {string} name @param {string} label @param {boolean} checked */
const checkField = (name, label, checked) =>
  h("label", { class: "check" }, h("input", { type: "checkbox", name, checked }), label);

/** @param {Webhook} webhook */
const isFinalOnly = ({ phases }) => phases.length === 1 && phases[0] === "final";

/**
 * A dialog to add a webhook, or to edit `webhook`. An edit sends only what was changed.
 * @param {Webhook | null} [webhook]
 * @returns {Promise<EditedWebhook | null>}
 */
function webhookDialog(webhook = null) {
  const hasOtherPhases = webhook !== null && webhook.phases.length > 0 && !isFinalOnly(webhook);
  /** @param {"name" | "url" | "queue" | "job_type"} name @param {Props} [props] */
  const input = (name, props) => h("input", { name, value: webhook?.[name] ?? "", maxlength: 200, ...props });
  /** @param {FormData} form */
  const values = (form) => ({
    name: textOf(form, "name"),
    url: textOf(form, "url"),
    queue: textOf(form, "queue"),
    job_type: textOf(form, "job_type"),
    phases: hasOtherPhases ? webhook.phases : form.get("final") === "on" ? ["final"] : [],
    payloads: form.get("payloads") === "on",
  });
  return formDialog({
    title: webhook ? t("webhooks.edit", { name: webhook.name }) : t("webhooks.add"),
    lead: t(webhook ? "webhooks.edit.more" : "webhooks.add.more"),
    button: t(webhook ? "action.save" : "action.add"),
    fields: [
      field(t("field.name"), input("name", { required: true })),
      field(t("webhooks.url"), input("url", { type: "url", required: true, maxlength: 2000 })),
      !webhook && field(t("field.tenant"), h("input", { name: "tenant_id", maxlength: 200 })),
      field(t("webhooks.queue"), input("queue")),
      field(t("webhooks.job-type"), input("job_type")),
      !hasOtherPhases && checkField("final", t("webhooks.finished-only"), webhook !== null && isFinalOnly(webhook)),
      checkField("payloads", t("webhooks.payloads"), webhook?.payloads ?? true),
      webhook && checkField("new_secret", t("webhooks.new-secret"), false),
      webhook && reasonField(),
    ],
    submit: (form) => {
      if (!webhook) {
        return call("POST", "webhooks", { json: { ...values(form), tenant_id: textOf(form, "tenant_id") } });
      }
      const changes = Object.entries(values(form)).filter(([name, value]) =>
        JSON.stringify(value) !== JSON.stringify(webhook[/** @type {keyof Webhook} */ (name)])
      );
      const secret = form.get("new_secret") === "on" ? { secret: "" } : {};
      return call("PATCH", pathOf(webhook), {
        json: { ...Object.fromEntries(changes), ...secret, reason: textOf(form, "reason") },
      });
    },
  });
}

async function add() {
  const added = await webhookDialog();
  refresh();
  if (added?.secret) showSecret(t("webhooks.added"), added.secret, t("webhooks.once"));
}

/** @param {Webhook} webhook */
async function edit(webhook) {
  const edited = await webhookDialog(webhook);
  refresh();
  if (!edited) return;
  const { name, secret } = edited;
  if (secret) showSecret(t("webhooks.changed-secret", { name }), secret, t("webhooks.once"));
  else toast(t("done.edit", { name }));
}

/** @param {Webhook} webhook */
async function remove(webhook) {
  const { name } = webhook;
  const done = await formDialog({
    title: t("webhooks.remove", { name }),
    lead: t("webhooks.remove.more"),
    button: t("action.remove"),
    danger: true,
    confirmText: name,
    submit: () => call("DELETE", pathOf(webhook)),
  });
  if (done) toast(t("done.remove", { name }));
  refresh();
}

/**
 * @param {Webhook} webhook
 * @param {"pause" | "resume"} act
 */
async function change(webhook, act) {
  await post(`${pathOf(webhook)}/${act}`).then(() => toast(t(`done.${act}`, { name: webhook.name })), toastError);
  refresh();
}

/** @param {Webhook} webhook */
async function showDeliveries(webhook) {
  /** @type {Page<WebhookDelivery>} */
  const { items } = await get(`${pathOf(webhook)}/deliveries`, { limit: SHOWN_DELIVERIES });
  /** @param {WebhookDelivery} delivery */
  const replay = ({ id }) =>
    post(`${pathOf(webhook)}/replay`, { delivery: id }).then(() => toast(t("done.replay")), toastError);
  const title = t("webhooks.deliveries", { name: webhook.name });
  /** @type {Table<WebhookDelivery>} */
  const rows = table(title, [
    { label: t("col.when"), class: "nowrap", cell: ({ created_at }) => timeElement(created_at) },
    {
      label: t("col.event"),
      class: "wide nowrap",
      cell: ({ event, job_id }) => h("a", { href: jobUrl(job_id) }, event),
    },
    {
      label: t("col.state"),
      cell: ({ state, due_at, last_error }) => [
        t(`webhooks.${state.replace(" ", "-")}`),
        due_at && h("div", { class: "small soft" }, richText("webhooks.next-attempt", { time: exactTime(due_at) })),
        last_error && h("div", { class: "small error break" }, last_error),
      ],
    },
    { label: t("col.attempts-made"), class: "number", cell: ({ attempts }) => formatNumber(attempts) },
    {
      label: t("col.actions"),
      class: "tight",
      cell: (delivery) =>
        actionButton(delivery.state === "due" ? "send-now" : "replay", () => replay(delivery), {
          class: "tiny",
          "data-action": "replay",
        }),
    },
  ]);
  rows.show(items, ({ id }) => id);
  openDialog(title, items.length ? rows.node : h("p", {}, t("webhooks.no-deliveries")));
}

/** @param {HTMLElement} root */
function build(root) {
  /** @type {Table<Webhook>} */
  const rows = table(t("page.webhooks"), [
    {
      label: t("col.name"),
      cell: ({ name, url }) => [h("strong", {}, name), h("div", { class: "small soft break" }, url)],
    },
    { label: t("col.state"), cell: stateCell },
    { label: t("webhooks.filter"), cell: filterCell },
    { label: t("webhooks.backlog"), class: "number", cell: ({ backlog }) => formatNumber(backlog) },
    { label: t("col.tenant"), cell: ({ tenant_id }) => tenant_id ?? t("tokens.all") },
    { label: t("col.actions"), class: "tight", cell: actionsCell },
  ]);
  const list = h("div");
  const addButton = button(t("webhooks.add"), add, { class: "primary" });
  fill(root, may("admin") && h("div", { class: "toolbar" }, addButton), list);
  return { rows, list };
}

/** @param {Webhook} webhook */
const stateCell = ({ state, failures, last_error, old_secret_until }) => [
  badge(state === "active" && failures ? "warning" : TONES[state] ?? "neutral", t(`webhooks.${state}`)),
  failures > 0 && h("div", { class: "small soft" }, t("webhooks.failures", { n: failures })),
  last_error && h("div", { class: "small error break" }, last_error),
  old_secret_until &&
  h("div", { class: "small soft" }, richText("webhooks.old-secret", { time: timeElement(old_secret_until) })),
];

/** @param {Webhook} webhook */
const filterCell = ({ queue, job_type, contract, events, phases }) => [
  joined([...events, ...phases.map((phase) => t(`phase.${phase}`))]) || t("webhooks.all-events"),
  Object.entries({ queue, job_type, contract }).map(([kind, name]) =>
    name && h("div", { class: "small soft break" }, t("limits.named", { kind: t(`kind.${kind}`), name }))
  ),
];

/** @param {Webhook} webhook */
const actionsCell = (webhook) =>
  h(
    "div",
    { class: "actions" },
    button(t("webhooks.show-deliveries"), () => showDeliveries(webhook).catch(toastError), { class: "tiny" }),
    webhook.state === "active"
      ? actionButton("pause", () => change(webhook, "pause"), { class: "tiny" })
      : actionButton("resume", () => change(webhook, "resume"), { class: "tiny" }),
    may("admin") && actionButton("edit", () => edit(webhook), { class: "tiny" }),
    may("admin") && actionButton("remove", () => remove(webhook), { class: "tiny danger" }),
  );

/**
 * @param {HTMLElement} root
 * @param {Page<Webhook>} page
 */
function draw(root, { items }) {
  view ??= build(root);
  const empty = () => emptyState(t("webhooks.none"), t("webhooks.none.more"));
  showRows(view.list, view.rows, items, ({ id }) => id, empty);
}

const refresh = startPage({ load: () => get("webhooks"), draw, poll: 3000, concerns: () => false });
