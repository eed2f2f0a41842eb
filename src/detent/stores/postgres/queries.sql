-- Postgres only. {clock} is the database's clock, or the parameter :now in tests.

-- name: lock
-- Rows by id, locked in the order of the ids, so that two transactions cannot deadlock.
SELECT j.* FROM json_array_elements_text(:ids::json) i
CROSS JOIN LATERAL (SELECT {columns} FROM detent.jobs WHERE id = i.value::uuid OFFSET 0 FOR UPDATE) j;

-- name: lock_skip_locked
-- The same without rows that other transactions have locked.
SELECT j.* FROM json_array_elements_text(:ids::json) i
CROSS JOIN LATERAL (SELECT {columns} FROM detent.jobs WHERE id = i.value::uuid OFFSET 0 FOR UPDATE SKIP LOCKED) j;

-- name: dead_letter
-- Locked before it is read: of two concurrent requeues only one may see it open.
SELECT {dead_columns} FROM detent.dead_letters WHERE id = :id FOR UPDATE;

-- name: extend
-- Hot path. Skips locked rows: they cannot be expired either while they are locked.
WITH held AS MATERIALIZED (
  SELECT j.at FROM json_each_text(:held::json) h CROSS JOIN LATERAL (
    SELECT ctid AS at, token, phase FROM detent.jobs WHERE id = h.key::uuid OFFSET 0 FOR UPDATE SKIP LOCKED) j
  WHERE j.token = h.value AND j.phase = 'leased'
)
UPDATE detent.jobs j SET lease_until = greatest(j.lease_until, {clock} + :lease) FROM held h WHERE j.ctid = h.at;

-- name: check_leases
-- Hot path. Of {id: token}: the ids whose token holds no leased row, and the cancel requests of the others.
SELECT h.key, j.lost, j.cancel_requested FROM json_each_text(:held::json) h
CROSS JOIN LATERAL (
  SELECT count(*) = 0 AS lost, max(cancel_requested) AS cancel_requested FROM (
    SELECT token, phase, cancel_requested FROM detent.jobs WHERE id = h.key::uuid OFFSET 0) k
  WHERE k.token = h.value AND k.phase = 'leased') j
WHERE j.lost OR j.cancel_requested IS NOT NULL;

-- name: promote
-- Future jobs that have become due. Index: jobs_later.
WITH due AS MATERIALIZED (
  SELECT ctid AS at FROM detent.jobs WHERE NOT ready AND due_at IS NOT NULL AND phase IN ('claimable', 'blocked')
    AND phase = 'claimable' AND due_at <= (SELECT {clock}) ORDER BY due_at LIMIT :limit FOR UPDATE SKIP LOCKED
)
UPDATE detent.jobs j SET ready = true FROM due d WHERE j.ctid = d.at;

-- name: expired
-- Hot path. Index: jobs_leased. FOR UPDATE checks the condition again on the locked row. Compared with the start of the
-- transaction: if this statement had to wait for a lock on the table, so had the heartbeats.
SELECT {columns} FROM detent.jobs WHERE phase = 'leased' AND lease_until <= (SELECT {began})
  AND contract = ANY (ARRAY(SELECT json_array_elements_text(:contracts::json)))
ORDER BY lease_until LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: due_blocked
-- Hot path. Index: jobs_later.
SELECT {columns} FROM detent.jobs WHERE NOT ready AND due_at IS NOT NULL AND phase IN ('claimable', 'blocked')
  AND phase = 'blocked' AND due_at <= (SELECT {clock})
  AND contract = ANY (ARRAY(SELECT json_array_elements_text(:contracts::json)))
ORDER BY due_at LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: any_leased_or_due
SELECT EXISTS (SELECT 1 FROM detent.jobs WHERE phase = 'leased'
    AND job_type = ANY (ARRAY(SELECT json_array_elements_text(:types::json))))
  OR EXISTS (SELECT 1 FROM detent.jobs WHERE NOT ready AND due_at IS NOT NULL AND phase IN ('claimable', 'blocked')
    AND due_at <= (SELECT {clock} + :horizon) AND job_type = ANY (ARRAY(SELECT json_array_elements_text(:types::json))))
  OR EXISTS (SELECT 1 FROM detent.child_events);

