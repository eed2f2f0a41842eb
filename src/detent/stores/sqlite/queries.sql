-- SQLite only.

-- name: lock
-- Rows by id; in a write transaction no other process can change them.
SELECT {columns} FROM detent.job_list WHERE id IN (SELECT value FROM json_each(:ids)) ORDER BY id;

-- name: insert_job
-- Positional parameters: named ones would be looked up for every row.
INSERT INTO detent.jobs ({created}) VALUES ({created_places}) ON CONFLICT (id) DO NOTHING;

-- name: insert_first_event
INSERT INTO detent.events (job_id, seq, edge, at, actor, data, lane, execution_no, retries)
VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0);

-- name: put_job_trace
INSERT OR IGNORE INTO detent.job_traces (trace_id, job_id) VALUES (?1, ?2);

-- name: insert_event
INSERT INTO detent.events (job_id, seq, edge, at, actor, execution_no, retries, data, lane)
VALUES (:job_id, :seq, :edge, :at, :actor, :execution_no, :retries, :data, (SELECT lane FROM detent.jobs WHERE id = :job_id));

-- name: update_job
-- Compare-and-set on version; the caller checks that one row changed.
UPDATE detent.jobs SET {plain_assignments}, state = :state, worker = :worker WHERE id = :id AND version = :before_version;

-- name: find_state
-- Of two states of one status the newest is used for writing.
SELECT max(id) FROM detent.states WHERE contract = :contract AND status = :status;

-- name: status_of
SELECT status FROM detent.states WHERE id = ?;

-- name: ids_with_events
SELECT DISTINCT job_id FROM detent.events WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: succeed_events
-- Hot path. Events of plain successes, inserted before the rows change; {id: token} joined by primary key.
INSERT INTO detent.events (job_id, seq, edge, at, actor, execution_no, retries, lane)
SELECT j.id, j.version + 1, :edge, max(:now, j.updated_at), j.worker, j.execution_no, j.retries, j.lane
FROM json_each(:held) h CROSS JOIN detent.jobs j ON j.id = h.key
WHERE j.token = h.value AND j.state IN ({source_states}) AND (j.parent_id IS NULL OR :family)
  AND (j.timeout_ms IS NULL OR j.updated_at + j.timeout_ms * 1000 >= :now);

-- name: succeed_jobs
-- Hot path. leased -> final.
UPDATE detent.jobs AS jobs SET state = :target, version = version + 1, updated_at = max(:now, updated_at),
  finished_at = max(:now, updated_at), worker = NULL, lease_until = NULL, due_at = NULL, error_code = NULL,
  error_message = NULL, cancel_requested = NULL
FROM json_each(:held) h
WHERE jobs.id = h.key AND jobs.token = h.value AND jobs.state IN ({source_states}) AND (jobs.parent_id IS NULL OR :family)
  AND (jobs.timeout_ms IS NULL OR jobs.updated_at + jobs.timeout_ms * 1000 >= :now);

-- name: succeed_results
-- Results {id: result} of the jobs that returned one, right after succeed_jobs in the same transaction.
UPDATE detent.jobs AS jobs SET result = r.value FROM json_each(:results) r WHERE jobs.id = r.key;

-- name: leased_with_token
-- The ids of {id: token} whose token holds a leased row of this contract and status, and whose timeout has not passed.
SELECT h.key FROM json_each(:held) h CROSS JOIN detent.jobs j ON j.id = h.key
WHERE j.token = h.value AND j.state IN ({source_states}) AND (j.parent_id IS NULL OR :family)
  AND (j.timeout_ms IS NULL OR j.updated_at + j.timeout_ms * 1000 >= :now);

-- name: walk_lanes
-- Hot path. The next lanes with claimable jobs. Walks jobs_ready with one probe per lane.
WITH RECURSIVE walk (lane, hops) AS (
  SELECT (SELECT lane FROM detent.jobs WHERE ready = 1 AND lane >= :from ORDER BY lane LIMIT 1), 1
  UNION ALL
  SELECT (SELECT j.lane FROM detent.jobs j WHERE j.ready = 1 AND j.lane > walk.lane ORDER BY j.lane LIMIT 1), hops + 1
  FROM walk WHERE walk.lane IS NOT NULL AND hops < :hops
)
SELECT lane FROM walk WHERE lane IS NOT NULL;

