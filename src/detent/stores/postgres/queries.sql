-- Postgres only. {clock} is the database's clock, or the parameter :now in tests.

-- name: lock
-- Rows by id, locked in the order of the ids, so that two transactions cannot deadlock.
SELECT j.* FROM json_array_elements_text(:ids::json) i
CROSS JOIN LATERAL (SELECT {raw_columns} FROM detent.jobs WHERE id = i.value::uuid OFFSET 0 FOR UPDATE) j;

-- name: lock_skip_locked
-- The same without rows that other transactions have locked.
SELECT j.* FROM json_array_elements_text(:ids::json) i
CROSS JOIN LATERAL (SELECT {raw_columns} FROM detent.jobs WHERE id = i.value::uuid OFFSET 0 FOR UPDATE SKIP LOCKED) j;

-- name: extend
-- Hot path. Skips locked rows: they cannot be expired either while they are locked.
WITH held AS MATERIALIZED (
  SELECT j.at FROM json_each_text(:held::json) h CROSS JOIN LATERAL (
    SELECT ctid AS at, token, state FROM detent.jobs WHERE id = h.key::uuid OFFSET 0 FOR UPDATE SKIP LOCKED) j
  WHERE j.token = h.value AND j.state & 3 = 1
)
UPDATE detent.jobs j SET lease_until = {extended_lease} FROM held h WHERE j.ctid = h.at;

-- name: check_leases
-- Hot path. Of {id: token}: the ids whose token holds no leased row or whose timeout has passed, and the cancel requests
-- of the others.
SELECT h.key, j.lost, j.cancel_requested FROM json_each_text(:held::json) h
CROSS JOIN LATERAL (
  SELECT count(*) = 0 AS lost, max(cancel_requested) AS cancel_requested FROM (
    SELECT token, state, cancel_requested::text AS cancel_requested, updated_at + {longest_lease} AS longest_until
    FROM detent.jobs WHERE id = h.key::uuid OFFSET 0) k
  WHERE k.token = h.value AND k.state & 3 = 1 AND (k.longest_until <= {clock}) IS NOT TRUE) j
WHERE j.lost OR j.cancel_requested IS NOT NULL;

-- name: promote
-- Future jobs that have become due move to the queue. A job that another transaction has locked stays in timers.
WITH due AS MATERIALIZED (
  SELECT t.at, j.lane, j.due_at, j.id FROM (
    SELECT ctid AS at, id FROM detent.timers WHERE NOT wakes AND due_at <= (SELECT {clock}) ORDER BY due_at LIMIT :limit
    FOR UPDATE SKIP LOCKED) t
  CROSS JOIN LATERAL (SELECT lane, due_at, id FROM detent.jobs WHERE id = t.id OFFSET 0 FOR UPDATE SKIP LOCKED) j
), untimed AS (
  DELETE FROM detent.timers x USING due d WHERE x.ctid = d.at
)
INSERT INTO detent.queue (lane, due_at, id) SELECT lane, due_at, id FROM due ON CONFLICT DO NOTHING;

-- name: expired
-- Hot path. Every leased job is in a claim whose check_at is not after the end of its lease. Compared with the start of
-- the transaction: if this statement had to wait for a lock on the table, so had the heartbeats.
WITH over AS MATERIALIZED (
  SELECT j.id FROM (SELECT DISTINCT u.id FROM detent.claims c CROSS JOIN LATERAL unnest(c.ids) u (id)
    WHERE c.check_at <= (SELECT {began})) u
  CROSS JOIN LATERAL (SELECT id, state, lease_until, {times_out_at} AS times_out_at FROM detent.jobs WHERE id = u.id OFFSET 0) j
  WHERE j.state & 3 = 1 AND j.lease_until <= (SELECT {began})
    AND (j.state IN (SELECT id FROM detent.states WHERE contract = ANY (ARRAY(SELECT json_array_elements_text(:contracts::json))))
      OR j.lease_until >= j.times_out_at AND j.state IN (
        SELECT id FROM detent.states WHERE contract = ANY (ARRAY(SELECT json_array_elements_text(:timed_out::json)))))
  ORDER BY j.lease_until LIMIT :limit
)
SELECT j.* FROM over o CROSS JOIN LATERAL (SELECT {raw_columns} FROM detent.jobs
  WHERE id = o.id OFFSET 0 FOR UPDATE SKIP LOCKED) j
