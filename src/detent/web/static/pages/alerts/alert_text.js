/** @import { Alert } from "../../types.d.ts" */

import { formatDuration } from "../../core/time.js";
import { jobTypeUrl, queueUrl, urlFor } from "../../core/urls.js";
import { formatNumber, formatPercent, hasText, t } from "../../core/words.js";

const SHARES = new Set(["retrying_share", "error_rate"]);
const COUNTS = new Set(["dlq_arrivals", "illegal_transitions", "lease_losses", "suspects"]);

/** The alert in the viewer's language; a rule of the user's own keeps the server's summary. @param {Alert} alert */
export function alertText(alert) {
  const key = `alert.about.${alert.rule}`;
  if (!hasText(key)) return alert.summary;
  return t(key, { n: alert.value, value: valueText(alert), subject: alert.subject });
}

/** @param {Alert} alert */
function valueText({ rule, value }) {
  if (SHARES.has(rule)) return formatPercent(value);
  return COUNTS.has(rule) ? formatNumber(value) : formatDuration(value * 1000);
}

/** The page that shows the cause of an alert, or null. @param {Alert} alert */
export function causeUrl({ rule, labels }) {
  if (labels.webhook) return urlFor("webhooks");
  if (labels.schedule) return urlFor("schedules");
  if (rule === "dlq_arrivals") return urlFor("dead-letters");
  if (rule === "lease_losses") return urlFor("workers");
  if (labels.job_type) return jobTypeUrl(labels.job_type);
  if (labels.queue) return queueUrl(labels.queue);
  return labels.contract ? urlFor(`contracts/${encodeURIComponent(labels.contract)}`) : null;
}
