-- name: lock
-- Rows by id; inside a write transaction nobody else can change them.
SELECT {columns} FROM jobs WHERE id IN (SELECT value FROM json_each(:ids)) ORDER BY id;

-- name: insert_job
INSERT INTO jobs ({columns}, lane) VALUES ({places}, :lane) ON CONFLICT (id) DO NOTHING;

-- name: insert_event
INSERT INTO events (job_id, seq, event, source, target, at, actor, execution_no, retries, data)
VALUES (:job_id, :seq, :event, :source, :target, :at, :actor, :execution_no, :retries, :data);

-- name: insert_note
INSERT INTO notes (job_id, seq, name, at, actor, execution_no, data) VALUES (:job_id, :seq, :name, :at, :actor, :execution_no, :data);

-- name: update_job
-- Compare-and-set on version; the caller checks that one row changed.
UPDATE jobs SET {assignments} WHERE id = :id AND version = :before_version;

-- name: take_key
INSERT INTO keys (space, key, job_id, created_at) VALUES (:space, :key, :job_id, :now) ON CONFLICT DO NOTHING;

-- name: key_owner
SELECT job_id FROM keys WHERE space = :space AND key = :key;

-- name: next_attempt
-- Relies on jobs_task.
SELECT coalesce(max(task_attempt), 0) + 1 FROM jobs WHERE task_id = :task_id AND task_attempt IS NOT NULL;

-- name: succeed_events
-- Hot. Events of plain successes, before the rows change: {id: token} joined by primary key.
INSERT INTO events (job_id, seq, event, source, target, at, actor, execution_no, retries)
SELECT j.id, j.version + 1, :event, j.status, :target, max(:now, j.updated_at), j.worker, j.execution_no, j.retries
FROM json_each(:held) h CROSS JOIN jobs j ON j.id = h.key
WHERE j.token = h.value AND j.phase = 'leased' AND j.status = :source AND j.contract = :contract;

-- name: succeed_jobs
-- Hot. The rows themselves: leased -> final.
UPDATE jobs SET status = :target, phase = 'final', version = version + 1, updated_at = max(:now, updated_at),
  finished_at = max(:now, updated_at), worker = NULL, lease_until = NULL, due_at = NULL, error_code = NULL,
  error_message = NULL, cancel_requested = NULL
FROM json_each(:held) h
WHERE jobs.id = h.key AND jobs.token = h.value AND jobs.phase = 'leased' AND jobs.status = :source
  AND jobs.contract = :contract;

-- name: succeed_results
-- Results of those that have one: {id: result}, right after succeed_jobs in the same transaction.
UPDATE jobs SET result = r.value FROM json_each(:results) r WHERE jobs.id = r.key;

-- name: holders
-- Which of {id: token} stand on a leased row of this contract.
SELECT h.key FROM json_each(:held) h CROSS JOIN jobs j ON j.id = h.key
WHERE j.token = h.value AND j.phase = 'leased' AND j.status = :source AND j.contract = :contract;

-- name: lane_version
SELECT value FROM lane_version;

-- name: raise_lane_version
UPDATE lane_version SET value = value + 1;

-- name: lane_groups
SELECT id, contract, queue, job_type FROM lane_groups;

-- name: add_lane_group
INSERT INTO lane_groups (contract, queue, job_type) VALUES (:contract, :queue, :job_type) ON CONFLICT DO NOTHING;

-- name: find_lane_group
SELECT id FROM lane_groups WHERE contract = :contract AND queue = :queue AND job_type = :job_type;

-- name: add_lane_party
INSERT INTO lane_parties (tenant_id, limit_key) VALUES (:tenant_id, :limit_key) ON CONFLICT DO NOTHING;

-- name: find_lane_party
SELECT id FROM lane_parties WHERE tenant_id = :tenant_id AND limit_key = :limit_key;

-- name: paused_parties
SELECT p.id FROM lane_parties p JOIN pauses ON pauses.kind = 'tenant' AND pauses.name = p.tenant_id;

-- name: walk_lanes
-- Hot. The next lanes that hold something claimable, by hopping along jobs_ready: one probe a lane.
WITH RECURSIVE walk (lane, hops) AS (
  SELECT (SELECT lane FROM jobs WHERE ready = 1 AND lane >= :from ORDER BY lane LIMIT 1), 1
  UNION ALL
  SELECT (SELECT j.lane FROM jobs j WHERE j.ready = 1 AND j.lane > walk.lane ORDER BY j.lane LIMIT 1), hops + 1
  FROM walk WHERE walk.lane IS NOT NULL AND hops < :hops
)
SELECT lane FROM walk WHERE lane IS NOT NULL;

