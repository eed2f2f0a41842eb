-- Limits, meters, tenants, deadlines, and marks for priorities and deadlines in use.

-- name: leased_by_lane
-- Leased jobs per lane. Index: jobs_leased.
SELECT lane, count(*) FROM detent.jobs WHERE lease_until IS NOT NULL GROUP BY lane;

-- name: available
-- Claimable jobs of a lane, counted up to a bound. Index: jobs_ready.
SELECT count(*) FROM (SELECT 1 FROM detent.jobs WHERE ready = 1 AND lane = :lane
  AND (NOT :dated OR deadline_at IS NULL OR deadline_at > :now) LIMIT :at_most);

-- name: past_deadline
-- Index: jobs_deadline.
SELECT {columns} FROM detent.job_list WHERE deadline_at IS NOT NULL AND state & 1 = 0 AND deadline_at <= :now
  AND contract IN (SELECT value FROM json_each(:contracts)) ORDER BY deadline_at LIMIT :limit;

-- name: backlog_of
-- Due, future and leased jobs of a tenant, counted up to a bound. Indexes: jobs_ready (lane by lane), jobs_later,
-- jobs_leased.
WITH RECURSIVE walk (lane) AS (
  SELECT (SELECT lane FROM detent.jobs WHERE ready = 1 ORDER BY lane LIMIT 1)
  UNION ALL
  SELECT (SELECT j.lane FROM detent.jobs j WHERE j.ready = 1 AND j.lane > walk.lane ORDER BY j.lane LIMIT 1)
  FROM walk WHERE walk.lane IS NOT NULL
)
SELECT count(*) FROM (
  SELECT 1 FROM walk w JOIN detent.jobs j ON j.ready = 1 AND j.lane = w.lane
  WHERE w.lane & {party_mask} IN (SELECT id FROM detent.lane_parties WHERE tenant_id = :tenant_id)
  UNION ALL
  SELECT 1 FROM detent.job_list WHERE ready = 0 AND due_at IS NOT NULL AND state & 1 = 0 AND tenant_id = :tenant_id
  UNION ALL
  SELECT 1 FROM detent.job_list WHERE lease_until IS NOT NULL AND tenant_id = :tenant_id
  LIMIT :at_most) b;
