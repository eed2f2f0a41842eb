// What an alert is about, in the viewer's language; rules with names of their own speak for themselves.
import { span } from "./time.js";
import { known, number, t } from "./words.js";

const SHARES = new Set(["retrying_share", "error_rate"]);
const COUNTS = new Set(["dlq_arrivals", "illegal_transitions", "lease_losses"]);

export function alertText(one) {
  const key = `alert.about.${one.rule}`;
  if (!known(key)) return one.summary;
  const value = SHARES.has(one.rule) ? `${number(Math.round(one.value * 100))} %` : COUNTS.has(one.rule) ? number(one.value) : span(one.value * 1000);
  return t(key, { value, subject: one.subject });
}
