-- SQLite only: rowids of the logs are in commit order.

-- name: tail_mode
SELECT 1;

-- name: window_mode
SELECT 1;

-- name: tail_end_events
SELECT coalesce(max(n), 0) FROM detent.events;

-- name: tail_end_notes
SELECT coalesce(max(n), 0) FROM detent.notes;

-- name: clamp_tail_events
-- SQLite reuses the highest rowids after they were deleted, so the position must not be above the last one.
UPDATE detent.tails SET version = version + 1, position = (SELECT coalesce(max(n), 0) FROM detent.events)
WHERE log IN ('events', 'series') AND position > (SELECT coalesce(max(n), 0) FROM detent.events);

-- name: clamp_tail_notes
UPDATE detent.tails SET version = version + 1, position = (SELECT coalesce(max(n), 0) FROM detent.notes)
WHERE log = 'notes' AND position > (SELECT coalesce(max(n), 0) FROM detent.notes);

-- name: oldest_due
-- The oldest due time per lane group, without jobs of paused tenants. Walks jobs_ready with one probe per lane, however many jobs wait.
WITH RECURSIVE walk (lane, hops) AS (
  SELECT (SELECT lane FROM detent.jobs WHERE ready = 1 ORDER BY lane LIMIT 1), 1
  UNION ALL
  SELECT (SELECT j.lane FROM detent.jobs j WHERE j.ready = 1 AND j.lane > walk.lane ORDER BY j.lane LIMIT 1), hops + 1
  FROM walk WHERE walk.lane IS NOT NULL AND hops < 100000
), due (lane, due_at) AS (
  SELECT lane, (SELECT due_at FROM detent.jobs j WHERE j.ready = 1 AND j.lane = walk.lane ORDER BY j.due_at LIMIT 1)
  FROM walk WHERE lane IS NOT NULL
  UNION ALL
  SELECT lane, due_at FROM (SELECT lane, due_at FROM detent.jobs WHERE ready = 0 AND due_at IS NOT NULL
    AND state & 1 = 0 AND state & 3 = 0 AND due_at <= :now ORDER BY due_at LIMIT 1000)
)
SELECT (lane >> {party_bits}) & {group_mask}, min(due_at) FROM due WHERE due_at <= :now AND lane & {party_mask} NOT IN (
  SELECT p.id FROM detent.pauses t JOIN detent.lane_parties p ON p.tenant_id = t.name WHERE t.kind = 'tenant') GROUP BY 1;

-- name: suspects
-- Jobs whose last executions were lost, held or claimable. Indexes: jobs_leased, jobs_ready.
SELECT queue, job_type, losses, id FROM detent.job_list WHERE lease_until IS NOT NULL AND losses >= 2
UNION ALL
SELECT queue, job_type, losses, id FROM detent.job_list WHERE ready = 1 AND lane >= :first LIMIT 1000;
