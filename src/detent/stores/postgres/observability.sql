-- Postgres only: reads the logs in commit order by transaction id, see ADR 0007.

-- name: tail_mode
-- A BRIN index needs a bitmap scan, which is off on our connections.
SELECT set_config('enable_bitmapscan', 'on', true);

-- name: tail_end_events
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint;

-- name: tail_end_notes
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint;

-- name: count_events
-- Counts a part of the log. Index: events_xid.
SELECT k.lane, (k.lane >> 31) & 16777215, k.lane & 2147483647, k.source, k.event, k.target, k.slot, sum(k.number)::bigint FROM (
  SELECT coalesce(e.lane, (SELECT j.lane FROM detent.jobs j WHERE j.id = e.job_id), 0) AS lane, coalesce(e.source, '') AS source,
    e.event, e.target, e.at / :slot AS slot, 1 AS number
  FROM detent.events e WHERE e.xid >= :position AND e.xid < :until) k
GROUP BY k.lane, k.source, k.event, k.target, k.slot;

-- name: count_hot_events
-- The same for the eight most frequent kinds of events, without grouping; the caller compares with the total.
SELECT count(*), min(at) / :slot, max(at) / :slot,
  count(*) FILTER (WHERE lane = :lane_a::bigint AND event = :event_a::text AND coalesce(source, '') = :source_a::text),
  count(*) FILTER (WHERE lane = :lane_b::bigint AND event = :event_b::text AND coalesce(source, '') = :source_b::text),
  count(*) FILTER (WHERE lane = :lane_c::bigint AND event = :event_c::text AND coalesce(source, '') = :source_c::text),
  count(*) FILTER (WHERE lane = :lane_d::bigint AND event = :event_d::text AND coalesce(source, '') = :source_d::text),
  count(*) FILTER (WHERE lane = :lane_e::bigint AND event = :event_e::text AND coalesce(source, '') = :source_e::text),
  count(*) FILTER (WHERE lane = :lane_f::bigint AND event = :event_f::text AND coalesce(source, '') = :source_f::text),
  count(*) FILTER (WHERE lane = :lane_g::bigint AND event = :event_g::text AND coalesce(source, '') = :source_g::text),
  count(*) FILTER (WHERE lane = :lane_h::bigint AND event = :event_h::text AND coalesce(source, '') = :source_h::text)
FROM detent.events WHERE xid >= :position AND xid < :until;

-- name: count_notes
SELECT NULL, 0, 0, '', name, '', at / :slot, count(*) FROM detent.notes WHERE xid >= :position AND xid < :until GROUP BY name, at / :slot;

-- name: count_going_events
-- Events of these jobs that are not counted yet; they are about to be pruned.
SELECT lane, (coalesce(lane, 0) >> 31) & 16777215, coalesce(lane, 0) & 2147483647, coalesce(source, ''), event, target,
  at / :slot, count(*)
FROM detent.events WHERE job_id IN (SELECT value::uuid FROM json_array_elements_text(:ids::json))
  AND xid >= coalesce((SELECT position FROM detent.tails WHERE log = 'events'), 0)
GROUP BY lane, source, event, target, at / :slot;

-- name: count_going_notes
SELECT NULL, 0, 0, '', name, '', at / :slot, count(*)
FROM detent.notes WHERE job_id IN (SELECT value::uuid FROM json_array_elements_text(:ids::json))
  AND xid >= coalesce((SELECT position FROM detent.tails WHERE log = 'notes'), 0)
GROUP BY name, at / :slot;

-- name: lock_tails
-- Locks the positions, so that none moves until the commit.
SELECT log FROM detent.tails ORDER BY log FOR UPDATE;

-- name: clamp_tail_events
-- No-op on Postgres: transaction ids are never reused.
UPDATE detent.tails SET version = version WHERE false;

-- name: clamp_tail_notes
UPDATE detent.tails SET version = version WHERE false;

-- name: add_tallies
INSERT INTO detent.tallies AS tallies (log, lane_group, party, source, event, target, number)
SELECT :log::text, (value ->> 0)::bigint, (value ->> 1)::bigint, value ->> 2, value ->> 3, value ->> 4,
  (value ->> 5)::bigint FROM json_array_elements(:rows::json)
ON CONFLICT (log, lane_group, party, source, event, target) DO UPDATE SET number = tallies.number + excluded.number;

-- name: add_tally_slots
INSERT INTO detent.tally_slots AS tally_slots (slot, log, lane_group, party, source, event, target, number)
SELECT (value ->> 0)::bigint, :log::text, (value ->> 1)::bigint, (value ->> 2)::bigint, value ->> 3, value ->> 4,
  value ->> 5, (value ->> 6)::bigint FROM json_array_elements(:rows::json)
ON CONFLICT (slot, log, lane_group, party, source, event, target) DO UPDATE
SET number = tally_slots.number + excluded.number;

-- name: oldest_due
-- The oldest due time per lane group. Walks jobs_ready with one probe per lane, however many jobs wait.
WITH RECURSIVE walk (lane, hops) AS (
  SELECT (SELECT lane FROM detent.jobs WHERE ready ORDER BY lane LIMIT 1), 1
  UNION ALL
  SELECT (SELECT j.lane FROM detent.jobs j WHERE j.ready AND j.lane > walk.lane ORDER BY j.lane LIMIT 1), hops + 1
  FROM walk WHERE walk.lane IS NOT NULL AND hops < 100000
), due (lane, due_at) AS (
  SELECT lane, (SELECT due_at FROM detent.jobs j WHERE j.ready AND j.lane = walk.lane ORDER BY j.due_at LIMIT 1)
  FROM walk WHERE lane IS NOT NULL
  UNION ALL
  SELECT lane, due_at FROM (SELECT lane, due_at FROM detent.jobs WHERE NOT ready AND due_at IS NOT NULL
    AND phase IN ('claimable', 'blocked') AND phase = 'claimable' AND due_at <= :now ORDER BY due_at LIMIT 1000) later
)
SELECT (lane >> 31) & 16777215, min(due_at) FROM due WHERE due_at <= :now GROUP BY 1;

-- name: suspects
-- Jobs whose last executions were lost, held or claimable. Indexes: jobs_leased, jobs_ready.
SELECT queue, job_type, losses, id::text FROM detent.jobs WHERE phase = 'leased' AND losses >= 2
UNION ALL
SELECT queue, job_type, losses, id::text FROM detent.jobs WHERE ready AND lane >= :first::bigint LIMIT 1000;