WHERE j.state & 3 = 1 AND j.lease_until <= (SELECT {began}) ORDER BY j.lease_until;

-- name: due_blocked
-- Hot path. Blocked jobs whose time has come.
WITH over AS MATERIALIZED (
  SELECT t.id FROM detent.timers t CROSS JOIN LATERAL (SELECT state FROM detent.jobs WHERE id = t.id OFFSET 0) j
  WHERE t.wakes AND t.due_at <= (SELECT {clock}) AND j.state IN (SELECT id FROM detent.states WHERE contract = ANY (ARRAY(SELECT json_array_elements_text(:contracts::json)))) ORDER BY t.due_at LIMIT :limit
)
SELECT j.* FROM over o CROSS JOIN LATERAL (SELECT {raw_columns} FROM detent.jobs
  WHERE id = o.id OFFSET 0 FOR UPDATE SKIP LOCKED) j
WHERE j.state & 3 = 2 AND j.due_at <= (SELECT {clock}) ORDER BY j.due_at;

-- name: any_leased_or_due
SELECT EXISTS (SELECT 1 FROM (SELECT DISTINCT u.id FROM detent.claims c CROSS JOIN LATERAL unnest(c.ids) u (id)) u
    CROSS JOIN LATERAL (SELECT state, lane FROM detent.jobs WHERE id = u.id OFFSET 0) j WHERE j.state & 3 = 1
    AND (j.lane >> {party_bits}) & {group_mask} IN (SELECT id FROM detent.lane_groups
      WHERE job_type = ANY (ARRAY(SELECT json_array_elements_text(:types::json)))))
  OR EXISTS (SELECT 1 FROM detent.timers t CROSS JOIN LATERAL (SELECT lane FROM detent.jobs WHERE id = t.id OFFSET 0) j
    WHERE t.due_at <= (SELECT {clock} + :horizon) AND (j.lane >> {party_bits}) & {group_mask} IN (
      SELECT id FROM detent.lane_groups WHERE job_type = ANY (ARRAY(SELECT json_array_elements_text(:types::json)))))
  OR EXISTS (SELECT 1 FROM detent.child_events);

-- name: backlog
-- Due, future and leased jobs per lane group; a wait with a time-out is not a future job. No finished job is read.
WITH open_jobs (lane, due, later, held, due_at) AS (
  SELECT lane, 1, 0, 0, due_at FROM detent.queue
  UNION ALL
  SELECT j.lane, (NOT t.wakes AND t.due_at <= :now)::int, (t.wakes OR t.due_at > :now)::int, 0,
    CASE WHEN NOT t.wakes AND t.due_at <= :now THEN t.due_at END FROM detent.timers t
  CROSS JOIN LATERAL (SELECT lane, wait_kind FROM detent.jobs WHERE id = t.id OFFSET 0) j WHERE j.wait_kind IS NULL
  UNION ALL
  SELECT j.lane, 0, 0, 1, NULL FROM (SELECT DISTINCT u.id FROM detent.claims c CROSS JOIN LATERAL unnest(c.ids) u (id)) u
  CROSS JOIN LATERAL (SELECT lane, state FROM detent.jobs WHERE id = u.id OFFSET 0) j WHERE j.state & 3 = 1
), kinds (id, due, later, held, oldest, due_paused) AS (
  SELECT (lane >> {party_bits}) & {group_mask}, sum(due), sum(later), sum(held), min(due_at),
    sum(due) FILTER (WHERE lane & {party_mask} IN (
      SELECT p.id FROM detent.pauses t JOIN detent.lane_parties p ON p.tenant_id = t.name WHERE t.kind = 'tenant'))
  FROM open_jobs GROUP BY 1
)
SELECT g.contract, g.queue, g.job_type, coalesce(o.due, 0), coalesce(o.later, 0), coalesce(o.held, 0), o.oldest,
  coalesce(o.due_paused, 0)
