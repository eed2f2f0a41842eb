-- Postgres only. {clock} is the database's own time, or :now where a test brings its clock.

-- name: lock
-- Rows by id; the ids come in order, so that two transactions never wait for each other in a circle.
SELECT j.* FROM json_array_elements_text(:ids::json) i
CROSS JOIN LATERAL (SELECT {columns} FROM jobs WHERE id = i.value::uuid OFFSET 0 FOR UPDATE) j;

-- name: lock_free
-- The same, leaving out rows somebody else holds.
SELECT j.* FROM json_array_elements_text(:ids::json) i
CROSS JOIN LATERAL (SELECT {columns} FROM jobs WHERE id = i.value::uuid OFFSET 0 FOR UPDATE SKIP LOCKED) j;

-- name: dead_letter
-- Whoever acts on it looks first: two requeues at once must not both find it open.
SELECT {dead_columns} FROM dead_letters WHERE id = :id FOR UPDATE;

-- name: extend
-- Hot. Rows that somebody holds are left out: they cannot be expired either while they are held.
WITH held AS MATERIALIZED (
  SELECT j.at FROM json_each_text(:held::json) h CROSS JOIN LATERAL (
    SELECT ctid AS at, token, phase FROM jobs WHERE id = h.key::uuid OFFSET 0 FOR UPDATE SKIP LOCKED) j
  WHERE j.token = h.value AND j.phase = 'leased'
)
UPDATE jobs j SET lease_until = greatest(j.lease_until, {clock} + :lease) FROM held h WHERE j.ctid = h.at;

-- name: standing
-- Hot. Of {id: token}: those that stand on no leased row, and the cancel requests found on the others.
SELECT h.key, j.lost, j.cancel_requested FROM json_each_text(:held::json) h
CROSS JOIN LATERAL (
  SELECT count(*) = 0 AS lost, max(cancel_requested) AS cancel_requested FROM (
    SELECT token, phase, cancel_requested FROM jobs WHERE id = h.key::uuid OFFSET 0) k
  WHERE k.token = h.value AND k.phase = 'leased') j
WHERE j.lost OR j.cancel_requested IS NOT NULL;

-- name: promote
-- Future jobs whose moment has come; relies on jobs_later.
WITH due AS MATERIALIZED (
  SELECT ctid AS at FROM jobs WHERE NOT ready AND due_at IS NOT NULL AND phase IN ('claimable', 'blocked')
    AND phase = 'claimable' AND due_at <= (SELECT {clock}) ORDER BY due_at LIMIT :limit FOR UPDATE SKIP LOCKED
)
UPDATE jobs j SET ready = true FROM due d WHERE j.ctid = d.at;

-- name: expired
-- Hot. Relies on jobs_leased. The time is looked at again under the lock.
SELECT {columns} FROM jobs WHERE phase = 'leased' AND lease_until <= (SELECT {clock})
  AND contract = ANY (ARRAY(SELECT json_array_elements_text(:contracts::json)))
ORDER BY lease_until LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: due_blocked
-- Hot. Relies on jobs_later.
SELECT {columns} FROM jobs WHERE NOT ready AND due_at IS NOT NULL AND phase IN ('claimable', 'blocked')
  AND phase = 'blocked' AND due_at <= (SELECT {clock})
  AND contract = ANY (ARRAY(SELECT json_array_elements_text(:contracts::json)))
ORDER BY due_at LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: anything_left
SELECT EXISTS (SELECT 1 FROM jobs WHERE phase = 'leased'
    AND job_type = ANY (ARRAY(SELECT json_array_elements_text(:types::json))))
  OR EXISTS (SELECT 1 FROM jobs WHERE NOT ready AND due_at IS NOT NULL AND phase IN ('claimable', 'blocked')
    AND due_at <= (SELECT {clock} + :horizon) AND job_type = ANY (ARRAY(SELECT json_array_elements_text(:types::json))))
  OR EXISTS (SELECT 1 FROM family_news);

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