-- name: backlog
-- Due, future and leased jobs per lane group. Indexes: jobs_ready, jobs_later, jobs_leased; no final row is read.
WITH open_jobs (lane, due, later, held, due_at) AS (
  SELECT lane, 1, 0, 0, due_at FROM detent.jobs WHERE ready
  UNION ALL
  SELECT lane, (due_at <= :now)::int, (due_at > :now)::int, 0, CASE WHEN due_at <= :now THEN due_at END FROM detent.jobs
  WHERE NOT ready AND due_at IS NOT NULL AND phase IN ('claimable', 'blocked') AND phase = 'claimable'
  UNION ALL
  SELECT lane, 0, 1, 0, NULL FROM detent.jobs
  WHERE NOT ready AND due_at IS NOT NULL AND phase IN ('claimable', 'blocked') AND phase = 'blocked'
  UNION ALL
  SELECT lane, 0, 0, 1, NULL FROM detent.jobs WHERE phase = 'leased'
), kinds (id, due, later, held, oldest) AS (
  SELECT (lane >> :shift::int) & :mask, sum(due), sum(later), sum(held), min(due_at) FROM open_jobs GROUP BY 1
)
SELECT g.contract, g.queue, g.job_type, coalesce(o.due, 0), coalesce(o.later, 0), coalesce(o.held, 0), o.oldest
FROM detent.lane_groups g LEFT JOIN kinds o ON o.id = g.id ORDER BY g.queue, g.job_type, g.contract;

-- name: jobs_ahead
-- Index: jobs_ready.
SELECT count(*) FROM (
  SELECT 1 FROM detent.jobs me JOIN detent.jobs j ON j.lane = me.lane
  WHERE me.id = :id AND j.ready AND (j.due_at, j.id) < (me.due_at, me.id) LIMIT :at_most) a;

-- name: adopt
-- Leased rows with one of these tokens; their leases are extended. A row that another worker has claimed since has
-- another token. Index: jobs_leased. Runs only after the result of a claim was lost.
WITH held AS MATERIALIZED (
  SELECT ctid AS at FROM detent.jobs WHERE phase = 'leased'
    AND token = ANY (ARRAY(SELECT json_array_elements_text(:tokens::json))) FOR UPDATE SKIP LOCKED
), kept AS (
  UPDATE detent.jobs j SET lease_until = greatest(j.lease_until, {clock} + :lease) FROM held h WHERE j.ctid = h.at RETURNING j.*
)
SELECT id, token, contract, job_type, queue, tenant_id, payload, execution_no, retries, version, timeout_ms, trace_id,
  coalesce(effect_root, cast(id AS text)), idempotency_key, cancel_requested, due_at, traceparent, parent_id, losses >= 2
FROM kept ORDER BY lane, due_at, id;

-- name: clock
SELECT {clock};

-- name: next_due
-- The first time at which a job of this phase becomes due.
SELECT min(due_at) FROM detent.jobs WHERE NOT ready AND due_at IS NOT NULL AND phase IN ('claimable', 'blocked')
  AND phase = :phase;

-- name: schedules_matching
SELECT {schedule_columns} FROM detent.schedules WHERE id = :reference OR name = :reference ORDER BY id FOR UPDATE;

-- name: next_fire
-- Hot path, read by every sweep. Index: schedules_next.
SELECT coalesce(retry_at, next_fire_at) FROM detent.schedules WHERE next_fire_at IS NOT NULL
  AND contract = ANY (ARRAY(SELECT json_array_elements_text(:contracts::json))) ORDER BY coalesce(retry_at, next_fire_at) LIMIT 1;

-- name: due_schedules
-- Skips schedules that another process fires, so that several processes fire different ones. Index: schedules_next.
SELECT {schedule_columns} FROM detent.schedules WHERE next_fire_at IS NOT NULL AND coalesce(retry_at, next_fire_at) <= :now
  AND contract = ANY (ARRAY(SELECT json_array_elements_text(:contracts::json)))
ORDER BY coalesce(retry_at, next_fire_at) LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: advance_schedules
-- Compare-and-set on next_fire_at: of all processes that read it as due, one advances it.
UPDATE detent.schedules AS schedules SET next_fire_at = r.next, retry_at = NULL, misfires = misfires + r.missed,
  last_misfire_at = coalesce(r.last_missed, last_misfire_at), fires = fires + r.made,
  overlapped = schedules.overlapped + r.overlapped, last_fire_at = coalesce(r.last_at, last_fire_at),
  last_job_id = coalesce(r.last_job, last_job_id), last_error = r.error
FROM json_to_recordset(:rows::json) r (id text, due bigint, version integer, next bigint, missed integer,
  last_missed bigint, made integer, overlapped integer, last_at bigint, last_job uuid, error text)
