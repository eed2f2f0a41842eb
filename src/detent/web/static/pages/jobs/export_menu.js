// Saves the jobs that match the filter as a file.

/** @import { Query } from "../../components/filter_query.js" */

import { button } from "../../components/elements.js";
import { dropDown } from "../../components/menu.js";
import { toast, toastError } from "../../components/toast.js";
import { download } from "../../core/api.js";
import { h } from "../../core/dom.js";
import { t } from "../../core/words.js";

/** @param {() => Query} query */
export function exportMenu(query) {
  /** @param {"csv" | "ndjson"} format */
  async function save(format) {
    menu.close();
    toast(t("export.started"));
    try {
      await download("jobs/export", { ...query(), format }, `jobs.${format}`);
    } catch (error) {
      toastError(error);
    }
  }
  const menu = dropDown(t("export.title"), () => [
    h("p", { class: "small soft" }, t("export.more")),
    button(t("export.csv"), () => save("csv"), { class: "tiny", "data-format": "csv" }),
    " ",
    button(t("export.ndjson"), () => save("ndjson"), { class: "tiny", "data-format": "ndjson" }),
  ], "export");
  return menu.node;
}