-- name: adopt
-- Leased rows that bear one of these tokens, their leases begun anew: whoever has taken one in the meantime has changed its
-- token. Relies on jobs_leased, and is asked only after a lost answer.
WITH held AS MATERIALIZED (
  SELECT ctid AS at FROM jobs WHERE phase = 'leased'
    AND token = ANY (ARRAY(SELECT json_array_elements_text(:tokens::json))) FOR UPDATE SKIP LOCKED
), kept AS (
  UPDATE jobs j SET lease_until = greatest(j.lease_until, {clock} + :lease) FROM held h WHERE j.ctid = h.at RETURNING j.*
)
SELECT id, token, contract, job_type, queue, tenant_id, payload, execution_no, retries, version, timeout_ms, trace_id,
  coalesce(effect_root, cast(id AS text)), idempotency_key, cancel_requested, due_at, traceparent, parent_id
FROM kept ORDER BY lane, due_at, id;

-- name: clock
SELECT {clock};

-- name: next_due
-- The first moment at which something becomes claimable or wakes.
SELECT min(due_at) FROM jobs WHERE NOT ready AND due_at IS NOT NULL AND phase IN ('claimable', 'blocked')
  AND phase = :phase;

-- name: schedules_called
SELECT {schedule_columns} FROM schedules WHERE id = :reference OR name = :reference ORDER BY id FOR UPDATE;

-- name: next_fire
-- Hot: looked at by every sweep. Relies on schedules_next.
SELECT coalesce(retry_at, next_fire_at) FROM schedules WHERE next_fire_at IS NOT NULL
  AND contract = ANY (ARRAY(SELECT json_array_elements_text(:contracts::json))) ORDER BY coalesce(retry_at, next_fire_at) LIMIT 1;

-- name: soonest_schedules
-- Relies on schedules_next.
SELECT {schedule_columns} FROM schedules WHERE next_fire_at IS NOT NULL
  AND contract = ANY (ARRAY(SELECT json_array_elements_text(:contracts::json)))
ORDER BY coalesce(retry_at, next_fire_at) LIMIT :limit;

-- name: key_owners
-- Who owns these [space, key] pairs.
SELECT k.space, k.key, k.job_id FROM json_array_elements(:pairs::json) p
JOIN keys k ON k.space = p.value ->> 0 AND k.key = p.value ->> 1;

-- name: lost_to
-- Expired leases a claimer may take over; relies on jobs_leased.
SELECT {columns} FROM jobs WHERE phase = 'leased' AND lease_until <= (SELECT {clock})
  AND (lane >> :shift::int) & :group_mask = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:groups::json)))
  AND lane & :party_mask <> ALL (ARRAY(SELECT value::bigint FROM json_array_elements_text(:paused::json)))
ORDER BY lease_until LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: prune_look
-- The next jobs along the primary key, and whether each may go: ended long enough, its parent not alive, no dead
-- letter open. Runs of a task go from the first on, hence the lowest number that is left.
SELECT j.id, j.version, coalesce(j.phase = 'final' AND j.finished_at <= (
      SELECT (r.value ->> 4)::bigint FROM json_array_elements(:rules::json) WITH ORDINALITY r (value, n) WHERE (r.value ->> 0 IS NULL OR r.value ->> 0 = j.contract)
      AND (r.value ->> 1 IS NULL OR r.value ->> 1 = j.queue)
      AND (r.value ->> 2 IS NULL OR r.value ->> 2 = j.job_type)
      AND (r.value ->> 3 IS NULL OR r.value ->> 3 = j.status)
      ORDER BY r.n LIMIT 1)
    AND NOT EXISTS (SELECT 1 FROM jobs p WHERE p.phase <> 'final' AND p.id =
      CASE WHEN j.parent_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN j.parent_id::uuid END)
    AND NOT EXISTS (SELECT 1 FROM dead_letters l WHERE l.job_id = j.id AND l.status = 'open'), false),
  CASE WHEN j.task_attempt IS NOT NULL THEN (
    SELECT min(r.task_attempt) FROM jobs r WHERE r.task_id = j.task_id AND r.task_attempt IS NOT NULL) END
FROM jobs j WHERE {where} ORDER BY j.id LIMIT :limit;

-- name: prune_events
DELETE FROM events WHERE job_id IN (SELECT value::uuid FROM json_array_elements_text(:ids::json));

-- name: prune_notes
DELETE FROM notes WHERE job_id IN (SELECT value::uuid FROM json_array_elements_text(:ids::json));

