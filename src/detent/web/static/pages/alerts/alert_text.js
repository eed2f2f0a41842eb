/** @import { Alert } from "../../types.d.ts" */

import { filterTerm } from "../../components/filter_query.js";
import { formatDuration } from "../../core/time.js";
import { jobTypeUrl, queueUrl, urlFor } from "../../core/urls.js";
import { formatNumber, formatPercent, hasText, t } from "../../core/words.js";

const SHARES = new Set(["retrying_share", "error_rate"]);
const COUNTS = new Set(["dlq_arrivals", "illegal_transitions", "lease_losses", "suspects"]);

/** What its rule measures; a rule that was removed from the settings had the name of its kind. @param {Alert} alert */
const kindOf = ({ kind, rule }) => kind ?? rule;

/** The alert in the viewer's language. @param {Alert} alert */
export function alertText(alert) {
  const key = `alert.about.${kindOf(alert)}`;
  if (!hasText(key)) return alert.summary;
  return t(key, { n: alert.value, value: valueText(alert), subject: alert.subject });
}

/** @param {Alert} alert */
function valueText(alert) {
  const kind = kindOf(alert), { value } = alert;
  if (SHARES.has(kind)) return formatPercent(value);
  return COUNTS.has(kind) ? formatNumber(value) : formatDuration(value * 1000);
}

/** The page that shows the cause of an alert, or null. @param {Alert} alert */
export function causeUrl(alert) {
  const kind = kindOf(alert), { labels } = alert;
  if (labels.webhook) return urlFor("webhooks");
  if (labels.schedule) {
    const name = labels.schedule.split("/").at(-1) ?? ""; // without the tenant
    return urlFor(`schedules?q=${encodeURIComponent(name)}`);
  }
  if (kind === "dlq_arrivals") {
    return urlFor(`dead-letters?q=${encodeURIComponent(labels.tenant ? filterTerm("tenant", labels.tenant) : "")}`);
  }
  if (kind === "lease_losses") return urlFor("workers");
  if (labels.job_type) return jobTypeUrl(labels.job_type);
  if (labels.queue) return queueUrl(labels.queue);
  return labels.contract ? urlFor(`contracts/${encodeURIComponent(labels.contract)}`) : null;
}