-- name: pick_lane
-- Hot path. The oldest claimable jobs of one lane. Index: jobs_ready.
SELECT {picked} FROM detent.jobs WHERE ready = 1 AND lane = ? ORDER BY due_at, n LIMIT ?;

-- name: pick_before_deadline
-- The same without jobs past their deadline, and with updated_at as the last column.
SELECT {picked}, updated_at FROM detent.jobs WHERE ready = 1 AND lane = ? AND (deadline_at IS NULL OR deadline_at > ?)
ORDER BY due_at, n LIMIT ?;

-- name: claim_events
-- Hot path. Events of the picked jobs (their row numbers), inserted before the rows change.
INSERT INTO detent.events (job_id, seq, edge, at, actor, execution_no, retries, lane)
SELECT j.id, j.version + 1, :edge, max(:now, j.updated_at), :worker, j.execution_no + 1, j.retries, j.lane
FROM json_each(:numbers) p CROSS JOIN detent.jobs j ON j.n = p.value;

-- name: claim_jobs
-- Hot path. claimable -> leased.
UPDATE detent.jobs AS jobs SET state = :target, ready = 0, version = version + 1, token = :token,
  worker = :worker, lease_until = max(:now, updated_at) + min(:lease, coalesce({longest_lease}, :lease)), execution_no = execution_no + 1,
  updated_at = max(:now, updated_at), started_at = coalesce(started_at, max(:now, updated_at)),
  next_retry_at = NULL
FROM json_each(:numbers) p WHERE jobs.n = p.value;

-- name: extend
UPDATE detent.jobs AS jobs
SET lease_until = max(lease_until, min(:now + :lease, coalesce(updated_at + {longest_lease}, :now + :lease)))
FROM json_each(:held) h WHERE jobs.id = h.key AND jobs.token = h.value AND jobs.lease_until IS NOT NULL;

-- name: not_held
-- The ids of {id: token} whose token holds no leased row or whose timeout has passed.
SELECT h.key FROM json_each(:held) h LEFT JOIN detent.jobs j ON j.id = h.key
WHERE j.id IS NULL OR NOT (j.token = h.value AND j.lease_until IS NOT NULL)
  OR coalesce(updated_at + {longest_lease} <= :now, 0);

-- name: promote
-- Future jobs that have become due. Index: jobs_later.
UPDATE detent.jobs SET ready = 1 WHERE n IN (
  SELECT n FROM detent.jobs WHERE ready = 0 AND due_at IS NOT NULL AND state & 1 = 0
    AND state & 3 = 0 AND due_at <= :now LIMIT :limit);

-- name: next_due
-- The first time at which a job of this phase becomes due.
SELECT min(due_at) FROM detent.jobs WHERE ready = 0 AND due_at IS NOT NULL AND state & 1 = 0
  AND state & 3 = CASE :phase WHEN 'claimable' THEN 0 ELSE 2 END;

-- name: any_leased_or_due
SELECT EXISTS (SELECT 1 FROM detent.job_list WHERE lease_until IS NOT NULL AND job_type IN (SELECT value FROM json_each(:types)))
  OR EXISTS (SELECT 1 FROM detent.job_list WHERE ready = 0 AND due_at IS NOT NULL AND state & 1 = 0
    AND due_at <= :now + :horizon AND job_type IN (SELECT value FROM json_each(:types)))
  OR EXISTS (SELECT 1 FROM detent.child_events);

-- name: due_blocked
SELECT {columns} FROM detent.job_list WHERE ready = 0 AND due_at IS NOT NULL AND state & 1 = 0
  AND state & 3 = 2 AND due_at <= :now AND contract IN (SELECT value FROM json_each(:contracts))
ORDER BY due_at LIMIT :limit;

-- name: expired
-- Index: jobs_leased.
SELECT {columns} FROM detent.job_list WHERE lease_until <= :now
  AND (contract IN (SELECT value FROM json_each(:contracts))
    OR lease_until >= updated_at + timeout_ms * 1000 AND contract IN (SELECT value FROM json_each(:timed_out)))
ORDER BY lease_until LIMIT :limit;

