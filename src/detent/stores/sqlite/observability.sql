-- SQLite only: rowids of the logs are in commit order.

-- name: tail_mode
SELECT 1;

-- name: tail_end_events
SELECT coalesce(max(n), 0) FROM detent.events;

-- name: tail_end_notes
SELECT coalesce(max(n), 0) FROM detent.notes;

-- name: count_events
-- Counts a part of the log along the rowid.
SELECT k.lane, k.lane >> 31 & 16777215, k.lane & 2147483647, d.source, d.event, d.target, k.slot, k.number FROM (
  SELECT lane, edge, at / :slot AS slot, count(*) AS number FROM detent.events
  WHERE n > :position AND n <= :until GROUP BY lane, edge, at / :slot) k
JOIN detent.edges d ON d.id = k.edge;

-- name: count_hot_events
-- The same for the eight most frequent kinds of events, without sorting; the caller compares with the total.
SELECT count(*), min(at) / :slot, max(at) / :slot,
  count(*) FILTER (WHERE lane = :lane_a AND edge IN (SELECT id FROM detent.edges WHERE event = :event_a AND source = :source_a)),
  count(*) FILTER (WHERE lane = :lane_b AND edge IN (SELECT id FROM detent.edges WHERE event = :event_b AND source = :source_b)),
  count(*) FILTER (WHERE lane = :lane_c AND edge IN (SELECT id FROM detent.edges WHERE event = :event_c AND source = :source_c)),
  count(*) FILTER (WHERE lane = :lane_d AND edge IN (SELECT id FROM detent.edges WHERE event = :event_d AND source = :source_d)),
  count(*) FILTER (WHERE lane = :lane_e AND edge IN (SELECT id FROM detent.edges WHERE event = :event_e AND source = :source_e)),
  count(*) FILTER (WHERE lane = :lane_f AND edge IN (SELECT id FROM detent.edges WHERE event = :event_f AND source = :source_f)),
  count(*) FILTER (WHERE lane = :lane_g AND edge IN (SELECT id FROM detent.edges WHERE event = :event_g AND source = :source_g)),
  count(*) FILTER (WHERE lane = :lane_h AND edge IN (SELECT id FROM detent.edges WHERE event = :event_h AND source = :source_h))
FROM detent.events WHERE n > :position AND n <= :until;

-- name: count_notes
-- Refused moves are counted by contract, queue and job type.
SELECT NULL, iif(name = 'move.refused', coalesce((SELECT lane >> 31 & 16777215 FROM detent.jobs WHERE id = job_id), 0), 0), 0, '', name, '', at / :slot, count(*)
FROM detent.notes WHERE n > :position AND n <= :until GROUP BY 2, name, at / :slot;

-- name: count_going_events
-- Events of these jobs that are not counted yet; they are about to be pruned.
SELECT lane, lane >> 31 & 16777215, lane & 2147483647, coalesce(source, ''), event, target, at / :slot, count(*)
FROM detent.event_list WHERE job_id IN (SELECT value FROM json_each(:ids)) AND n > coalesce((SELECT position FROM detent.tails WHERE log = 'events'), 0)
GROUP BY lane, source, event, target, at / :slot;

-- name: count_going_notes
SELECT NULL, iif(name = 'move.refused', coalesce((SELECT lane >> 31 & 16777215 FROM detent.jobs WHERE id = job_id), 0), 0), 0, '', name, '', at / :slot, count(*)
FROM detent.notes WHERE job_id IN (SELECT value FROM json_each(:ids)) AND n > coalesce((SELECT position FROM detent.tails WHERE log = 'notes'), 0)
GROUP BY 2, name, at / :slot;

-- name: lock_tails
SELECT log FROM detent.tails;

-- name: clamp_tail_events
-- SQLite reuses the highest rowids after they were deleted, so the position must not be above the last one.
UPDATE detent.tails SET version = version + 1, position = (SELECT coalesce(max(n), 0) FROM detent.events)
WHERE log IN ('events', 'series') AND position > (SELECT coalesce(max(n), 0) FROM detent.events);

-- name: clamp_tail_notes
UPDATE detent.tails SET version = version + 1, position = (SELECT coalesce(max(n), 0) FROM detent.notes)
WHERE log = 'notes' AND position > (SELECT coalesce(max(n), 0) FROM detent.notes);

-- name: add_tallies
INSERT INTO detent.tallies (log, lane_group, party, source, event, target, number)
SELECT :log, value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5 FROM json_each(:rows) WHERE true
ON CONFLICT (log, lane_group, party, source, event, target) DO UPDATE SET number = number + excluded.number;

-- name: add_tally_slots
INSERT INTO detent.tally_slots (slot, log, lane_group, party, source, event, target, number)
SELECT value ->> 0, :log, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6
FROM json_each(:rows) WHERE true
ON CONFLICT (slot, log, lane_group, party, source, event, target) DO UPDATE SET number = number + excluded.number;

-- name: oldest_due
-- The oldest due time per lane group. Walks jobs_ready with one probe per lane, however many jobs wait.
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
SELECT lane >> 31 & 16777215, min(due_at) FROM due WHERE due_at <= :now GROUP BY 1;

-- name: suspects
-- Jobs whose last executions were lost, held or claimable. Indexes: jobs_leased, jobs_ready.
SELECT queue, job_type, losses, id FROM detent.job_list WHERE lease_until IS NOT NULL AND losses >= 2
UNION ALL
SELECT queue, job_type, losses, id FROM detent.job_list WHERE ready = 1 AND lane >= :first LIMIT 1000;

-- name: held_jobs
-- The jobs that every worker holds. Index: jobs_leased.
SELECT id, worker, contract, queue, job_type, tenant_id, execution_no, updated_at, lease_until
FROM detent.job_list WHERE lease_until IS NOT NULL ORDER BY lease_until LIMIT :limit;

-- name: long_held
-- Index: jobs_leased. Extending a lease does not change updated_at, so it is the start of the execution.
SELECT queue, job_type, count(*), min(updated_at) FROM detent.job_list WHERE lease_until IS NOT NULL GROUP BY queue, job_type;
