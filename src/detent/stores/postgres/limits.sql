-- Limits, meters, tenants, deadlines, and marks for priorities and deadlines in use.

-- name: leased_by_lane
-- Leased jobs per lane.
SELECT j.lane, count(*) FROM (SELECT DISTINCT u.id FROM detent.claims c CROSS JOIN LATERAL unnest(c.ids) u (id)) u
CROSS JOIN LATERAL (SELECT lane, state FROM detent.jobs WHERE id = u.id OFFSET 0) j WHERE j.state & 3 = 1 GROUP BY j.lane;

-- name: past_deadline
-- Hot path. Also drops the deadlines of jobs that have ended or were pruned.
WITH past AS MATERIALIZED (
  SELECT x.ctid AS at, x.deadline_at, x.id, j.state FROM detent.deadlines x
  LEFT JOIN LATERAL (SELECT state FROM detent.jobs WHERE id = x.id OFFSET 0) j ON true
  WHERE x.deadline_at <= (SELECT {clock}) ORDER BY x.deadline_at LIMIT 1000
), gone AS (
  DELETE FROM detent.deadlines x USING past p WHERE (p.state IS NULL OR p.state & 3 = 3) AND x.ctid = p.at
), over AS MATERIALIZED (
  SELECT p.id, p.deadline_at FROM past p WHERE p.state & 3 IN (0, 2) AND p.state IN (SELECT id FROM detent.states WHERE contract = ANY (ARRAY(SELECT json_array_elements_text(:contracts::json)))) ORDER BY p.deadline_at LIMIT :limit
)
SELECT j.* FROM over o CROSS JOIN LATERAL (SELECT {raw_columns} FROM detent.jobs
  WHERE id = o.id OFFSET 0 FOR UPDATE SKIP LOCKED) j WHERE j.state & 3 IN (0, 2) ORDER BY j.deadline_at;

-- name: backlog_of
-- Due, future and leased jobs of a tenant, counted up to a bound.
WITH RECURSIVE walk (lane) AS (
  SELECT (SELECT lane FROM detent.queue ORDER BY lane LIMIT 1)
  UNION ALL
  SELECT (SELECT q.lane FROM detent.queue q WHERE q.lane > walk.lane ORDER BY q.lane LIMIT 1)
  FROM walk WHERE walk.lane IS NOT NULL
), parties AS MATERIALIZED (
  SELECT id FROM detent.lane_parties WHERE tenant_id = :tenant_id
)
SELECT count(*) FROM (
  SELECT 1 FROM walk w JOIN detent.queue q ON q.lane = w.lane WHERE w.lane & {party_mask} IN (SELECT id FROM parties)
  UNION ALL
  SELECT 1 FROM detent.timers t CROSS JOIN LATERAL (SELECT lane FROM detent.jobs WHERE id = t.id OFFSET 0) j
  WHERE j.lane & {party_mask} IN (SELECT id FROM parties)
  UNION ALL
  SELECT 1 FROM (SELECT DISTINCT u.id FROM detent.claims c CROSS JOIN LATERAL unnest(c.ids) u (id)) u CROSS JOIN LATERAL (SELECT lane, state FROM detent.jobs WHERE id = u.id OFFSET 0) j
  WHERE j.state & 3 = 1 AND j.lane & {party_mask} IN (SELECT id FROM parties)
  LIMIT :at_most) b;
