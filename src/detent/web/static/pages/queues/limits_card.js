// The card with limits on concurrency and start rate: list, set, remove.

/** @import { Limit, Table } from "../../types.d.ts" */

import { field, formDialog, reasonField, textOf } from "../../components/dialog.js";
import { button, cardWithHead } from "../../components/elements.js";
import { table } from "../../components/table.js";
import { toast } from "../../components/toast.js";
import { call, may, post } from "../../core/api.js";
import { h } from "../../core/dom.js";
import { formatDuration } from "../../core/time.js";
import { colon, formatNumber, t } from "../../core/words.js";
import { scopeOf, scopeText } from "./limit_scope.js";

const PER_KINDS = ["queue", "type", "tenant", "key"];

async function add() {
  /** @param {string} name */
  const textInput = (name) => h("input", { name, maxlength: 200 });
  /** @param {string} name */
  const numberInput = (name) => h("input", { name, type: "number", min: 1 });
  const kinds = PER_KINDS.map((kind) => h("option", { value: kind }, t(`kind.${kind}`)));
  const done = await formDialog({
    title: t("limits.add"),
    lead: t("limits.add.more"),
    button: t("action.save"),
    fields: [
      field(t("field.queue"), textInput("queue")),
      field(t("field.job-type"), textInput("job_type")),
      field(t("field.tenant"), textInput("tenant_id")),
      field(t("limits.per"), h("select", { name: "per" }, h("option", { value: "" }, "–"), kinds)),
      field(t("limits.concurrency"), numberInput("concurrency")),
      field(t("limits.rate"), numberInput("rate")),
      reasonField(),
    ],
    submit: (form) => {
      const texts = ["queue", "job_type", "tenant_id", "per", "reason"].map((name) => [name, textOf(form, name)]);
      const numbers = ["concurrency", "rate"].map((name) => [name, Number(form.get(name)) || null]);
      return call("PUT", "limits", { json: Object.fromEntries([...texts, ...numbers]) });
    },
  });
  if (done) toast(t("done.limit"));
}

/** @param {Limit} limit */
const rateText = ({ rate, period_seconds }) =>
  rate !== null && `${formatNumber(rate)} / ${formatDuration((period_seconds ?? 1) * 1000)}`;

/** @param {Limit} limit */
const valueTexts = (limit) => [
  ...(limit.concurrency === null ? [] : [`${t("limits.concurrency")}${colon}${formatNumber(limit.concurrency)}`]),
  ...(limit.rate === null ? [] : [`${t("limits.starts")}${colon}${rateText(limit)}`]),
];

/** @param {Limit} limit */
async function remove(limit) {
  const done = await formDialog({
    title: t("limits.remove"),
    lead: [scopeText(limit), ...valueTexts(limit)].join(" · "),
    button: t("action.remove"),
    danger: true,
    fields: reasonField(),
    submit: (form) => post("limits/remove", { ...scopeOf(limit), reason: textOf(form, "reason") }),
  });
  if (done) toast(t("done.limit"));
}

/** @param {() => void} refresh */
export function limitsCard(refresh) {
  /** @param {Limit} limit */
  const removeButton = (limit) => {
    const onClick = () => remove(limit).then(refresh);
    return button(t("action.remove"), onClick, { class: "tiny danger", "data-action": "remove-limit" });
  };
  /** @type {Table<Limit>} */
  const rows = table(t("queues.limits"), [
    { label: t("limits.applies-to"), cell: scopeText },
    {
      label: t("limits.concurrency"),
      class: "number",
      cell: ({ concurrency }) => concurrency !== null && formatNumber(concurrency),
    },
    {
      label: t("limits.starts"),
      class: "number wide",
      cell: rateText,
    },
    may("operate") && { label: t("col.actions"), class: "tight", cell: removeButton },
  ]);
  const addButton = may("operate") &&
    button(t("limits.add"), () => add().then(refresh), { class: "tiny", "data-action": "limit" });
  const none = h("p", { class: "soft" }, t("limits.none"));
  return {
    node: cardWithHead(t("queues.limits"), addButton, none, rows.node),
    /** @param {Limit[]} limits */
    show: (limits) => {
      rows.node.hidden = !limits.length;
      none.hidden = limits.length > 0;
      rows.show(limits, (limit) => JSON.stringify(scopeOf(limit)));
    },
  };
}