FROM detent.lane_groups g LEFT JOIN kinds o ON o.id = g.id ORDER BY g.queue, g.job_type, g.contract;

-- name: jobs_ahead
SELECT count(*) FROM detent.jobs me CROSS JOIN LATERAL (
  SELECT 1 FROM detent.queue q WHERE q.lane = me.lane AND (q.due_at, q.id) < (me.due_at, me.id) LIMIT :at_most) a
WHERE me.id = :id;

-- name: adopt
-- Leased rows with one of these tokens; their leases are extended. A row that another worker has claimed since has
-- another token. Runs only after the result of a claim was lost.
WITH held AS MATERIALIZED (
  SELECT j.at FROM (SELECT DISTINCT u.id FROM detent.claims c CROSS JOIN LATERAL unnest(c.ids) u (id)) u
  CROSS JOIN LATERAL (SELECT ctid AS at, token, state FROM detent.jobs WHERE id = u.id OFFSET 0 FOR UPDATE SKIP LOCKED) j
  WHERE j.state & 3 = 1 AND j.token = ANY (ARRAY(SELECT json_array_elements_text(:tokens::json)))
), kept AS (
  UPDATE detent.jobs j SET lease_until = {extended_lease} FROM held h WHERE j.ctid = h.at RETURNING j.*
)
SELECT id::text, lane, payload::text, execution_no, coalesce(retries, 0), version, timeout_ms, trace_id, effect_root, idempotency_key,
  cancel_requested::text, due_at, 0, traceparent, parent_id, token, coalesce(losses, 0), NULL
FROM kept ORDER BY lane, due_at, id;

-- name: clock
SELECT {clock};

-- name: next_due
-- The first time at which a job of this phase becomes due.
SELECT min(due_at) FROM detent.timers WHERE wakes = (:phase::text = 'blocked');

-- name: unfinished_fires
-- Locks nothing, so that jobs can end meanwhile.
SELECT s.value, j.id::text FROM json_array_elements_text(:ids::json) s
CROSS JOIN LATERAL (SELECT job_id FROM detent.fires WHERE schedule_id = s.value ORDER BY fire_at DESC LIMIT :limit) f
JOIN detent.job_list j ON j.id = f.job_id WHERE j.phase <> 'final' ORDER BY j.id;

-- name: uptime
SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float8;

-- name: ready_suspect
-- A queued job in the lanes of suspects, if there is one.
SELECT 1 FROM detent.queue WHERE lane >= :first::bigint ORDER BY lane LIMIT 1;

-- name: reclaimable
-- Expired leases that a worker may reclaim. {began}: see expired.
WITH over AS MATERIALIZED (
  SELECT j.id FROM (SELECT DISTINCT u.id FROM detent.claims c CROSS JOIN LATERAL unnest(c.ids) u (id)
    WHERE c.check_at <= (SELECT {began})) u
  CROSS JOIN LATERAL (SELECT id, state, lease_until, lane FROM detent.jobs WHERE id = u.id OFFSET 0) j
  WHERE j.state & 3 = 1 AND j.lease_until <= (SELECT {began})
    AND (j.lane >> {party_bits}) & {group_mask} = ANY (ARRAY(SELECT value::bigint FROM json_array_elements_text(:groups::json)))
    AND j.lane & {party_mask} <> ALL (ARRAY(SELECT value::bigint FROM json_array_elements_text(:paused::json)))
  ORDER BY j.lease_until LIMIT :limit
)
SELECT j.* FROM over o CROSS JOIN LATERAL (SELECT {raw_columns} FROM detent.jobs
  WHERE id = o.id OFFSET 0 FOR UPDATE SKIP LOCKED) j
WHERE j.state & 3 = 1 AND j.lease_until <= (SELECT {began}) ORDER BY j.lease_until;