WHERE schedules.id = r.id AND schedules.version = r.version AND next_fire_at = r.due;

-- name: postpone_fires
-- The fires stay due, and are not tried again before retry_at.
UPDATE detent.schedules AS schedules SET retry_at = :retry_at, last_error = r.error
FROM json_to_recordset(:rows::json) r (id text, due bigint, version integer, error text)
WHERE schedules.id = r.id AND schedules.version = r.version AND next_fire_at = r.due;

-- name: add_fires
-- [schedule_id, fire_at, job_id, made_at] each. The primary key is the second guard: one job per fire, even if that
-- job has been pruned.
INSERT INTO detent.fires (schedule_id, fire_at, job_id, made_at)
SELECT value ->> 0, (value ->> 1)::bigint, (value ->> 2)::uuid, (value ->> 3)::bigint
FROM json_array_elements(:rows::json) ON CONFLICT DO NOTHING;

-- name: unfinished_fires
-- Locks nothing, so that jobs can end meanwhile.
SELECT s.value, j.id::text FROM json_array_elements_text(:ids::json) s
CROSS JOIN LATERAL (SELECT job_id FROM detent.fires WHERE schedule_id = s.value ORDER BY fire_at DESC LIMIT :limit) f
JOIN detent.jobs j ON j.id = f.job_id WHERE j.phase <> 'final' ORDER BY j.id;

-- name: uptime
SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float8;

-- name: key_owners
-- The jobs that own these [space, key] pairs.
SELECT k.space, k.key, k.job_id FROM json_array_elements(:pairs::json) p
JOIN detent.keys k ON k.space = p.value ->> 0 AND k.key = p.value ->> 1;

-- name: ready_suspect
-- A claimable job in the lanes of suspects, if there is one. Index: jobs_ready.
SELECT 1 FROM detent.jobs WHERE ready AND lane >= :first::bigint ORDER BY lane LIMIT 1;

-- name: reclaimable
-- Expired leases that a worker may reclaim. Index: jobs_leased. {began}: see expired.
SELECT {columns} FROM detent.jobs WHERE phase = 'leased' AND lease_until <= (SELECT {began})
  AND (lane >> :shift::int) & :group_mask = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:groups::json)))
  AND lane & :party_mask <> ALL (ARRAY(SELECT value::bigint FROM json_array_elements_text(:paused::json)))
ORDER BY lease_until LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: prune_candidates
-- The next jobs along the primary key, and whether each may be deleted: it ended long enough ago, its parent has ended,
-- it has no open dead letter. Runs of a task are deleted from the first on, hence the lowest attempt that is left.
SELECT j.id, j.version, coalesce(j.phase = 'final' AND j.finished_at <= (
      SELECT (r.value ->> 4)::bigint FROM json_array_elements(:rules::json) WITH ORDINALITY r (value, n) WHERE (r.value ->> 0 IS NULL OR r.value ->> 0 = j.contract)
      AND (r.value ->> 1 IS NULL OR r.value ->> 1 = j.queue)
      AND (r.value ->> 2 IS NULL OR r.value ->> 2 = j.job_type)
      AND (r.value ->> 3 IS NULL OR r.value ->> 3 = j.status)
      ORDER BY r.n LIMIT 1)
    AND NOT EXISTS (SELECT 1 FROM detent.jobs p WHERE p.phase <> 'final' AND p.id =
      CASE WHEN j.parent_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN j.parent_id::uuid END)
    AND NOT EXISTS (SELECT 1 FROM detent.dead_letters l WHERE l.job_id = j.id AND l.status = 'open'), false),
  CASE WHEN j.task_attempt IS NOT NULL THEN (
    SELECT min(r.task_attempt) FROM detent.jobs r WHERE r.task_id = j.task_id AND r.task_attempt IS NOT NULL) END
FROM detent.jobs j WHERE {where} ORDER BY j.id LIMIT :limit;

-- name: prune_events
DELETE FROM detent.events WHERE job_id IN (SELECT value::uuid FROM json_array_elements_text(:ids::json));

-- name: prune_notes
DELETE FROM detent.notes WHERE job_id IN (SELECT value::uuid FROM json_array_elements_text(:ids::json));

-- name: prune_steps
DELETE FROM detent.steps WHERE job_id IN (SELECT value::uuid FROM json_array_elements_text(:ids::json));