-- name: prune_steps
DELETE FROM steps WHERE job_id IN (SELECT value::uuid FROM json_array_elements_text(:ids::json));

-- name: prune_signals
DELETE FROM signals WHERE job_id IN (SELECT value::uuid FROM json_array_elements_text(:ids::json));

-- name: prune_dead_letters
DELETE FROM dead_letters WHERE job_id IN (SELECT value::uuid FROM json_array_elements_text(:ids::json));

-- name: prune_fires
-- Of schedules that are gone; the others remember theirs, so that no fire ever makes a second job.
DELETE FROM fires WHERE job_id IN (SELECT value::uuid FROM json_array_elements_text(:ids::json))
  AND NOT EXISTS (SELECT 1 FROM schedules s WHERE s.id = fires.schedule_id);

-- name: prune_jobs
DELETE FROM jobs WHERE id IN (SELECT value::uuid FROM json_array_elements_text(:ids::json));

-- name: prune_keys
-- [space, key, job_id] triples, by primary key.
DELETE FROM keys WHERE (space, key, job_id) IN (
  SELECT value ->> 0, value ->> 1, (value ->> 2)::uuid FROM json_array_elements(:owned::json));

-- name: keep_keys
-- The same keys, left behind for a while.
UPDATE keys SET kept_until = :until WHERE (space, key, job_id) IN (
  SELECT value ->> 0, value ->> 1, (value ->> 2)::uuid FROM json_array_elements(:owned::json));

-- name: lock_dead_letter
-- Two people who requeue or discard one item at once: the second sees what the first did.
SELECT {dead_columns} FROM dead_letters WHERE id = :id FOR UPDATE;

-- name: record_step
-- A step under its token. The lock keeps an expiry from coming between the look at the token and the commit.
WITH held AS MATERIALIZED (
  SELECT id, execution_no, updated_at FROM jobs
  WHERE id = :job_id::uuid AND token = :token::text AND phase = 'leased' FOR SHARE
)
INSERT INTO steps (job_id, name, digest, result, finished, execution_no, at)
SELECT id, :name::text, :digest::text, :result::text, :finished::boolean, execution_no, greatest({clock}, updated_at)
FROM held
ON CONFLICT (job_id, name) DO UPDATE SET result = excluded.result, finished = excluded.finished, at = excluded.at
WHERE NOT steps.finished AND steps.execution_no = excluded.execution_no;

-- name: record_steps
-- Hot. The same for many jobs in one round trip; a row somebody else holds is passed over and looked at alone.
WITH held AS MATERIALIZED (
  SELECT j.id, j.execution_no, j.updated_at, s.name, s.digest, s.result, s.finished
  FROM unnest(CAST(:ids::text[] AS uuid[]), :tokens::text[], :names::text[], :digests::text[], :results::text[],
    CAST(:finished::text[] AS boolean[])) s (id, token, name, digest, result, finished)
  CROSS JOIN LATERAL (SELECT id, token, phase, execution_no, updated_at FROM jobs
    WHERE id = s.id OFFSET 0 FOR SHARE SKIP LOCKED) j
  WHERE j.token = s.token AND j.phase = 'leased'
)
INSERT INTO steps (job_id, name, digest, result, finished, execution_no, at)
SELECT id, name, digest, result, finished, execution_no, greatest({clock}, updated_at) FROM held
ON CONFLICT (job_id, name) DO UPDATE SET result = excluded.result, finished = excluded.finished, at = excluded.at
WHERE NOT steps.finished AND steps.execution_no = excluded.execution_no
RETURNING job_id::text, name;

-- name: tail
-- Events of transactions that have all ended, by transaction, from a position on; relies on events_xid. The window keeps
-- the sort small for a reader that is far behind.
SELECT e.xid, {tail_columns} FROM events e JOIN jobs j ON j.id = e.job_id
WHERE e.xid >= :commit AND e.xid < :below AND (e.xid, e.job_id, e.seq) > (:commit, :job_id, :seq)
ORDER BY e.xid, e.job_id, e.seq LIMIT :limit;

-- name: tail_line
-- Below this transaction nothing can appear any more.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint;

