// Dead letters grouped by error.

/** @import { Query } from "../../components/filter_query.js" */
/** @import { Child, ErrorGroup, ErrorGroupList, Table } from "../../types.d.ts" */

import { sparkline } from "../../charts/sparkline.js";
import { badge, button, errorClass } from "../../components/elements.js";
import { filterTerm } from "../../components/filter_query.js";
import { table } from "../../components/table.js";
import { may, person } from "../../core/api.js";
import { h } from "../../core/dom.js";
import { formatExact, timeElement } from "../../core/time.js";
import { deadLetterUrl, urlFor } from "../../core/urls.js";
import { formatNumber, t } from "../../core/words.js";

export const PERIODS = { "1h": 3_600, "24h": 86_400, "7d": 604_800, "30d": 2_592_000 };

/** What selects the dead letters of a group: by type, class and code if messages are hidden. @param {ErrorGroup} group @returns {Query} */
export function queryOf({ group, job_type, error_class, error_code }) {
  if (group) return { error_group: group };
  return { job_type, error_code, ...(error_class ? { error_class } : {}) };
}

/** @param {ErrorGroup} group */
const subjectOf = ({ job_type, error_class, error_code, pattern }) =>
  [job_type, error_class, error_code, pattern].filter(Boolean).join(" · ");

/** The filter of the list that shows the dead letters of a group. @param {ErrorGroup} group */
function filterOf({ group, job_type, error_class, error_code }) {
  if (group) return filterTerm("group", group);
  const terms = [filterTerm("type", job_type), filterTerm("error", error_code)];
  return [...terms, ...(error_class ? [filterTerm("class", error_class)] : [])].join(" ");
}

/** @param {ErrorGroup} group */
export const keyOfGroup = (group) => filterOf(group) + (group.group ?? "");

/**
 * @param {object} options
 * @param {() => string} options.since groups that were first seen later are new
 * @param {() => string} options.filter of the page; a group has only what matches it, and so has the list that a group opens
 * @param {() => boolean} options.canAct false if dead letters are counted that are not open
 * @param {(action: "requeue" | "discard", group: Query, subject: string) => unknown} options.act
 * @returns {Table<ErrorGroup>}
 */
export function groupTable({ since, filter, canAct, act }) {
  /** @param {ErrorGroup} group @returns {Child} */
  const actions = (group) =>
    canAct() && h(
      "div",
      { class: "actions" },
      may("operate") &&
        button(t("dead-letters.requeue-group", { n: group.count }), () =>
          act("requeue", queryOf(group), subjectOf(group)), {
          class: "tiny",
          "data-action": "requeue-group",
          "data-focus": "requeue",
        }),
      may("discard") && button(t("action.discard"), () =>
        act("discard", queryOf(group), subjectOf(group)), {
        class: "tiny danger",
        "data-action": "discard-group",
        "data-focus": "discard",
      }),
      may("discard") && group.proposed_by.map((name) =>
        button(
          t("dead-letters.confirm-group", { person: name }),
          () =>
            act("discard", { ...queryOf(group), proposed_by: name }, subjectOf(group)),
          {
            class: "tiny",
            "data-action": "confirm-group",
            "data-focus": `confirm ${name}`,
            disabled: name === person,
            title: name === person ? t("dead-letters.own-proposal") : null,
          },
        )
      ),
    );
  return table(t("dead-letters.groups"), [
    {
      label: t("col.error"),
      cell: (group) => [
        h("a", {
          href: urlFor(`dead-letters?view=list&q=${encodeURIComponent(`${filter()} ${filterOf(group)}`.trim())}`),
          "data-focus": "open",
        }, group.error_code),
        " ",
        group.first_at >= since() && badge("warning", t("dead-letters.new")),
        h("div", { class: "small" }, errorClass(group.error_class, group.pattern)),
        group.pattern && h("div", { class: "small break" }, group.pattern),
      ],
    },
    { label: t("col.type"), cell: ({ job_type }) => job_type },
    { label: t("col.count"), class: "number", cell: ({ count }) => formatNumber(count) },
    {
      label: t("dead-letters.over-time"),
      cell: ({ slots }) =>
        sparkline(
          slots,
          t("dead-letters.slots", { n: slots.reduce((sum, one) => sum + one, 0), since: formatExact(since()) }),
        ),
    },
    { label: t("dead-letters.first-seen"), class: "nowrap", cell: ({ first_at }) => timeElement(first_at) },
    {
      label: t("dead-letters.last-seen"),
      class: "nowrap",
      cell: ({ last_at, last_id }) => h("a", { href: deadLetterUrl(last_id) }, timeElement(last_at)),
    },
    (may("operate") || may("discard")) && { label: t("col.actions"), class: "tight", cell: actions },
  ]);
}

/**
 * New errors first, then the most frequent ones.
 * @param {ErrorGroupList} answer
 * @param {string} since
 */
export const sortedGroups = ({ items }, since) =>
  items.toSorted((one, other) =>
    Number(other.first_at >= since) - Number(one.first_at >= since) || other.count - one.count
  );
