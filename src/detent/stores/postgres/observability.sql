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
SELECT k.lane, (k.lane >> {party_bits}) & {group_mask}, k.lane & {party_mask}, d.source, d.event, d.target, k.slot, k.number FROM (
  SELECT lane, edge, at / :slot AS slot, count(*) AS number FROM detent.events
  WHERE xid >= :position AND xid < :until GROUP BY lane, edge, at / :slot) k
JOIN detent.edges d ON d.id = k.edge;

-- name: count_hot_events
-- The same for the eight most frequent kinds of events, without grouping; the caller compares with the total.
SELECT count(*), min(at) / :slot, max(at) / :slot,
  count(*) FILTER (WHERE lane = :lane_a::bigint AND edge = ANY (ARRAY(SELECT id FROM detent.edges WHERE event = :event_a::text AND source = :source_a::text))),
  count(*) FILTER (WHERE lane = :lane_b::bigint AND edge = ANY (ARRAY(SELECT id FROM detent.edges WHERE event = :event_b::text AND source = :source_b::text))),
  count(*) FILTER (WHERE lane = :lane_c::bigint AND edge = ANY (ARRAY(SELECT id FROM detent.edges WHERE event = :event_c::text AND source = :source_c::text))),
  count(*) FILTER (WHERE lane = :lane_d::bigint AND edge = ANY (ARRAY(SELECT id FROM detent.edges WHERE event = :event_d::text AND source = :source_d::text))),
  count(*) FILTER (WHERE lane = :lane_e::bigint AND edge = ANY (ARRAY(SELECT id FROM detent.edges WHERE event = :event_e::text AND source = :source_e::text))),
  count(*) FILTER (WHERE lane = :lane_f::bigint AND edge = ANY (ARRAY(SELECT id FROM detent.edges WHERE event = :event_f::text AND source = :source_f::text))),
  count(*) FILTER (WHERE lane = :lane_g::bigint AND edge = ANY (ARRAY(SELECT id FROM detent.edges WHERE event = :event_g::text AND source = :source_g::text))),
  count(*) FILTER (WHERE lane = :lane_h::bigint AND edge = ANY (ARRAY(SELECT id FROM detent.edges WHERE event = :event_h::text AND source = :source_h::text)))
FROM detent.events WHERE xid >= :position AND xid < :until;

-- name: count_notes
-- Refused moves are counted by contract, queue and job type.
SELECT NULL, CASE name WHEN 'move.refused' THEN coalesce((SELECT (lane >> {party_bits}) & {group_mask} FROM detent.jobs
  WHERE id = job_id), 0) ELSE 0 END, 0, '', name, '', at / :slot, count(*)
FROM detent.notes WHERE xid >= :position AND xid < :until GROUP BY 2, name, at / :slot;

-- name: count_going_events
-- Events of these jobs that are not counted yet; they are about to be pruned.
SELECT lane, (lane >> {party_bits}) & {group_mask}, lane & {party_mask}, coalesce(source, ''), event, target, at / :slot, count(*)
FROM detent.event_list WHERE job_id IN (SELECT value::uuid FROM json_array_elements_text(:ids::json))
  AND xid >= coalesce((SELECT position FROM detent.tails WHERE log = 'events'), 0)
GROUP BY lane, source, event, target, at / :slot;

-- name: count_going_notes
SELECT NULL, CASE name WHEN 'move.refused' THEN coalesce((SELECT (lane >> {party_bits}) & {group_mask} FROM detent.jobs
  WHERE id = job_id), 0) ELSE 0 END, 0, '', name, '', at / :slot, count(*)
FROM detent.notes WHERE job_id IN (SELECT value::uuid FROM json_array_elements_text(:ids::json))
  AND xid >= coalesce((SELECT position FROM detent.tails WHERE log = 'notes'), 0)
GROUP BY 2, name, at / :slot;

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
-- The oldest due time per lane group. Walks the queue with one probe per lane, however many jobs wait.
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
SELECT (lane >> {party_bits}) & {group_mask}, min(due_at) FROM due WHERE due_at <= :now GROUP BY 1;

-- name: suspects
-- Jobs whose last executions were lost, held or queued.
SELECT g.queue, g.job_type, j.losses, j.id::text FROM (
  SELECT id FROM (SELECT DISTINCT u.id FROM detent.claims c CROSS JOIN LATERAL unnest(c.ids) u (id)) u UNION SELECT id FROM detent.queue WHERE lane >= :first::bigint) u
CROSS JOIN LATERAL (SELECT id, lane, losses, state FROM detent.jobs WHERE id = u.id OFFSET 0) j
JOIN detent.lane_groups g ON g.id = (j.lane >> {party_bits}) & {group_mask}
WHERE j.losses >= 2 AND j.state & 3 IN (0, 1) LIMIT 1000;

