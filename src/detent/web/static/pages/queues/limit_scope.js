/** @import { LimitScope } from "../../types.d.ts" */

import { joined, t } from "../../core/words.js";

const SCOPES = /** @type {const} */ (["queue", "job_type", "tenant_id", "key"]);

/** Only the fields that say which jobs a limit applies to. @param {LimitScope} limit */
export const scopeOf = ({ queue, job_type, tenant_id, key, per }) => ({ queue, job_type, tenant_id, key, per });

/** Which jobs a limit applies to, as text. @param {LimitScope} limit */
export function scopeText(limit) {
  const parts = SCOPES.filter((kind) => limit[kind] !== null)
    .map((kind) => t("limits.named", { kind: t(`kind.${kind === "tenant_id" ? "tenant" : kind}`), name: limit[kind] }));
  const scope = joined(parts) || t("limits.all-jobs");
  return limit.per ? t("limits.each", { scope, kind: t(`kind.${limit.per}`) }) : scope;
}
