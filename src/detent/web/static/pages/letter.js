// One dead letter.
import { fill, h, jobLink, keyed } from "../core/dom.js";
import { get, payloads } from "../core/api.js";
import { page } from "../core/states.js";
import { facts } from "../core/table.js";
import { moment } from "../core/time.js";
import { jsonCard } from "../core/tree.js";
import { number, t } from "../core/words.js";
import { fate, letterButtons } from "../core/letter_acts.js";
import "../core/shell.js";

const id = decodeURIComponent(location.pathname.split("/").at(-1));
let seen = "";

function draw(root, letter) {
  if (JSON.stringify(letter) === seen) return;
  seen = JSON.stringify(letter);
  document.querySelector("h1").textContent = letter.job_type;
  const link = (target) => target && h("a", { href: jobLink(target) }, target);
  if (!root.children.length) root.append(h("div"), h("div"));
  fill(root.children[0], h("p", { class: "row" }, fate(letter), h("code", { class: "break" }, letter.dlq_id)),
    h("div", { class: "toolbar" }, letterButtons(letter, again)));
  keyed(root.children[1], [letter], (one) => one.dlq_id, () => h("div", { class: "grid" },
    h("section", { class: "card span-6" }, h("h2", {}, t("job.facts")), facts([
      [t("col.error"), [h("code", {}, letter.error_code), letter.error_class && ` ${letter.error_class}`]],
      letter.error_message && [t("col.summary"), h("pre", {}, letter.error_message)],
      [t("col.job"), link(letter.job_id)], letter.requeued_as && [t("letters.requeued-as"), link(letter.requeued_as)],
      [t("col.contract"), letter.contract], [t("col.queue"), letter.queue], [t("col.tenant"), letter.tenant_id],
      [t("col.retries"), number(letter.retry_count)], [t("letters.first"), moment(letter.first_failed_at)], [t("col.failed"), moment(letter.created_at)],
      letter.proposed_by && [t("letters.proposal"), `${letter.proposed_by}: ${letter.proposed_reason ?? ""}`],
    ])),
    h("div", { class: "span-6 stack" }, jsonCard(t("job.payload"), letter.payload_json, !payloads), jsonCard(t("letters.context"), letter.context_json, !payloads))));
}

const again = page({ load: () => get(`dlq/items/${encodeURIComponent(id)}`), draw, every: 500, poll: 2000 });