-- name: prune_jobs
WITH gone AS (
  DELETE FROM detent.awaiting_approval WHERE id IN (SELECT value::uuid FROM json_array_elements_text(:ids::json))
)
DELETE FROM detent.jobs WHERE id IN (SELECT value::uuid FROM json_array_elements_text(:ids::json));

-- name: record_step
-- Records a step if the token holds the job. The lock keeps the lease from being expired before the commit.
WITH held AS MATERIALIZED (
  SELECT id, execution_no, updated_at FROM detent.jobs
  WHERE id = :job_id::uuid AND token = :token::text AND state & 3 = 1 FOR SHARE
)
INSERT INTO detent.steps AS steps (job_id, name, digest, result, finished, execution_no, at, started_at)
SELECT id, :name::text, :digest::text, :result::text, :finished::boolean, execution_no, greatest({clock}, updated_at),
  least(:started_at::bigint, greatest({clock}, updated_at))
FROM held
ON CONFLICT (job_id, name) DO UPDATE SET result = excluded.result, finished = excluded.finished, at = excluded.at
WHERE NOT steps.finished AND steps.execution_no = excluded.execution_no;

-- name: record_steps
-- Hot path. The same for many jobs in one round trip. Skips locked rows; the caller retries those one by one.
WITH held AS MATERIALIZED (
  SELECT j.id, j.execution_no, j.updated_at, s.name, s.digest, s.result, s.finished, s.started_at
  FROM unnest(CAST(:ids::text[] AS uuid[]), :tokens::text[], :names::text[], :digests::text[], :results::text[],
    CAST(:finished::text[] AS boolean[]), CAST(:started::text[] AS bigint[]))
    s (id, token, name, digest, result, finished, started_at)
  CROSS JOIN LATERAL (SELECT id, token, state, execution_no, updated_at FROM detent.jobs
    WHERE id = s.id OFFSET 0 FOR SHARE SKIP LOCKED) j
  WHERE j.token = s.token AND j.state & 3 = 1
)
INSERT INTO detent.steps AS steps (job_id, name, digest, result, finished, execution_no, at, started_at)
SELECT id, name, digest, result, finished, execution_no, greatest({clock}, updated_at),
  least(started_at, greatest({clock}, updated_at)) FROM held
ON CONFLICT (job_id, name) DO UPDATE SET result = excluded.result, finished = excluded.finished, at = excluded.at
WHERE NOT steps.finished AND steps.execution_no = excluded.execution_no
RETURNING job_id::text, name;

-- name: tail
-- Events in the order of their transactions, from a position on. All transactions below :below have ended. The window
-- keeps the sort small for a reader that is far behind. Index: events_xid.
SELECT e.xid, {tail_columns} FROM detent.event_list e JOIN detent.job_list j ON j.id = e.job_id
WHERE e.xid >= :commit AND e.xid < :below AND (e.xid, e.job_id, e.seq) > (:commit, :job_id, :seq)
ORDER BY e.xid, e.job_id, e.seq LIMIT :limit;

-- name: tail_horizon
-- All transactions below this one have ended, so that no new events can appear there.
SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint;

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
-- All jobs of these contracts that wait for a worker now, and those that left the outbox although they are not due: the
-- clock was set back after they were published.
SELECT j.id, j.version, coalesce(j.failures, 0), q.due_at FROM (
  SELECT id, due_at FROM detent.queue UNION ALL
  SELECT id, due_at FROM detent.timers t WHERE NOT wakes
    AND (due_at <= (SELECT {clock}) OR NOT EXISTS (SELECT FROM detent.outbox o WHERE o.job_id = t.id))) q
CROSS JOIN LATERAL (SELECT id, version, failures, state FROM detent.jobs WHERE id = q.id OFFSET 0) j WHERE j.state IN (SELECT id FROM detent.states WHERE contract = ANY (ARRAY(SELECT json_array_elements_text(:contracts::json))));