-- name: prune_signals
DELETE FROM detent.signals WHERE job_id IN (SELECT value::uuid FROM json_array_elements_text(:ids::json));

-- name: prune_dead_letters
DELETE FROM detent.dead_letters WHERE job_id IN (SELECT value::uuid FROM json_array_elements_text(:ids::json));

-- name: prune_fires
-- Only fires of deleted schedules. Other schedules keep theirs, so that no fire creates a second job.
DELETE FROM detent.fires AS fires WHERE job_id IN (SELECT value::uuid FROM json_array_elements_text(:ids::json))
  AND NOT EXISTS (SELECT 1 FROM detent.schedules s WHERE s.id = fires.schedule_id);

-- name: prune_jobs
DELETE FROM detent.jobs WHERE id IN (SELECT value::uuid FROM json_array_elements_text(:ids::json));

-- name: prune_keys
-- [space, key, job_id] triples. Index: primary key.
DELETE FROM detent.keys WHERE (space, key, job_id) IN (
  SELECT value ->> 0, value ->> 1, (value ->> 2)::uuid FROM json_array_elements(:owned::json));

-- name: keep_keys
-- The same keys, kept until :until.
UPDATE detent.keys SET kept_until = :until WHERE (space, key, job_id) IN (
  SELECT value ->> 0, value ->> 1, (value ->> 2)::uuid FROM json_array_elements(:owned::json));

-- name: lock_dead_letter
-- Locked: of two concurrent requeues or discards, the second sees the result of the first.
SELECT {dead_columns} FROM detent.dead_letters WHERE id = :id FOR UPDATE;

-- name: record_step
-- Records a step if the token holds the job. The lock keeps the lease from being expired before the commit.
WITH held AS MATERIALIZED (
  SELECT id, execution_no, updated_at FROM detent.jobs
  WHERE id = :job_id::uuid AND token = :token::text AND phase = 'leased' FOR SHARE
)
INSERT INTO detent.steps AS steps (job_id, name, digest, result, finished, execution_no, at)
SELECT id, :name::text, :digest::text, :result::text, :finished::boolean, execution_no, greatest({clock}, updated_at)
FROM held
ON CONFLICT (job_id, name) DO UPDATE SET result = excluded.result, finished = excluded.finished, at = excluded.at
WHERE NOT steps.finished AND steps.execution_no = excluded.execution_no;

-- name: record_steps
-- Hot path. The same for many jobs in one round trip. Skips locked rows; the caller retries those one by one.
WITH held AS MATERIALIZED (
  SELECT j.id, j.execution_no, j.updated_at, s.name, s.digest, s.result, s.finished
  FROM unnest(CAST(:ids::text[] AS uuid[]), :tokens::text[], :names::text[], :digests::text[], :results::text[],
    CAST(:finished::text[] AS boolean[])) s (id, token, name, digest, result, finished)
  CROSS JOIN LATERAL (SELECT id, token, phase, execution_no, updated_at FROM detent.jobs
    WHERE id = s.id OFFSET 0 FOR SHARE SKIP LOCKED) j
  WHERE j.token = s.token AND j.phase = 'leased'
)
INSERT INTO detent.steps AS steps (job_id, name, digest, result, finished, execution_no, at)
SELECT id, name, digest, result, finished, execution_no, greatest({clock}, updated_at) FROM held
ON CONFLICT (job_id, name) DO UPDATE SET result = excluded.result, finished = excluded.finished, at = excluded.at
WHERE NOT steps.finished AND steps.execution_no = excluded.execution_no
RETURNING job_id::text, name;

-- name: tail
-- Events in the order of their transactions, from a position on. All transactions below :below have ended. The window
-- keeps the sort small for a reader that is far behind. Index: events_xid.
SELECT e.xid, {tail_columns} FROM detent.events e JOIN detent.jobs j ON j.id = e.job_id
WHERE e.xid >= :commit AND e.xid < :below AND (e.xid, e.job_id, e.seq) > (:commit, :job_id, :seq)
ORDER BY e.xid, e.job_id, e.seq LIMIT :limit;

-- name: tail_horizon
-- All transactions below this one have ended, so that no new events can appear there.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint;

-- name: put_outbox_items
-- [job_id, kind, version, due_at] each; a newer version of an item replaces the older one.
INSERT INTO detent.outbox (job_id, kind, version, due_at)
SELECT (value ->> 0)::uuid, value ->> 1, (value ->> 2)::integer, (value ->> 3)::bigint
FROM json_array_elements(:outbox_items::json)
ON CONFLICT (job_id, kind) DO UPDATE SET version = excluded.version, due_at = excluded.due_at;