-- name: put_outbox_items
-- [job_id, kind, version, due_at] each; a newer version of the same parcel takes the place of the older.
INSERT INTO outbox (job_id, kind, version, due_at)
SELECT (value ->> 0)::uuid, value ->> 1, (value ->> 2)::integer, (value ->> 3)::bigint
FROM json_array_elements(:outbox_items::json)
ON CONFLICT (job_id, kind) DO UPDATE SET version = excluded.version, due_at = excluded.due_at;

-- name: take_outbox_items
-- Hot. What is due, hidden from others for a while; relies on outbox_due.
WITH due AS MATERIALIZED (
  SELECT ctid AS at FROM outbox WHERE due_at <= (SELECT {clock}) ORDER BY due_at, job_id LIMIT :limit
  FOR UPDATE SKIP LOCKED
)
UPDATE outbox o SET due_at = {clock} + :hold FROM due d WHERE o.ctid = d.at
RETURNING o.job_id, o.kind, o.version, o.due_at;

-- name: drop_outbox_items
-- Hot. [job_id, kind, version]: a newer one stays.
DELETE FROM outbox o USING json_array_elements(:outbox_items::json) p
WHERE o.job_id = (p.value ->> 0)::uuid AND o.kind = p.value ->> 1 AND o.version = (p.value ->> 2)::integer;

-- name: claimable
-- Every job of these contracts that waits for a worker now: [id, version, failures]; walks the partial indexes.
SELECT id, version, failures FROM jobs WHERE ready
  AND contract = ANY (ARRAY(SELECT json_array_elements_text(:contracts::json)))
UNION ALL
SELECT id, version, failures FROM jobs WHERE NOT ready AND due_at IS NOT NULL AND phase IN ('claimable', 'blocked')
  AND phase = 'claimable' AND due_at <= (SELECT {clock})
  AND contract = ANY (ARRAY(SELECT json_array_elements_text(:contracts::json)));

-- name: open_dead_letters
SELECT l.job_id, j.version FROM dead_letters l JOIN jobs j ON j.id = l.job_id
WHERE l.status = 'open' AND l.contract = ANY (ARRAY(SELECT json_array_elements_text(:contracts::json)));

-- name: dead_letters_of
SELECT {dead_columns} FROM dead_letters
WHERE job_id IN (SELECT value::uuid FROM json_array_elements_text(:ids::json)) ORDER BY job_id, retries;

-- name: let_go
-- A lease whose holder was found dead on the stream ends now: {id: token}.
UPDATE jobs j SET lease_until = least(j.lease_until, {clock}) FROM json_each_text(:held::json) h
WHERE j.id = h.key::uuid AND j.token = h.value AND j.phase = 'leased';

-- name: prune_outbox
DELETE FROM outbox WHERE job_id IN (SELECT value::uuid FROM json_array_elements_text(:ids::json));

-- name: note_heartbeats
-- Beside jobs {id: token} of contracts {contract: note} that were claimed that long ago.
INSERT INTO notes (job_id, seq, name, at, actor, execution_no)
SELECT j.id, j.version, n.value, greatest({clock}, j.updated_at), j.worker, j.execution_no
FROM json_each_text(:held::json) h
CROSS JOIN LATERAL (SELECT id, version, updated_at, worker, execution_no, token, phase, contract FROM jobs
  WHERE id = h.key::uuid OFFSET 0) j
JOIN json_each_text(:names::json) n ON n.key = j.contract
WHERE j.token = h.value AND j.phase = 'leased' AND j.updated_at <= {clock} - :older_than::bigint;

-- name: take_all_keys
-- [space, key, job_id] each.
INSERT INTO keys (space, key, job_id, created_at)
SELECT value ->> 0, value ->> 1, (value ->> 2)::uuid, :now::bigint FROM json_array_elements(:owned::json) ON CONFLICT DO NOTHING;

-- name: verify_takeovers
-- Events of these names that do not name old consumer, new consumer and message.
SELECT e.job_id, e.seq, e.event FROM events e WHERE {where} AND e.event = ANY (ARRAY(SELECT json_array_elements_text(:events::json)))
  AND NOT (coalesce(e.data, '') LIKE '%"old_consumer":"%' AND e.data LIKE '%"new_consumer":"%'
    AND e.data LIKE '%"message_id":"%') ORDER BY e.job_id, e.seq;