-- name: expire_leases
-- Ends the leases {id: token} whose worker was found dead on the stream. A claim of its own makes the sweep look at them.
WITH ended AS (
  UPDATE detent.jobs j SET lease_until = least(j.lease_until, greatest({clock}, j.updated_at)) FROM (
    SELECT k.at FROM json_each_text(:held::json) h CROSS JOIN LATERAL (
      SELECT ctid AS at, token, state FROM detent.jobs WHERE id = h.key::uuid OFFSET 0 FOR UPDATE) k
    WHERE k.token = h.value AND k.state & 3 = 1) h
  WHERE j.ctid = h.at RETURNING j.id, j.lease_until
)
INSERT INTO detent.claims (check_at, ids) SELECT min(lease_until), array_agg(id) FROM ended HAVING count(*) > 0;

-- name: note_heartbeats
-- A note for each job {id: token} that was claimed longer than :older_than ago; :names is {contract: note name}.
INSERT INTO detent.notes (job_id, seq, name, at, actor, execution_no)
SELECT j.id, j.version, n.value, greatest({clock}, j.updated_at), a.name, j.execution_no
FROM json_each_text(:held::json) h
CROSS JOIN LATERAL (SELECT id, version, updated_at, worker, execution_no, token, state FROM detent.jobs
  WHERE id = h.key::uuid OFFSET 0) j
JOIN detent.states s ON s.id = j.state AND s.phase = 'leased'
JOIN json_each_text(:names::json) n ON n.key = s.contract
LEFT JOIN detent.actors a ON a.id = j.worker
WHERE j.token = h.value AND j.updated_at <= {clock} - :older_than::bigint;

-- name: sweep_claims
-- Before expired and reclaimable: claims whose time has come are replaced by what is left of them.
WITH due AS MATERIALIZED (
  SELECT ctid AS at, check_at, n, ids FROM detent.claims WHERE check_at <= (SELECT {began}) ORDER BY check_at LIMIT 1000
  FOR UPDATE SKIP LOCKED
), alive AS MATERIALIZED (
  SELECT d.n, min(j.lease_until) AS check_at, array_agg(j.id) AS ids FROM due d CROSS JOIN LATERAL unnest(d.ids) u (id)
  CROSS JOIN LATERAL (SELECT id, state, lease_until FROM detent.jobs WHERE id = u.id OFFSET 0) j
  WHERE j.state & 3 = 1 GROUP BY d.n
), gone AS (
  DELETE FROM detent.claims c USING due d WHERE c.ctid = d.at
    AND NOT EXISTS (SELECT 1 FROM alive a WHERE a.n = d.n AND a.check_at = d.check_at)
)
INSERT INTO detent.claims (check_at, ids) SELECT a.check_at, a.ids FROM alive a JOIN due d USING (n) WHERE a.check_at <> d.check_at;

-- name: update_job
-- Compare-and-set on version; the caller checks that one row changed. The job also moves between queue and timers:
-- :was_due_at is set if it was in one of them, :in_queue and :in_timers say where it is now.
WITH changed AS (
  UPDATE detent.jobs SET {raw_assignments} WHERE id = :id::uuid AND version = :before_version::int RETURNING id
), unqueued AS (
  DELETE FROM detent.queue WHERE NOT :stays::boolean AND lane = :before_lane::bigint AND due_at = :was_due_at::bigint
    AND id = :id::uuid
), untimed AS (
  DELETE FROM detent.timers WHERE NOT :in_timers::boolean AND NOT :stays::boolean AND wakes = :woke::boolean
    AND due_at = :was_due_at::bigint AND id = :id::uuid
), moved AS (
  UPDATE detent.timers SET wakes = :wakes::boolean, due_at = :due_at::bigint
  WHERE :in_timers::boolean AND NOT :stays::boolean AND wakes = :woke::boolean AND due_at = :was_due_at::bigint
    AND id = :id::uuid RETURNING 1
), queued AS (
  INSERT INTO detent.queue (lane, due_at, id) SELECT :lane::bigint, :due_at::bigint, id FROM changed
  WHERE :in_queue::boolean AND NOT :stays::boolean
), timed AS (
  INSERT INTO detent.timers (wakes, due_at, id) SELECT :wakes::boolean, :due_at::bigint, id FROM changed
  WHERE :in_timers::boolean AND NOT :stays::boolean AND NOT EXISTS (SELECT 1 FROM moved)
)
SELECT id FROM changed;

