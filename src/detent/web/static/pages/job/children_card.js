/** @import { JobDetail } from "../../types.d.ts" */

import { card } from "../../components/elements.js";
import { statusBadge } from "../../core/contracts.js";
import { h } from "../../core/dom.js";
import { jobUrl } from "../../core/urls.js";
import { t } from "../../core/words.js";

/** The first child jobs and the number of all. @param {JobDetail["children"]} children */
export const childrenCard = ({ total, jobs }) =>
  card(
    t("job.children", { n: total }),
    h(
      "ul",
      { class: "plain-list" },
      jobs.map(({ id, job_type, status, phase, error_code }) =>
        h(
          "li",
          { class: "row" },
          h("a", { href: jobUrl(id) }, job_type),
          statusBadge(null, status, phase),
          error_code && h("code", {}, error_code),
        )
      ),
    ),
  );