-- name: backlog
-- Due, future and leased jobs per lane group; a wait with a time-out is not a future job. Indexes: jobs_ready,
-- jobs_later, jobs_leased; no final row is read.
WITH open_jobs (lane, due, later, held, due_at) AS (
  SELECT lane, 1, 0, 0, due_at FROM detent.jobs WHERE ready = 1
  UNION ALL
  SELECT lane, due_at <= :now, due_at > :now, 0, iif(due_at <= :now, due_at, NULL) FROM detent.jobs
  WHERE ready = 0 AND due_at IS NOT NULL AND state & 1 = 0 AND state & 3 = 0
  UNION ALL
  SELECT lane, 0, 1, 0, NULL FROM detent.jobs
  WHERE ready = 0 AND due_at IS NOT NULL AND state & 1 = 0 AND state & 3 = 2 AND wait_kind IS NULL
  UNION ALL
  SELECT lane, 0, 0, 1, NULL FROM detent.jobs WHERE lease_until IS NOT NULL
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
-- Index: jobs_ready.
SELECT count(*) FROM (
  SELECT 1 FROM detent.jobs me JOIN detent.jobs j ON j.lane = me.lane
  WHERE me.id = :id AND j.ready = 1 AND (j.due_at, j.id) < (me.due_at, me.id) LIMIT :at_most);

-- name: cancels
-- The cancel requests of the jobs {id: token}.
SELECT h.key, j.cancel_requested FROM json_each(:held) h CROSS JOIN detent.jobs j ON j.id = h.key
WHERE j.token = h.value AND j.lease_until IS NOT NULL AND j.cancel_requested IS NOT NULL;

-- name: unfinished_fires
SELECT s.value, j.id FROM json_each(:ids) s CROSS JOIN detent.fires f ON f.schedule_id = s.value
  AND f.fire_at >= coalesce((SELECT fire_at FROM detent.fires WHERE schedule_id = s.value
    ORDER BY fire_at DESC LIMIT 1 OFFSET :limit - 1), 0)
CROSS JOIN detent.jobs j ON j.id = f.job_id WHERE j.state & 3 <> 3 ORDER BY j.id;

-- name: ready_suspect
-- A claimable job in the lanes of suspects, if there is one. Index: jobs_ready.
SELECT 1 FROM detent.jobs WHERE ready = 1 AND lane >= :first LIMIT 1;

-- name: reclaimable
-- Expired leases that a worker may reclaim. Index: jobs_leased.
SELECT {columns} FROM detent.job_list WHERE lease_until <= :now
  AND (lane >> {party_bits}) & {group_mask} IN (SELECT value FROM json_each(:groups))
  AND lane & {party_mask} NOT IN (SELECT value FROM json_each(:paused)) ORDER BY lease_until LIMIT :limit;

-- name: latest_time
SELECT max(coalesce((SELECT at FROM detent.events ORDER BY n DESC LIMIT 1), 0), coalesce((SELECT max(seen_at) FROM detent.workers), 0));

-- name: put_edge
INSERT INTO detent.edges (event, source, target) VALUES (?, ?, ?) ON CONFLICT DO NOTHING;

-- name: put_state
INSERT INTO detent.states (id, contract, status, phase, retry_at, reopens) VALUES (?, ?, ?, ?, ?, ?);

-- name: prune_jobs
DELETE FROM detent.jobs WHERE id IN (SELECT value FROM json_each(:ids));

-- name: record_step
-- Hot path. Records a step if the token holds the job. A step begun in the same execution may be finished; a finished
-- one is not changed. Indexes: primary keys.
INSERT INTO detent.steps AS steps (job_id, name, digest, result, finished, execution_no, at, started_at)
SELECT id, :name, :digest, :result, :finished, execution_no, max(:now, updated_at),
  min(coalesce(:started_at, :now), max(:now, updated_at)) FROM detent.jobs
WHERE id = :job_id AND token = :token AND lease_until IS NOT NULL
ON CONFLICT (job_id, name) DO UPDATE SET result = excluded.result, finished = excluded.finished, at = excluded.at
WHERE NOT steps.finished AND steps.execution_no = excluded.execution_no;

-- name: tail
-- All events in commit order. Index: primary key.
SELECT e.n, {tail_columns} FROM detent.event_list e CROSS JOIN detent.job_list j ON j.id = e.job_id
WHERE e.n > :after ORDER BY e.n LIMIT :limit;

-- name: tail_end
-- The last event number ever used, even if that event has been pruned.
SELECT coalesce(max(n), 0) FROM detent.events;

-- name: pick_named
-- Hot path. The due, claimable jobs among [id, token, failures]; the failure count must match.
SELECT {picked_of_r}, j.contract, j.queue, j.job_type, j.tenant_id, j.status, j.lane >= :suspects, c.value ->> 1
FROM json_each(:named) c CROSS JOIN detent.jobs r ON r.id = c.value ->> 0 CROSS JOIN detent.job_list j ON j.id = r.id
WHERE j.state & 3 = 0 AND j.failures = c.value ->> 2 AND j.due_at <= :now
  AND j.contract IN (SELECT value FROM json_each(:contracts));

-- name: claim_named_jobs
-- Hot path. claimable -> leased, {row number: token}.
UPDATE detent.jobs AS jobs SET state = :target, ready = 0, version = version + 1, token = t.value,
  worker = :worker, lease_until = max(:now, updated_at) + min(:lease, coalesce({longest_lease}, :lease)), execution_no = execution_no + 1,
  updated_at = max(:now, updated_at), started_at = coalesce(started_at, max(:now, updated_at)),
  next_retry_at = NULL
FROM json_each(:tokens) t WHERE jobs.n = CAST(t.key AS integer);

-- name: take_outbox_items
-- Due items, hidden from other orchestrators for :hold. Index: outbox_due.
UPDATE detent.outbox SET due_at = :now + :hold WHERE (job_id, kind) IN (
  SELECT job_id, kind FROM detent.outbox WHERE due_at <= :now ORDER BY due_at, job_id LIMIT :limit)
RETURNING job_id, kind, version, due_at;

-- name: drop_outbox_items
-- [job_id, kind, version, due_at] each, as they were taken; one that was put again meanwhile stays. All stay if they were
-- published to another server process than the one the stream is on.
DELETE FROM detent.outbox WHERE (job_id, kind, version, due_at) IN (
  SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each(:outbox_items))
  AND EXISTS (SELECT 1 FROM detent.stream_epochs WHERE name = :stream AND epoch LIKE '%/' || :run_id);

-- name: claimable
-- All jobs of these contracts that wait for a worker now, and those that left the outbox although they are not due: the
-- clock was set back after they were published. Indexes: jobs_ready, jobs_later, primary key of outbox.
SELECT id, version, failures, due_at FROM detent.job_list
WHERE ready = 1 AND contract IN (SELECT value FROM json_each(:contracts))
UNION ALL
SELECT id, version, failures, due_at FROM detent.job_list j WHERE ready = 0 AND due_at IS NOT NULL AND state & 1 = 0
  AND state & 3 = 0 AND contract IN (SELECT value FROM json_each(:contracts))
  AND (due_at <= :now OR NOT EXISTS (SELECT 1 FROM detent.outbox o WHERE o.job_id = j.id));

-- name: expire_leases
-- Ends the leases {id: token} whose worker was found dead on the stream.
UPDATE detent.jobs AS jobs SET lease_until = min(lease_until, max(:now, updated_at)) FROM json_each(:held) h
WHERE jobs.id = h.key AND jobs.token = h.value AND jobs.lease_until IS NOT NULL;

-- name: note_heartbeats
-- A note for each job {id: token} that was claimed longer than :older_than ago; :names is {contract: note name}.
INSERT INTO detent.notes (job_id, seq, name, at, actor, execution_no)
SELECT j.id, j.version, n.value, max(:now, j.updated_at), j.worker, j.execution_no
FROM json_each(:held) h CROSS JOIN detent.job_list j ON j.id = h.key JOIN json_each(:names) n ON n.key = j.contract
WHERE j.token = h.value AND j.lease_until IS NOT NULL AND j.updated_at <= :now - :older_than;

-- name: verify_misplaced
-- Jobs are found by indexes of their own table, so none can be missing.
SELECT value, value FROM json_each(:ids) WHERE false;

-- name: verify_unclaimed
SELECT value, value FROM json_each(:ids) WHERE false;

-- name: verify_strays
SELECT id, id, id, id FROM detent.jobs WHERE false LIMIT :limit;
