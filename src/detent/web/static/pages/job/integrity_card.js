// Checks the job's log against its row and its contract.

/** @import { VerifyReport } from "../../types.d.ts" */

import { actionButton, cardWithHead } from "../../components/elements.js";
import { asProblem, get } from "../../core/api.js";
import { fill, h } from "../../core/dom.js";
import { colon, t, translated } from "../../core/words.js";

/** @param {string} jobPath */
export function integrityCard(jobPath) {
  const result = h("p", { class: "soft", id: "integrity-result" }, t("job.integrity.more"));
  const check = async () => {
    try {
      /** @type {VerifyReport} */
      const { ok, events, violations } = await get(`${jobPath}/verify`);
      if (ok) return void fill(result, t("verify.ok", { n: events }));
      const lines = violations.map(({ rule, detail }) => `${translated("rule", rule)} ${rule}${colon}${detail}`);
      fill(result, lines.map((line) => h("span", { class: "break" }, line, h("br"))));
    } catch (error) {
      fill(result, asProblem(error).message);
    }
  };
  // It is no action on the job, so it is offered to viewers too.
  const button = actionButton("verify", check, { class: "tiny", "data-action": null });
  return cardWithHead(t("job.integrity"), button, result);
}
