// Cancel or requeue many jobs: the selected ones, or all that match a filter.

/** @import { Query } from "../../components/filter_query.js" */
/** @import { BulkResult } from "../../types.d.ts" */

import { formDialog, reasonField, textOf } from "../../components/dialog.js";
import { codesOf, toast, toastError } from "../../components/toast.js";
import { post } from "../../core/api.js";
import { h } from "../../core/dom.js";
import { sentenceGap, t, translated } from "../../core/words.js";

/** @typedef {"cancel" | "requeue"} BulkAction */
/** @typedef {{ ids: string[] } | { filter: string, query: Query }} Target */
/** @typedef {{ matched: number, fitting: number, done: number, refused: number, refusals: { code: string }[] }} Sum */

const CONFIRM_ABOVE = 1000, IDS_PER_REQUEST = 500;

/**
 * A dry run counts the jobs first; above 1,000 the number must be typed. The action runs page by page and stops after the
 * current page when the dialog is closed. Resolves when the action ended; false if there was nothing to do.
 * @param {BulkAction} action
 * @param {Target} target
 */
export async function actOnMany(action, target) {
  /** @type {Sum} */
  let count;
  try {
    count = await runPages(action, target, { dry_run: true });
  } catch (error) {
    toastError(error);
    return false;
  }
  const { matched, fitting } = count;
  if (!fitting) {
    toast(t(`bulk.${action}.none`, { n: matched }), { tone: "bad" });
    return false;
  }
  const chosen = "ids" in target
    ? t("bulk.selected", { n: matched })
    : t("bulk.matching", { filter: inWords(target.filter), n: matched });
  const bar = h("progress", { max: fitting, value: 0, hidden: true, "aria-label": t("bulk.progress") });
  const done = await formDialog({
    title: t(`bulk.${action}`, { n: fitting }),
    lead: chosen + sentenceGap + t(`bulk.${action}.more`),
    button: t(`bulk.${action}`, { n: fitting }),
    danger: action === "cancel",
    fields: [reasonField(), bar],
    confirmText: fitting > CONFIRM_ABOVE ? String(fitting) : null,
    submit: (form, dialog) => {
      bar.hidden = false;
      return runPages(action, target, { dry_run: false, reason: textOf(form, "reason") }, (sum) => {
        bar.value = sum.done + sum.refused;
        return dialog.open;
      });
    },
  });
  if (done) report(action, done);
  return true;
}

/** A filter with phases as the page calls them. @param {string} filter */
const inWords = (filter) => filter.replace(/(?<!\S)phase:(\w+)/g, (_term, phase) => translated("phase", phase));

/**
 * @param {BulkAction} action
 * @param {Sum} sum
 */
function report(action, { done, refused, refusals }) {
  const refusedText = refused ? sentenceGap + t("bulk.refused", { n: refused }) : "";
  const text = t(`bulk.${action}.done`, { n: done }) + refusedText;
  toast(text, { tone: refused ? "warning" : "good", code: codesOf(refusals) });
}

const NUMBERS = new Set(["min_duration_seconds", "max_duration_seconds", "min_attempts"]);

/** The query with the types that a request body needs. @param {Query} query */
const typed = (query) =>
  Object.fromEntries(
    Object.entries(query).map(([name, value]) => [
      name,
      NUMBERS.has(name) ? Number(value) : name === "roots" ? value === "true" : value,
    ]),
  );

/**
 * Send the action page by page, as long as `goOn` returns true.
 * @param {BulkAction} action
 * @param {Target} target
 * @param {{ dry_run: boolean, reason?: string | null }} options
 * @param {(sum: Sum) => boolean} [goOn]
 */
async function runPages(action, target, options, goOn = () => true) {
  /** @type {Sum} */
  const sum = { matched: 0, fitting: 0, done: 0, refused: 0, refusals: [] };
  /** @param {object} page */
  const send = async (page) => {
    /** @type {BulkResult} */
    const result = await post(`bulk/${action}`, { ...page, ...options });
    sum.matched += result.matched;
    sum.fitting += result.fitting;
    sum.done += result.done;
    sum.refused += result.refused;
    sum.refusals.push(...result.refusals);
    return result.next_cursor;
  };
  if ("ids" in target) {
    for (let start = 0; start < target.ids.length; start += IDS_PER_REQUEST) {
      await send({ ids: target.ids.slice(start, start + IDS_PER_REQUEST) });
      if (!goOn(sum)) break;
    }
    return sum;
  }
  let cursor = null;
  do {
    cursor = await send({ ...typed(target.query), cursor });
  } while (goOn(sum) && cursor);
  return sum;
}