-- name: insert_event
INSERT INTO detent.events (job_id, seq, edge, at, actor, execution_no, retries, data, lane, xid)
SELECT id, :seq::int, :edge::int, :at::bigint, :actor::int, :execution_no::int, :retries::int, :data::text, lane,
  pg_current_xact_id()::text::bigint FROM detent.jobs WHERE id = :job_id::uuid;

-- name: intern_actors
-- In one order, so that two statements cannot deadlock. A name that another transaction inserts meanwhile is left out.
WITH wanted AS (
  SELECT value AS name FROM json_array_elements_text(:names::json)
), added AS (
  INSERT INTO detent.actors (name) SELECT name FROM wanted ORDER BY name ON CONFLICT DO NOTHING RETURNING id, name
)
SELECT id, name FROM added
UNION ALL
SELECT a.id, a.name FROM wanted w CROSS JOIN LATERAL (SELECT id, name FROM detent.actors WHERE name = w.name OFFSET 0) a;

-- name: actor
SELECT name FROM detent.actors WHERE id = :id;

-- name: state
SELECT contract, status FROM detent.states WHERE id = :id;

-- name: lane_group
SELECT contract, queue, job_type FROM detent.lane_groups WHERE id = :id;

-- name: put_awaiting_approval
INSERT INTO detent.awaiting_approval (id) VALUES (:id) ON CONFLICT DO NOTHING;

-- name: drop_awaiting_approval
DELETE FROM detent.awaiting_approval WHERE id = :id;

-- name: put_deadline
INSERT INTO detent.deadlines (deadline_at, id) VALUES (:deadline_at, :id) ON CONFLICT DO NOTHING;

-- name: put_claim
-- A lease that was taken over or changed outside the claim statements.
INSERT INTO detent.claims (check_at, ids) VALUES (:check_at, ARRAY[:id::uuid]);

-- name: verify_misplaced
-- Of these claimable and blocked jobs, those that are missing in the table where they would be found. Scalar subqueries,
-- so that each is an index probe; NOT EXISTS may become a scan of the table.
WITH unfinished AS MATERIALIZED (
  SELECT j.* FROM json_array_elements_text(:ids::json) i CROSS JOIN LATERAL (
    SELECT id, state & 3 AS phase, lane, due_at, wait_kind FROM detent.jobs WHERE id = i.value::uuid OFFSET 0) j
)
SELECT u.id, 'queue' FROM unfinished u WHERE u.phase = 0
  AND (SELECT true FROM detent.queue q WHERE q.lane = u.lane AND q.due_at = u.due_at AND q.id = u.id) IS NULL
  AND (SELECT true FROM detent.timers t WHERE NOT t.wakes AND t.due_at = u.due_at AND t.id = u.id) IS NULL
UNION ALL
SELECT u.id, 'timers' FROM unfinished u WHERE u.phase = 2 AND u.due_at IS NOT NULL
  AND (SELECT true FROM detent.timers t WHERE t.wakes AND t.due_at = u.due_at AND t.id = u.id) IS NULL
UNION ALL
SELECT u.id, 'awaiting_approval' FROM unfinished u
WHERE u.phase = 2 AND (u.wait_kind = 'approval' OR u.wait_kind IS NULL AND u.due_at IS NULL)
  AND (SELECT true FROM detent.awaiting_approval a WHERE a.id = u.id) IS NULL;

-- name: verify_unclaimed
-- Of these leased jobs, those that no sweep would find when their lease ends.
WITH leased AS MATERIALIZED (
  SELECT j.* FROM json_array_elements_text(:ids::json) i CROSS JOIN LATERAL (
    SELECT id, lease_until FROM detent.jobs WHERE id = i.value::uuid OFFSET 0) j
), held AS MATERIALIZED (
  SELECT c.id, min(c.check_at) AS check_at FROM (SELECT check_at, unnest(ids) AS id FROM detent.claims) c
  WHERE (c.id IN (SELECT id FROM leased)) IS TRUE GROUP BY c.id
)
SELECT l.id, 'claims' FROM leased l LEFT JOIN held h ON h.id = l.id
WHERE h.check_at IS NULL OR h.check_at > l.lease_until;

