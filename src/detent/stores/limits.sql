-- Limits, meters, tenants, deadlines, and marks for priorities and deadlines in use.

-- name: add_lane_mark
INSERT INTO detent.lane_marks (kind, name) VALUES (:kind, :name) ON CONFLICT DO NOTHING;

-- name: find_lane_mark
SELECT id FROM detent.lane_marks WHERE kind = :kind AND name = :name;

-- name: lane_marks
SELECT kind, name FROM detent.lane_marks;

-- name: party
SELECT tenant_id, limit_key FROM detent.lane_parties WHERE id = :id;

-- name: lanes_of
SELECT lane FROM detent.jobs WHERE id IN (SELECT {uuid:value} FROM {texts:ids});

-- name: limits
SELECT queue, job_type, tenant_id, limit_key, per, concurrency, rate, period, id, declared FROM detent.limits ORDER BY id;

-- name: put_limit
INSERT INTO detent.limits AS limits (queue, job_type, tenant_id, limit_key, per, concurrency, rate, period, declared)
VALUES (:queue, :job_type, :tenant_id, :limit_key, :per, :concurrency, :rate, :period, :declared)
ON CONFLICT (queue, job_type, tenant_id, limit_key, per) DO UPDATE SET concurrency = excluded.concurrency,
  rate = excluded.rate, period = excluded.period, declared = coalesce(excluded.declared, limits.declared);

-- name: drop_limit
DELETE FROM detent.limits WHERE id = :id;

-- name: drop_meters
DELETE FROM detent.meters WHERE limit_id = :id;

-- name: add_meter
INSERT INTO detent.meters (limit_id, subject, touched_at) VALUES (:limit_id, :subject, :now) ON CONFLICT DO NOTHING;

-- name: meter
SELECT id, taken, spent FROM detent.meters WHERE limit_id = :limit_id AND subject = :subject;

-- name: shared_rate_meters
-- Meters of rate limits that do not depend on tenant or limit key: one for each queue or type at most.
SELECT m.limit_id, m.subject, m.id, m.taken, m.spent FROM detent.limits l
{probe} detent.meters m ON m.limit_id = l.id
WHERE l.rate IS NOT NULL AND l.tenant_id = '' AND l.limit_key = '' AND l.per IN ('', 'queue', 'job_type');

-- name: update_meter
UPDATE detent.meters SET taken = taken + :number, spent = :spent, touched_at = :now WHERE id = :id;

-- name: drop_idle_meters
-- Meters by subject that were not used for long; the next job of the subject starts a new one at zero.
DELETE FROM detent.meters WHERE subject <> '' AND touched_at < :before;

-- name: tenants
SELECT tenant_id, weight, max_backlog, max_payload FROM detent.tenants ORDER BY tenant_id;

-- name: put_tenant
INSERT INTO detent.tenants (tenant_id, weight, max_backlog, max_payload)
VALUES (:tenant_id, :weight, :max_backlog, :max_payload)
ON CONFLICT (tenant_id) DO UPDATE SET weight = excluded.weight, max_backlog = excluded.max_backlog,
  max_payload = excluded.max_payload;

-- name: drop_tenant
DELETE FROM detent.tenants WHERE tenant_id = :tenant_id;

-- name: lock_quotas
-- Submits for a tenant with a quota run one after the other: Postgres locks the tenants' rows in order, SQLite has one
-- writer.
SELECT tenant_id, weight, max_backlog, max_payload FROM detent.tenants
WHERE tenant_id {any:SELECT value FROM {texts:tenants}} AND (max_backlog IS NOT NULL OR max_payload IS NOT NULL)
ORDER BY tenant_id {for_update};
