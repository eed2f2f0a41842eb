-- Postgres only. {clock} is the database's own time, or :now where a test brings its clock.

-- name: lock
-- Rows by id, locked in order, so that two transactions never wait for each other in a circle.
SELECT {columns} FROM jobs WHERE id IN (SELECT value::uuid FROM json_array_elements_text(:ids::json))
ORDER BY id FOR UPDATE;

-- name: lock_free
-- The same, leaving out rows somebody else holds.
SELECT {columns} FROM jobs WHERE id IN (SELECT value::uuid FROM json_array_elements_text(:ids::json))
ORDER BY id FOR UPDATE SKIP LOCKED;

-- name: look
SELECT {columns} FROM jobs WHERE id IN (SELECT value::uuid FROM json_array_elements_text(:ids::json)) ORDER BY id;

-- name: extend
-- Rows that somebody holds are left out: they cannot be expired either while they are held.
UPDATE jobs j SET lease_until = greatest(j.lease_until, {clock} + :lease)
FROM (
  SELECT k.id FROM json_each_text(:held::json) h JOIN jobs k ON k.id = h.key::uuid
  WHERE k.token = h.value AND k.phase = 'leased' ORDER BY k.id FOR UPDATE OF k SKIP LOCKED
) h WHERE j.id = h.id;

-- name: not_held
SELECT h.key FROM json_each_text(:held::json) h LEFT JOIN jobs j ON j.id = h.key::uuid
WHERE j.id IS NULL OR NOT (j.token = h.value AND j.phase = 'leased');

-- name: cancels
SELECT h.key, j.cancel_requested FROM json_each_text(:held::json) h JOIN jobs j ON j.id = h.key::uuid
WHERE j.token = h.value AND j.phase = 'leased' AND j.cancel_requested IS NOT NULL;

-- name: promote
-- Future jobs whose moment has come; relies on jobs_later.
UPDATE jobs j SET ready = true FROM (
  SELECT id FROM jobs WHERE NOT ready AND due_at IS NOT NULL AND phase IN ('claimable', 'blocked')
    AND phase = 'claimable' AND due_at <= {clock} ORDER BY due_at LIMIT :limit FOR UPDATE SKIP LOCKED
) d WHERE j.id = d.id;

-- name: expired
-- Relies on jobs_leased. The time is looked at again under the lock.
SELECT {columns} FROM jobs WHERE phase = 'leased' AND lease_until <= {clock}
  AND contract IN (SELECT value FROM json_array_elements_text(:contracts::json))
ORDER BY lease_until LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: due_blocked
SELECT {columns} FROM jobs WHERE NOT ready AND due_at IS NOT NULL AND phase IN ('claimable', 'blocked')
  AND phase = 'blocked' AND due_at <= {clock}
  AND contract IN (SELECT value FROM json_array_elements_text(:contracts::json))
ORDER BY due_at LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: anything_left
SELECT EXISTS (SELECT 1 FROM jobs WHERE phase = 'leased'
    AND job_type IN (SELECT value FROM json_array_elements_text(:types::json)))
  OR EXISTS (SELECT 1 FROM jobs WHERE NOT ready AND due_at IS NOT NULL AND phase IN ('claimable', 'blocked')
    AND due_at <= {clock} + :horizon AND job_type IN (SELECT value FROM json_array_elements_text(:types::json)));

-- name: backlog
-- What is due, comes later and is held, per lane group; walks the three partial indexes, never a final row.
WITH open_jobs (lane, due, later, held, due_at) AS (
  SELECT lane, 1, 0, 0, due_at FROM jobs WHERE ready
  UNION ALL
  SELECT lane, (due_at <= :now)::int, (due_at > :now)::int, 0, CASE WHEN due_at <= :now THEN due_at END FROM jobs
  WHERE NOT ready AND due_at IS NOT NULL AND phase IN ('claimable', 'blocked') AND phase = 'claimable'
  UNION ALL
  SELECT lane, 0, 1, 0, NULL FROM jobs
  WHERE NOT ready AND due_at IS NOT NULL AND phase IN ('claimable', 'blocked') AND phase = 'blocked'
  UNION ALL
  SELECT lane, 0, 0, 1, NULL FROM jobs WHERE phase = 'leased'
), kinds (id, due, later, held, oldest) AS (
  SELECT (lane >> :shift::int) & :mask, sum(due), sum(later), sum(held), min(due_at) FROM open_jobs GROUP BY 1
)
SELECT g.contract, g.queue, g.job_type, coalesce(o.due, 0), coalesce(o.later, 0), coalesce(o.held, 0), o.oldest
FROM lane_groups g LEFT JOIN kinds o ON o.id = g.id ORDER BY g.queue, g.job_type, g.contract;

-- name: ahead
-- Relies on jobs_ready.
SELECT count(*) FROM (
  SELECT 1 FROM jobs me JOIN jobs j ON j.lane = me.lane
  WHERE me.id = :id AND j.ready AND (j.due_at, j.id) < (me.due_at, me.id) LIMIT :at_most) a;

-- name: clock
SELECT {clock};


-- name: next_due
-- The first moment at which something becomes claimable or wakes.
SELECT min(due_at) FROM jobs WHERE NOT ready AND due_at IS NOT NULL AND phase IN ('claimable', 'blocked')
  AND phase = :phase;

-- name: verify_owners
-- Who owns these [space, key] pairs.
SELECT k.space, k.key, k.job_id FROM json_array_elements(:pairs::json) p
JOIN keys k ON k.space = p.value ->> 0 AND k.key = p.value ->> 1;

-- name: lost_to
-- Expired leases a claimer may take over; relies on jobs_leased.
SELECT {columns} FROM jobs WHERE phase = 'leased' AND lease_until <= {clock}
  AND (lane >> :shift::int) & :group_mask IN (SELECT value::bigint FROM json_array_elements_text(:groups::json))
  AND lane & :party_mask NOT IN (SELECT value::bigint FROM json_array_elements_text(:paused::json))
ORDER BY lease_until LIMIT :limit FOR UPDATE SKIP LOCKED;
