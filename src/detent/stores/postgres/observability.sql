-- Postgres only: reads the logs in commit order by transaction id, see ADR 0007.

-- name: tail_mode
-- A BRIN index needs a bitmap scan, which is off on our connections.
SELECT set_config('enable_bitmapscan', 'on', true);

-- name: window_mode
-- With a limit the planner would read the table from its start, hoping to find enough rows soon.
SELECT set_config('enable_seqscan', 'off', true);

-- name: tail_end_events
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint;

-- name: tail_end_notes
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint;

-- name: clamp_tail_events
-- No-op on Postgres: transaction ids are never reused.
UPDATE detent.tails SET version = version WHERE false;

-- name: clamp_tail_notes
UPDATE detent.tails SET version = version WHERE false;

-- name: oldest_due
-- The oldest due time per lane group, without jobs of paused tenants. Walks the queue with one probe per lane, however many jobs wait.
WITH RECURSIVE walk (lane, hops) AS (
  SELECT (SELECT lane FROM detent.queue ORDER BY lane LIMIT 1), 1
  UNION ALL
  SELECT (SELECT q.lane FROM detent.queue q WHERE q.lane > walk.lane ORDER BY q.lane LIMIT 1), hops + 1
  FROM walk WHERE walk.lane IS NOT NULL AND hops < 100000
), due (lane, due_at) AS (
  SELECT lane, (SELECT due_at FROM detent.queue q WHERE q.lane = walk.lane ORDER BY q.due_at LIMIT 1)
  FROM walk WHERE lane IS NOT NULL
  UNION ALL
  SELECT j.lane, t.due_at FROM (SELECT id, due_at FROM detent.timers
    WHERE NOT wakes AND due_at <= :now ORDER BY due_at LIMIT 1000) t
  CROSS JOIN LATERAL (SELECT lane FROM detent.jobs WHERE id = t.id OFFSET 0) j
)
SELECT (lane >> {party_bits}) & {group_mask}, min(due_at) FROM due WHERE due_at <= :now AND lane & {party_mask} NOT IN (
  SELECT p.id FROM detent.pauses t JOIN detent.lane_parties p ON p.tenant_id = t.name WHERE t.kind = 'tenant') GROUP BY 1;

-- name: suspects
-- Jobs whose last executions were lost, held or queued.
SELECT g.queue, g.job_type, j.losses, j.id::text FROM (
  SELECT id FROM (SELECT DISTINCT u.id FROM detent.claims c CROSS JOIN LATERAL unnest(c.ids) u (id)) u UNION SELECT id FROM detent.queue WHERE lane >= :first::bigint) u
CROSS JOIN LATERAL (SELECT id, lane, losses, state FROM detent.jobs WHERE id = u.id OFFSET 0) j
JOIN detent.lane_groups g ON g.id = (j.lane >> {party_bits}) & {group_mask}
WHERE j.losses >= 2 AND j.state & 3 IN (0, 1) LIMIT 1000;