-- name: verify_strays
-- Rows of queue, timers and awaiting_approval whose job does not exist, is in another phase, or differs otherwise.
SELECT x.id, x.place, s.phase, x.wrong FROM (
  SELECT q.id, 'queue' AS place, j.state, CASE WHEN j.state & 3 = 0 THEN
    CASE WHEN j.lane <> q.lane THEN 'the job has another lane' ELSE 'the job has another due time' END END AS wrong
  FROM detent.queue q
  LEFT JOIN LATERAL (SELECT state, lane, due_at FROM detent.jobs WHERE id = q.id OFFSET 0) j ON true
  WHERE (j.state & 3 = 0 AND j.lane = q.lane AND j.due_at = q.due_at) IS NOT TRUE
  UNION ALL
  SELECT t.id, 'timers', j.state, CASE WHEN j.state & 3 = CASE WHEN t.wakes THEN 2 ELSE 0 END THEN
    CASE WHEN j.queued THEN 'the job is in the queue, too' ELSE 'the job has another due time' END END
  FROM detent.timers t
  LEFT JOIN LATERAL (SELECT state, due_at, (SELECT true FROM detent.queue q
      WHERE q.lane = jobs.lane AND q.due_at = jobs.due_at AND q.id = jobs.id) IS TRUE AS queued
    FROM detent.jobs WHERE id = t.id OFFSET 0) j ON true
  WHERE (j.state & 3 = CASE WHEN t.wakes THEN 2 ELSE 0 END AND j.due_at = t.due_at AND NOT j.queued) IS NOT TRUE
  UNION ALL
  SELECT a.id, 'awaiting_approval', j.state, CASE WHEN j.state & 3 = 2 THEN 'the job waits for something else' END
  FROM detent.awaiting_approval a
  LEFT JOIN LATERAL (SELECT state, due_at, wait_kind FROM detent.jobs WHERE id = a.id OFFSET 0) j ON true
  WHERE (j.state & 3 = 2 AND (j.wait_kind = 'approval' OR j.wait_kind IS NULL AND j.due_at IS NULL)) IS NOT TRUE
) x LEFT JOIN detent.states s ON s.id = x.state ORDER BY x.id, x.place LIMIT :limit;

-- name: event_partitioning
-- The width of partitions in microseconds, and up to which id they are clean; no row if the role may not change them.
SELECT days * 86400000000, cleaned FROM detent.event_partitions
WHERE has_function_privilege('detent.add_event_partitions(bigint, bigint)', 'EXECUTE')
  AND has_function_privilege('detent.drop_event_partition(text)', 'EXECUTE') FOR UPDATE;

-- name: event_partitions
SELECT name, first_id, end_id FROM detent.event_partition_list ORDER BY first_id;

-- name: add_event_partitions
SELECT detent.add_event_partitions({clock}, :max_bytes);

-- name: drop_event_partition
SELECT detent.drop_event_partition(:name);

-- name: jobs_of_events
-- Index: the primary keys of events and jobs.
SELECT e.job_id, EXISTS (SELECT 1 FROM detent.jobs j WHERE j.id = e.job_id) FROM (
  SELECT DISTINCT job_id FROM (SELECT job_id FROM detent.events WHERE job_id > :after AND job_id < :end
    ORDER BY job_id LIMIT :limit) page) e
ORDER BY e.job_id;

-- name: put_cleaned
UPDATE detent.event_partitions SET cleaned = :cleaned;

-- name: lock_events
LOCK TABLE ONLY detent.events IN ACCESS SHARE MODE;

-- name: left_events
-- Events of jobs with ids between these may be left, although the job was deleted.
SELECT cleaned, (SELECT coalesce(max(passed), '') FROM detent.pruning) FROM detent.event_partitions;
