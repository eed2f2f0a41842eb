-- Limits, priorities in turn, tenants, deadlines.

-- name: lanes_of
SELECT lane FROM jobs WHERE id IN (SELECT value::uuid FROM json_array_elements_text(:ids::json));

-- name: holding
-- How many are held in each lane; relies on jobs_leased.
SELECT lane, count(*) FROM jobs WHERE phase = 'leased' GROUP BY lane;

-- name: late
-- Hot. Relies on jobs_deadline.
SELECT {columns} FROM jobs WHERE deadline_at IS NOT NULL AND phase IN ('claimable', 'blocked')
  AND deadline_at <= (SELECT {clock}) AND contract = ANY (ARRAY(SELECT json_array_elements_text(:contracts::json)))
ORDER BY deadline_at LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: lock_quota
-- Whoever submits for a tenant with a quota does so alone until the commit.
SELECT tenant_id, weight, max_backlog, max_payload FROM tenants
WHERE tenant_id = :tenant_id AND (max_backlog IS NOT NULL OR max_payload IS NOT NULL) FOR UPDATE;

-- name: backlog_of
-- A tenant's jobs that are due, come later or are held, counted up to a bound: lane by lane along jobs_ready, then
-- jobs_later and jobs_leased.
WITH RECURSIVE walk (lane) AS (
  SELECT (SELECT lane FROM jobs WHERE ready ORDER BY lane LIMIT 1)
  UNION ALL
  SELECT (SELECT j.lane FROM jobs j WHERE j.ready AND j.lane > walk.lane ORDER BY j.lane LIMIT 1)
  FROM walk WHERE walk.lane IS NOT NULL
)
SELECT count(*) FROM (
  SELECT 1 FROM walk w JOIN jobs j ON j.ready AND j.lane = w.lane
  WHERE w.lane & 2147483647 IN (SELECT id FROM lane_parties WHERE tenant_id = :tenant_id)
  UNION ALL
  SELECT 1 FROM jobs WHERE NOT ready AND due_at IS NOT NULL AND phase IN ('claimable', 'blocked') AND tenant_id = :tenant_id
  UNION ALL
  SELECT 1 FROM jobs WHERE phase = 'leased' AND tenant_id = :tenant_id
  LIMIT :at_most) b;
