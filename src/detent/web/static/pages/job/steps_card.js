/** @import { Step } from "../../types.d.ts" */

import { card } from "../../components/elements.js";
import { jsonTree } from "../../components/json_tree.js";
import { canSeePayloads } from "../../core/api.js";
import { h } from "../../core/dom.js";
import { timeElement } from "../../core/time.js";
import { t } from "../../core/words.js";

/** The recorded steps with their results. @param {Step[]} steps */
export const stepsCard = (steps) => card(t("job.steps"), h("ol", { class: "timeline" }, steps.map(stepNode)));

/** @param {Step} step */
const stepNode = ({ name, finished, execution_no, at, result }) =>
  h(
    "li",
    { class: finished ? "good" : "leased" },
    h(
      "div",
      {},
      h(
        "div",
        { class: "row between" },
        h("strong", { class: "break" }, name),
        h("span", { class: "soft small" }, t("job.execution", { n: execution_no }), " · ", timeElement(at)),
      ),
      finished && canSeePayloads
        ? jsonTree(result)
        : h("span", { class: "soft small" }, t(finished ? "payload.hidden" : "job.step-open")),
    ),
  );