-- name: pick_lane
-- Hot. The oldest claimable jobs of one lane; relies on jobs_ready.
SELECT id, contract, job_type, queue, tenant_id, payload, execution_no, retries, version, timeout_ms, trace_id,
  effect_root, idempotency_key, cancel_requested, status
FROM jobs WHERE ready = 1 AND lane = ? ORDER BY due_at, id LIMIT ?;

-- name: claim_events
-- Hot. Events of the picked, before the rows change.
INSERT INTO events (job_id, seq, event, source, target, at, actor, execution_no, retries)
SELECT j.id, j.version + 1, :event, j.status, :target, max(:now, j.updated_at), :worker, j.execution_no + 1, j.retries
FROM json_each(:ids) p CROSS JOIN jobs j ON j.id = p.value;

-- name: claim_jobs
-- Hot. The rows themselves: claimable -> leased.
UPDATE jobs SET status = :target, phase = 'leased', ready = 0, version = version + 1, token = :token,
  worker = :worker, lease_until = max(:now, updated_at) + :lease, execution_no = execution_no + 1,
  updated_at = max(:now, updated_at), started_at = coalesce(started_at, max(:now, updated_at)),
  next_retry_at = NULL
FROM json_each(:ids) p WHERE jobs.id = p.value;

-- name: extend
UPDATE jobs SET lease_until = max(lease_until, :now + :lease)
FROM json_each(:held) h WHERE jobs.id = h.key AND jobs.token = h.value AND jobs.phase = 'leased';

-- name: not_held
SELECT h.key FROM json_each(:held) h LEFT JOIN jobs j ON j.id = h.key
WHERE j.id IS NULL OR NOT (j.token = h.value AND j.phase = 'leased');

-- name: promote
-- Future jobs whose moment has come; relies on jobs_later.
UPDATE jobs SET ready = 1 WHERE id IN (
  SELECT id FROM jobs WHERE ready = 0 AND due_at IS NOT NULL AND phase IN ('claimable', 'blocked')
    AND phase = 'claimable' AND due_at <= :now LIMIT :limit);

-- name: next_due
-- The first moment at which something becomes claimable or wakes.
SELECT min(due_at) FROM jobs WHERE ready = 0 AND due_at IS NOT NULL AND phase IN ('claimable', 'blocked')
  AND phase = :phase;

-- name: anything_left
SELECT EXISTS (SELECT 1 FROM jobs WHERE phase = 'leased' AND job_type IN (SELECT value FROM json_each(:types)))
  OR EXISTS (SELECT 1 FROM jobs WHERE ready = 0 AND due_at IS NOT NULL AND phase IN ('claimable', 'blocked')
    AND due_at <= :now + :horizon AND job_type IN (SELECT value FROM json_each(:types)));

-- name: due_blocked
SELECT {columns} FROM jobs WHERE ready = 0 AND due_at IS NOT NULL AND phase IN ('claimable', 'blocked')
  AND phase = 'blocked' AND due_at <= :now ORDER BY due_at LIMIT :limit;

-- name: expired
-- Relies on jobs_leased.
SELECT {columns} FROM jobs WHERE phase = 'leased' AND lease_until <= :now
  AND contract IN (SELECT value FROM json_each(:contracts)) ORDER BY lease_until LIMIT :limit;

-- name: events
SELECT job_id, seq, event, source, target, at, actor, execution_no, retries, data FROM events
WHERE job_id = :job_id ORDER BY seq;

-- name: notes
SELECT job_id, seq, name, at, actor, execution_no, data FROM notes WHERE job_id = :job_id ORDER BY n;

-- name: signal
SELECT job_id, name, data, actor, at, timed_out FROM signals WHERE job_id = :job_id AND name = :name;

-- name: add_signal
INSERT INTO signals (job_id, name, data, actor, at, timed_out) VALUES (:job_id, :name, :data, :actor, :at, :timed_out);

-- name: count_signals
SELECT count(*) FROM signals WHERE job_id = :job_id;

-- name: step
SELECT job_id, name, digest, result, finished, execution_no, at FROM steps WHERE job_id = :job_id AND name = :name;

-- name: steps
SELECT job_id, name, digest, result, finished, execution_no, at FROM steps WHERE job_id = :job_id ORDER BY at, name;