-- name: take_outbox_items
-- Hot path. Due items, hidden from other orchestrators for :hold. Index: outbox_due.
WITH due AS MATERIALIZED (
  SELECT ctid AS at FROM detent.outbox WHERE due_at <= (SELECT {clock}) ORDER BY due_at, job_id LIMIT :limit
  FOR UPDATE SKIP LOCKED
)
UPDATE detent.outbox o SET due_at = {clock} + :hold FROM due d WHERE o.ctid = d.at
RETURNING o.job_id, o.kind, o.version, o.due_at;

-- name: drop_outbox_items
-- Hot path. [job_id, kind, version, due_at] each, as they were taken; one that was put again meanwhile stays. All stay if
-- they were published to another server process than the one the stream is on.
DELETE FROM detent.outbox o USING json_array_elements(:outbox_items::json) p
WHERE o.job_id = (p.value ->> 0)::uuid AND o.kind = p.value ->> 1 AND o.version = (p.value ->> 2)::integer
  AND o.due_at = (p.value ->> 3)::bigint
  AND EXISTS (SELECT FROM detent.stream_epochs w WHERE w.name = :stream AND w.epoch LIKE '%/' || :run_id);

-- name: claimable
-- All jobs of these contracts that wait for a worker now. Indexes: jobs_ready, jobs_later.
SELECT id, version, failures FROM detent.jobs WHERE ready
  AND contract = ANY (ARRAY(SELECT json_array_elements_text(:contracts::json)))
UNION ALL
SELECT id, version, failures FROM detent.jobs WHERE NOT ready AND due_at IS NOT NULL AND phase IN ('claimable', 'blocked')
  AND phase = 'claimable' AND due_at <= (SELECT {clock})
  AND contract = ANY (ARRAY(SELECT json_array_elements_text(:contracts::json)));

-- name: open_dead_letters
SELECT l.job_id, j.version FROM detent.dead_letters l JOIN detent.jobs j ON j.id = l.job_id
WHERE l.status = 'open' AND l.contract = ANY (ARRAY(SELECT json_array_elements_text(:contracts::json)));

-- name: dead_letters_of
SELECT {dead_columns} FROM detent.dead_letters
WHERE job_id IN (SELECT value::uuid FROM json_array_elements_text(:ids::json)) ORDER BY job_id, retries;

-- name: expire_leases
-- Ends the leases {id: token} whose worker was found dead on the stream.
UPDATE detent.jobs j SET lease_until = least(j.lease_until, {clock}) FROM json_each_text(:held::json) h
WHERE j.id = h.key::uuid AND j.token = h.value AND j.phase = 'leased';

-- name: prune_outbox
DELETE FROM detent.outbox WHERE job_id IN (SELECT value::uuid FROM json_array_elements_text(:ids::json));

-- name: note_heartbeats
-- A note for each job {id: token} that was claimed longer than :older_than ago; :names is {contract: note name}.
INSERT INTO detent.notes (job_id, seq, name, at, actor, execution_no)
SELECT j.id, j.version, n.value, greatest({clock}, j.updated_at), j.worker, j.execution_no
FROM json_each_text(:held::json) h
CROSS JOIN LATERAL (SELECT id, version, updated_at, worker, execution_no, token, phase, contract FROM detent.jobs
  WHERE id = h.key::uuid OFFSET 0) j
JOIN json_each_text(:names::json) n ON n.key = j.contract
WHERE j.token = h.value AND j.phase = 'leased' AND j.updated_at <= {clock} - :older_than::bigint;

-- name: take_all_keys
-- [space, key, job_id] each.
INSERT INTO detent.keys (space, key, job_id, created_at)
SELECT value ->> 0, value ->> 1, (value ->> 2)::uuid, :now::bigint FROM json_array_elements(:owned::json) ON CONFLICT DO NOTHING;

-- name: verify_takeovers
-- Events of these names whose data lack old consumer, new consumer or message id.
SELECT e.job_id, e.seq, e.event FROM detent.events e WHERE {where} AND e.event = ANY (ARRAY(SELECT json_array_elements_text(:events::json)))
  AND NOT (coalesce(e.data, '') LIKE '%"old_consumer":"%' AND e.data LIKE '%"new_consumer":"%'
    AND e.data LIKE '%"message_id":"%') ORDER BY e.job_id, e.seq;