-- name: put_step
INSERT INTO steps (job_id, name, digest, result, finished, execution_no, at) VALUES (:job_id, :name, :digest, :result, :finished, :execution_no, :at)
ON CONFLICT (job_id, name) DO UPDATE SET result = excluded.result, finished = excluded.finished, at = excluded.at;

-- name: dead_letter
SELECT {dead_columns} FROM dead_letters WHERE id = :id;

-- name: put_dead_letter
INSERT INTO dead_letters ({dead_columns}) VALUES ({dead_places})
ON CONFLICT (id) DO UPDATE SET status = excluded.status, updated_at = excluded.updated_at,
  requeued_as = excluded.requeued_as, proposed_by = excluded.proposed_by, proposed_reason = excluded.proposed_reason;

-- name: dead_letters
SELECT {dead_columns} FROM dead_letters WHERE {where} ORDER BY id DESC LIMIT :limit;

-- name: jobs
SELECT {columns} FROM jobs WHERE {where} ORDER BY id DESC LIMIT :limit;

-- name: counts
SELECT contract, status, phase, count(*) FROM jobs GROUP BY contract, status, phase;

-- name: count_letters
SELECT status, count(*) FROM dead_letters GROUP BY status;

-- name: backlog
-- What is due, comes later and is held, per lane group; walks the three partial indexes, never a final row.
WITH open_jobs (lane, due, later, held, due_at) AS (
  SELECT lane, 1, 0, 0, due_at FROM jobs WHERE ready = 1
  UNION ALL
  SELECT lane, due_at <= :now, due_at > :now, 0, iif(due_at <= :now, due_at, NULL) FROM jobs
  WHERE ready = 0 AND due_at IS NOT NULL AND phase IN ('claimable', 'blocked') AND phase = 'claimable'
  UNION ALL
  SELECT lane, 0, 1, 0, NULL FROM jobs
  WHERE ready = 0 AND due_at IS NOT NULL AND phase IN ('claimable', 'blocked') AND phase = 'blocked'
  UNION ALL
  SELECT lane, 0, 0, 1, NULL FROM jobs WHERE phase = 'leased'
), kinds (id, due, later, held, oldest) AS (
  SELECT lane >> :shift & :mask, sum(due), sum(later), sum(held), min(due_at) FROM open_jobs GROUP BY 1
)
SELECT g.contract, g.queue, g.job_type, coalesce(o.due, 0), coalesce(o.later, 0), coalesce(o.held, 0), o.oldest
FROM lane_groups g LEFT JOIN kinds o ON o.id = g.id ORDER BY g.queue, g.job_type, g.contract;

-- name: ahead
-- Relies on jobs_ready.
SELECT count(*) FROM (
  SELECT 1 FROM jobs me JOIN jobs j ON j.lane = me.lane
  WHERE me.id = :id AND j.ready = 1 AND (j.due_at, j.id) < (me.due_at, me.id) LIMIT :at_most);

-- name: pause
INSERT INTO pauses (kind, name, actor, reason, at) VALUES (:kind, :name, :actor, :reason, :now)
ON CONFLICT (kind, name) DO UPDATE SET actor = excluded.actor, reason = excluded.reason, at = excluded.at;

-- name: resume
DELETE FROM pauses WHERE kind = :kind AND name = :name;

-- name: pauses
SELECT kind, name, actor, reason, at FROM pauses ORDER BY kind, name;

-- name: add_audit
INSERT INTO audit (at, actor, act, subject, tenant_id, reason, data) VALUES (:now, :actor, :act, :subject, :tenant_id, :reason, :data);

-- name: audit
SELECT n, at, actor, act, subject, tenant_id, reason, data FROM audit ORDER BY n DESC LIMIT :limit;

-- name: put_worker
INSERT INTO workers ({worker_columns}) VALUES ({worker_places})
ON CONFLICT (id) DO UPDATE SET busy = excluded.busy, state = excluded.state, seen_at = excluded.seen_at,
  job_types = excluded.job_types;

-- name: workers
SELECT {worker_columns} FROM workers ORDER BY started_at, id;

-- name: drop_worker
DELETE FROM workers WHERE id = :id;

-- name: cancels
-- Which of {id: token} were asked to stop.
SELECT h.key, j.cancel_requested FROM json_each(:held) h CROSS JOIN jobs j ON j.id = h.key
WHERE j.token = h.value AND j.phase = 'leased' AND j.cancel_requested IS NOT NULL;

-- name: put_contract
INSERT INTO contracts (name, definition) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET definition = excluded.definition;

-- name: contracts
SELECT name, definition FROM contracts;
