-- Queries that are the same in SQLite and Postgres; the others are in the folders of the stores. `WHERE true` before
-- ON CONFLICT is for the parser of SQLite. Each dialect fills in its own text for these placeholders, in all files of
-- this folder:
--   {texts:ids}               a table of the texts in the JSON array :ids, with one column `value`
--   {rows:pairs}              a table of the arrays or objects in the JSON array :pairs, with one column `value`
--   {uuid:x}                  the text x as the id of a job; {uuid_or_null:x} is null if x is not a UUID
--   x {any:SELECT y}          x is one of the rows of the subquery, which is run once
--   {join_job:i.value}        joins the row j of job_list with this id, with one probe of the primary key for each row
--   {probe} t ON ...          joins t with one index probe for each row
--   {after:e} x, {until:e} x  the row e of a log is after the position x, or not after it
--   {for_update}              a row lock in Postgres; SQLite has one writer. Also {for_update_skip_locked}
-- Others: {columns} and {places} are the columns of a job and their parameters, likewise {dead_columns} and so on;
-- {party_bits}, {group_mask} and {party_mask} take a lane apart (lanes.py); {where} is a condition from the caller.

-- name: insert_note
INSERT INTO detent.notes (job_id, seq, name, at, actor, execution_no, data) VALUES (:job_id, :seq, :name, :at, :actor, :execution_no, :data);

-- name: take_key
INSERT INTO detent.keys (space, key, job_id, created_at) VALUES (:space, :key, :job_id, :now) ON CONFLICT DO NOTHING;

-- name: take_all_keys
-- [space, key, job_id] each.
INSERT INTO detent.keys (space, key, job_id, created_at)
SELECT value ->> 0, value ->> 1, {uuid:value ->> 2}, CAST(:now AS bigint) FROM {rows:owned} WHERE true ON CONFLICT DO NOTHING;

-- name: key_owners
-- The jobs that own these [space, key] pairs.
SELECT k.space, k.key, k.job_id FROM {rows:pairs} p
{probe} detent.keys k ON k.space = p.value ->> 0 AND k.key = p.value ->> 1;

-- name: last_jobs_of_task
-- Indexes: primary key of keys, jobs_task.
SELECT k.job_id FROM {texts:spaces} s {probe} detent.keys k ON k.space = s.value AND k.key = CAST(:task_id AS text)
UNION ALL
SELECT id FROM (SELECT id FROM detent.jobs WHERE task_id = CAST(:task_id AS text) AND task_attempt IS NOT NULL
  ORDER BY task_attempt DESC LIMIT 1) r;

-- name: next_attempt
-- Index: jobs_task.
SELECT coalesce(max(task_attempt), 0) + 1 FROM detent.job_list WHERE task_id = :task_id AND task_attempt IS NOT NULL;

-- name: move_to_lane
UPDATE detent.jobs SET lane = :lane WHERE id = :id;

-- name: lane_version
SELECT value FROM detent.lane_version;

-- name: raise_lane_version
UPDATE detent.lane_version SET value = value + 1;

-- name: lane_groups
SELECT id, contract, queue, job_type FROM detent.lane_groups;

-- name: lane_names
SELECT contract, queue, job_type FROM detent.lane_groups WHERE {where} ORDER BY queue, job_type LIMIT :limit;

-- name: tenant_names
SELECT DISTINCT tenant_id FROM detent.lane_parties LIMIT :limit;

-- name: add_lane_group
INSERT INTO detent.lane_groups (contract, queue, job_type) VALUES (:contract, :queue, :job_type) ON CONFLICT DO NOTHING;

-- name: find_lane_group
SELECT id FROM detent.lane_groups WHERE contract = :contract AND queue = :queue AND job_type = :job_type;

-- name: add_lane_party
INSERT INTO detent.lane_parties (tenant_id, limit_key) VALUES (:tenant_id, :limit_key) ON CONFLICT DO NOTHING;

-- name: find_lane_party
SELECT id FROM detent.lane_parties WHERE tenant_id = :tenant_id AND limit_key = :limit_key;

-- name: add_edge
INSERT INTO detent.edges (event, source, target) VALUES (:event, :source, :target) ON CONFLICT DO NOTHING;

-- name: find_edge
SELECT id FROM detent.edges WHERE event = :event AND source = :source AND target = :target;

-- name: edges
SELECT id, event, source, target FROM detent.edges;

-- name: states
SELECT id, contract, status FROM detent.states ORDER BY id;

-- name: add_actor
INSERT INTO detent.actors (name) VALUES (:name) ON CONFLICT DO NOTHING;

-- name: find_actor
SELECT id FROM detent.actors WHERE name = :name;

-- name: paused_parties
SELECT p.id FROM detent.lane_parties p JOIN detent.pauses AS pauses ON pauses.kind = 'tenant' AND pauses.name = p.tenant_id;

-- name: events
SELECT job_id, seq, event, source, target, at, actor, execution_no, retries, data FROM detent.event_list
WHERE job_id = :job_id ORDER BY seq;

-- name: notes
SELECT job_id, seq, name, at, actor, execution_no, data FROM detent.notes WHERE job_id = :job_id ORDER BY n;

-- name: last_events
-- Newest first, below a sequence number. Index: primary key.
SELECT job_id, seq, event, source, target, at, actor, execution_no, retries, data FROM detent.event_list
WHERE job_id = :job_id AND seq < :below ORDER BY seq DESC LIMIT :limit;

-- name: last_notes
-- Newest first, below a number. Index: notes_job.
SELECT n, job_id, seq, name, at, actor, execution_no, data FROM detent.notes
WHERE job_id = :job_id AND n < :below ORDER BY n DESC LIMIT :limit;

-- name: signal
SELECT job_id, name, data, actor, at, timed_out FROM detent.signals WHERE job_id = :job_id AND name = :name;

-- name: signals_of
SELECT job_id, name, data, actor, at, timed_out FROM detent.signals WHERE job_id = :job_id ORDER BY at, name;

-- name: add_signal
INSERT INTO detent.signals (job_id, name, data, actor, at, timed_out) VALUES (:job_id, :name, :data, :actor, :at, :timed_out);

-- name: signals_after
-- One page along the primary key: the signals that their blocked job still waits for, and (last) the end of the page.
WITH page AS (
  SELECT job_id, name FROM detent.signals WHERE {where} ORDER BY job_id, name LIMIT :limit
)
SELECT p.job_id, p.name, 1 AS missed FROM page p CROSS JOIN detent.job_list j
WHERE j.id = p.job_id AND j.phase = 'blocked' AND j.wait_name = p.name AND j.wait_kind NOT IN ('approval', 'children')
UNION ALL
SELECT job_id, name, 0 FROM (SELECT job_id, name FROM page ORDER BY job_id DESC, name DESC LIMIT 1) e
ORDER BY missed DESC;

-- name: count_signals
SELECT count(*) FROM detent.signals WHERE job_id = :job_id;

-- name: step
SELECT job_id, name, digest, result, finished, execution_no, at, started_at FROM detent.steps WHERE job_id = :job_id AND name = :name;

-- name: steps
SELECT job_id, name, digest, result, finished, execution_no, at, started_at FROM detent.steps WHERE job_id = :job_id ORDER BY at, name;

-- name: steps_page
-- By their start. Index: primary key, then a sort of the job's steps.
SELECT job_id, name, digest, CASE WHEN :results THEN result END, finished, execution_no, at, started_at FROM detent.steps
WHERE {where} ORDER BY started_at, name LIMIT :limit OFFSET :offset;

-- name: count_steps
SELECT count(*) FROM detent.steps WHERE job_id = :job_id;

-- name: put_step
INSERT INTO detent.steps (job_id, name, digest, result, finished, execution_no, at, started_at) VALUES (:job_id, :name, :digest, :result, :finished, :execution_no, :at,
  coalesce(CAST(:started_at AS bigint), CAST(:at AS bigint)))
ON CONFLICT (job_id, name) DO UPDATE SET result = excluded.result, finished = excluded.finished, at = excluded.at;

-- name: put_progress
-- Overwrites the progress of the job if the token holds it.
INSERT INTO detent.progress AS progress (job_id, execution_no, share, message, at)
SELECT id, execution_no, CAST(:share AS double precision), CAST(:message AS text), CAST(:now AS bigint) FROM detent.jobs
WHERE id = :job_id AND token = :token AND state & 3 = 1
ON CONFLICT (job_id) DO UPDATE SET execution_no = excluded.execution_no, share = excluded.share, message = excluded.message,
  at = excluded.at;

-- name: progress
SELECT job_id, execution_no, share, message, at FROM detent.progress WHERE job_id IN (SELECT {uuid:value} FROM {texts:ids});

-- name: progress_after
-- A page of reports in the order of their time, each with its job. Indexes: progress_at, primary keys.
SELECT p.job_id, p.execution_no, p.share, p.message, p.at, j.job_type, j.contract, j.queue, j.tenant_id,
  j.phase = 'leased' AND j.execution_no = p.execution_no
FROM (
  SELECT job_id, execution_no, share, message, at FROM detent.progress WHERE (at, job_id) > (:at, :job_id)
  ORDER BY at, job_id LIMIT :limit
) p {join_job:p.job_id} ORDER BY p.at, p.job_id;

-- name: add_log_lines
-- [n, at, level, logger, message] each, of the execution that the token holds.
INSERT INTO detent.log_lines (job_id, execution_no, n, at, level, logger, message)
SELECT j.id, j.execution_no, CAST(l.value ->> 0 AS integer), CAST(l.value ->> 1 AS bigint), l.value ->> 2, l.value ->> 3, l.value ->> 4
FROM detent.jobs j CROSS JOIN {rows:lines} l WHERE j.id = :job_id AND j.token = :token AND j.state & 3 = 1
ON CONFLICT DO NOTHING;

-- name: trim_log_lines
DELETE FROM detent.log_lines WHERE job_id = :job_id AND execution_no = :execution_no AND n < :first;

-- name: log_lines
-- After a position, oldest first. Index: primary key.
SELECT execution_no, n, at, level, logger, message FROM detent.log_lines
WHERE job_id = :job_id AND (execution_no, n) > (:execution_no, :n) ORDER BY execution_no, n LIMIT :limit;

-- name: last_log_lines
-- The newest lines, newest first. Index: primary key.
SELECT execution_no, n, at, level, logger, message FROM detent.log_lines
WHERE job_id = :job_id ORDER BY execution_no DESC, n DESC LIMIT :limit;

-- name: dead_letter
-- Locked: of two concurrent requeues or discards, the second sees the result of the first.
SELECT {dead_columns} FROM detent.dead_letters WHERE id = :id {for_update};

-- name: dead_letters_of
SELECT {dead_columns} FROM detent.dead_letters WHERE job_id IN (SELECT {uuid:value} FROM {texts:ids})
ORDER BY job_id, retries;

-- name: open_dead_letters
SELECT l.job_id, j.version FROM detent.dead_letters l JOIN detent.job_list j ON j.id = l.job_id
WHERE l.status = 'open' AND l.contract {any:SELECT value FROM {texts:contracts}};

-- name: put_dead_letter
INSERT INTO detent.dead_letters ({dead_columns}) VALUES ({dead_places})
ON CONFLICT (id) DO UPDATE SET status = excluded.status, updated_at = excluded.updated_at,
  requeued_as = excluded.requeued_as, proposed_by = excluded.proposed_by, proposed_reason = excluded.proposed_reason,
  proposed_with = excluded.proposed_with;

-- name: dead_letters
SELECT {dead_columns} FROM detent.dead_letters WHERE {where} ORDER BY id DESC LIMIT :limit;

-- name: dead_letters_by_id
SELECT {dead_columns} FROM detent.dead_letters WHERE id {any:SELECT value FROM {texts:ids}} ORDER BY id DESC;

-- name: dead_letter_window
-- As job_window: reads at most :scan dead letters along the primary key.
SELECT {dead_columns} FROM (SELECT * FROM detent.dead_letters WHERE id < :before AND id >= :lowest ORDER BY id DESC LIMIT :scan) AS looked
WHERE {where} ORDER BY id DESC LIMIT :limit;

-- name: dead_letter_window_end
SELECT id FROM (SELECT id FROM detent.dead_letters WHERE id < :before AND id >= :lowest ORDER BY id DESC LIMIT :scan) AS looked
ORDER BY id LIMIT 1;

-- name: dead_letter_window_groups
SELECT job_type, error_class, error_code, error_group,
  CASE WHEN created_at < :slots_from THEN -1 ELSE (created_at - :slots_from) / :slot_width END AS slot,
  count(*), count(proposed_by), min(proposed_by), max(proposed_by), min(created_at), max(created_at), max(id)
FROM (SELECT * FROM detent.dead_letters WHERE id < :before AND id >= :lowest ORDER BY id DESC LIMIT :scan) AS looked
WHERE {where} GROUP BY job_type, error_class, error_code, error_group, slot;

-- name: open_dead_letter_window
-- Index: dead_letters_open.
SELECT {dead_columns} FROM (SELECT * FROM detent.dead_letters WHERE status = 'open' AND id < :before AND id >= :lowest
  ORDER BY id DESC LIMIT :scan) AS looked WHERE {where} ORDER BY id DESC LIMIT :limit;

-- name: open_dead_letter_window_end
SELECT id FROM (SELECT id FROM detent.dead_letters WHERE status = 'open' AND id < :before AND id >= :lowest
  ORDER BY id DESC LIMIT :scan) AS looked ORDER BY id LIMIT 1;

-- name: open_dead_letter_window_groups
SELECT job_type, error_class, error_code, error_group,
  CASE WHEN created_at < :slots_from THEN -1 ELSE (created_at - :slots_from) / :slot_width END AS slot,
  count(*), count(proposed_by), min(proposed_by), max(proposed_by), min(created_at), max(created_at), max(id)
FROM (SELECT * FROM detent.dead_letters WHERE status = 'open' AND id < :before AND id >= :lowest ORDER BY id DESC LIMIT :scan)
  AS looked
WHERE {where} GROUP BY job_type, error_class, error_code, error_group, slot;

-- name: put_error_group
-- First seen: the row is never changed, so that failing jobs do not wait for each other.
INSERT INTO detent.error_groups (error_group, tenant_id, first_at) VALUES (:error_group, :tenant_id, :at)
ON CONFLICT (error_group, tenant_id) DO NOTHING;

-- name: error_first_seen
SELECT error_group, min(first_at) FROM detent.error_groups
WHERE error_group {any:SELECT value FROM {texts:groups}} AND {where} GROUP BY error_group;

-- name: put_job_error
INSERT INTO detent.job_errors (error_code, job_id) VALUES (:error_code, {uuid:CAST(:job_id AS text)})
ON CONFLICT (error_code, job_id) DO NOTHING;

-- name: drop_job_error
DELETE FROM detent.job_errors WHERE error_code = :error_code AND job_id = {uuid:CAST(:job_id AS text)};

-- name: prune_job_traces
-- Before the jobs are deleted: their rows name what to delete here.
DELETE FROM detent.job_traces WHERE (trace_id, job_id) IN (
  SELECT trace_id, id FROM detent.jobs WHERE id IN (SELECT {uuid:value} FROM {texts:ids}) AND trace_id IS NOT NULL);

-- name: prune_job_errors
DELETE FROM detent.job_errors WHERE (error_code, job_id) IN (
  SELECT error_code, id FROM detent.jobs WHERE id IN (SELECT {uuid:value} FROM {texts:ids}) AND error_code IS NOT NULL);

-- name: put_view
INSERT INTO detent.saved_views (tenant_id, person, page, name, query, saved_at)
VALUES (:tenant_id, :person, :page, :name, :query, :saved_at)
ON CONFLICT (tenant_id, person, page, name) DO UPDATE SET query = excluded.query, saved_at = excluded.saved_at;

-- name: views
SELECT tenant_id, person, page, name, query, saved_at FROM detent.saved_views
WHERE tenant_id = :tenant_id AND person = :person ORDER BY page, name;

-- name: drop_view
DELETE FROM detent.saved_views WHERE tenant_id = :tenant_id AND person = :person AND page = :page AND name = :name;

-- name: count_dead_letters
SELECT contract, count(*), count(proposed_by) FROM detent.dead_letters
WHERE {where} GROUP BY contract ORDER BY contract LIMIT :limit;

-- name: jobs
SELECT {columns} FROM detent.job_list AS looked WHERE {where} ORDER BY id DESC LIMIT :limit;

-- name: job_window
-- Reads at most :scan jobs along the primary key, so that a filter with few matches does not read the whole table.
SELECT {columns} FROM (SELECT * FROM detent.job_list WHERE id < :before AND id >= :lowest ORDER BY id DESC LIMIT :scan) AS looked
WHERE {where} ORDER BY id DESC LIMIT :limit;

-- name: job_window_end
SELECT id FROM (SELECT id FROM detent.job_list WHERE id < :before AND id >= :lowest ORDER BY id DESC LIMIT :scan) AS looked
ORDER BY id LIMIT 1;

-- name: job_window_of_parent
-- As job_window, of the children of one job. Index: jobs_children.
SELECT {columns} FROM (SELECT * FROM detent.job_list WHERE parent_id = :parent_id AND parent_id IS NOT NULL
  AND id < :before AND id >= :lowest ORDER BY id DESC LIMIT :scan) AS looked
WHERE {where} ORDER BY id DESC LIMIT :limit;

-- name: job_window_of_parent_end
SELECT id FROM (SELECT id FROM detent.jobs WHERE parent_id = :parent_id AND parent_id IS NOT NULL
  AND id < :before AND id >= :lowest ORDER BY id DESC LIMIT :scan) AS looked ORDER BY id LIMIT 1;

-- name: job_window_of_trace
-- As job_window, of the jobs of one trace: those in job_traces, and the job whose id (:own_id) is in the trace id.
SELECT {columns} FROM (SELECT j.* FROM (
  SELECT job_id FROM (SELECT job_id FROM detent.job_traces WHERE trace_id = :trace_id AND job_id < :before
    AND job_id >= :lowest ORDER BY job_id DESC LIMIT :scan) AS traced
  UNION ALL SELECT id FROM detent.jobs WHERE id = {uuid:CAST(:own_id AS text)} AND id < :before AND id >= :lowest
  ORDER BY 1 DESC LIMIT :scan) AS t {join_job:t.job_id}) AS looked
WHERE {where} ORDER BY id DESC LIMIT :limit;

-- name: job_window_of_trace_end
SELECT job_id FROM (
  SELECT job_id FROM (SELECT job_id FROM detent.job_traces WHERE trace_id = :trace_id AND job_id < :before
    AND job_id >= :lowest ORDER BY job_id DESC LIMIT :scan) AS traced
  UNION ALL SELECT id FROM detent.jobs WHERE id = {uuid:CAST(:own_id AS text)} AND id < :before AND id >= :lowest
  ORDER BY 1 DESC LIMIT :scan) AS t ORDER BY job_id LIMIT 1;

-- name: job_window_of_error
-- As job_window, of the jobs that ended with one error code.
SELECT {columns} FROM (SELECT j.* FROM (SELECT job_id FROM detent.job_errors WHERE error_code = :error_code
  AND job_id < :before AND job_id >= :lowest ORDER BY job_id DESC LIMIT :scan) AS t {join_job:t.job_id}) AS looked
WHERE {where} ORDER BY id DESC LIMIT :limit;

-- name: job_window_of_error_end
SELECT job_id FROM (SELECT job_id FROM detent.job_errors WHERE error_code = :error_code AND job_id < :before
  AND job_id >= :lowest ORDER BY job_id DESC LIMIT :scan) AS t ORDER BY job_id LIMIT 1;

-- name: children_of_jobs_below
-- Index: jobs_children.
SELECT 1 FROM detent.jobs WHERE parent_id IS NOT NULL AND parent_id < :parent_id LIMIT 1;

-- name: ids_between
SELECT id FROM detent.jobs WHERE id >= :first AND id <= :last ORDER BY id LIMIT :limit;

-- name: counts
SELECT s.contract, s.status, s.phase, CAST(sum(c.number) AS bigint)
FROM (SELECT state, count(*) AS number FROM detent.jobs GROUP BY state) c JOIN detent.states s ON s.id = c.state
GROUP BY s.contract, s.status, s.phase;

-- name: counts_of_tenant
SELECT s.contract, s.status, s.phase, CAST(sum(c.number) AS bigint)
FROM (SELECT state, count(*) AS number FROM detent.jobs
  WHERE lane & {party_mask} IN (SELECT id FROM detent.lane_parties WHERE tenant_id = :tenant) GROUP BY state) c
JOIN detent.states s ON s.id = c.state GROUP BY s.contract, s.status, s.phase;

-- name: dead_letters_of_tenant
SELECT status, count(*) FROM detent.dead_letters WHERE tenant_id = :tenant GROUP BY status;

-- name: dead_letter_counts
SELECT status, count(*) FROM detent.dead_letters GROUP BY status;

-- name: pause
INSERT INTO detent.pauses (kind, name, actor, reason, at) VALUES (:kind, :name, :actor, :reason, :now)
ON CONFLICT (kind, name) DO UPDATE SET actor = excluded.actor, reason = excluded.reason, at = excluded.at;

-- name: resume
DELETE FROM detent.pauses WHERE kind = :kind AND name = :name;

-- name: pauses
SELECT kind, name, actor, reason, at FROM detent.pauses ORDER BY kind, name;

-- name: add_audit
INSERT INTO detent.audit (at, actor, act, subject, tenant_id, reason, data) VALUES (:now, :actor, :act, :subject, :tenant_id, :reason, :data);

-- name: audit
-- Index for a subject: audit_subject.
SELECT n, at, actor, act, subject, tenant_id, reason, data FROM detent.audit WHERE {where} ORDER BY n DESC LIMIT :limit;

-- name: put_declaration
INSERT INTO detent.declarations (job_type, options, schema, declared_at) VALUES (:job_type, :options, :schema, :now)
ON CONFLICT (job_type) DO UPDATE SET options = excluded.options, schema = excluded.schema,
  declared_at = excluded.declared_at;

-- name: declarations
SELECT job_type, options, schema FROM detent.declarations;

-- name: put_worker
INSERT INTO detent.workers ({worker_columns}) VALUES ({worker_places})
ON CONFLICT (id) DO UPDATE SET host = excluded.host, pid = excluded.pid, version = excluded.version,
  queues = excluded.queues, job_types = excluded.job_types, slots = excluded.slots, busy = excluded.busy,
  state = excluded.state, started_at = excluded.started_at, seen_at = excluded.seen_at, lease = excluded.lease,
  blocked = excluded.blocked;

-- name: worker
SELECT {worker_columns} FROM detent.workers WHERE id = :id;

-- name: workers
SELECT {worker_columns} FROM detent.workers ORDER BY started_at, id;

-- name: drop_worker
DELETE FROM detent.workers WHERE id = :id;

-- name: schedules
SELECT {schedule_columns} FROM detent.schedules WHERE {where} ORDER BY id DESC LIMIT :limit;

-- name: schedules_matching
SELECT {schedule_columns} FROM detent.schedules WHERE id = :reference OR name = :reference ORDER BY id {for_update};

-- name: next_fire
-- Hot path, read by every sweep. Index: schedules_next.
SELECT coalesce(retry_at, next_fire_at) FROM detent.schedules WHERE next_fire_at IS NOT NULL
  AND contract {any:SELECT value FROM {texts:contracts}} ORDER BY coalesce(retry_at, next_fire_at) LIMIT 1;

-- name: due_schedules
-- Skips schedules that another process fires, so that several processes fire different ones. Index: schedules_next.
SELECT {schedule_columns} FROM detent.schedules WHERE next_fire_at IS NOT NULL AND coalesce(retry_at, next_fire_at) <= :now
  AND contract {any:SELECT value FROM {texts:contracts}}
ORDER BY coalesce(retry_at, next_fire_at) LIMIT :limit {for_update_skip_locked};

-- name: put_schedule
INSERT INTO detent.schedules ({schedule_columns}) VALUES ({schedule_places}) ON CONFLICT DO NOTHING;

-- name: change_schedule
-- Compare-and-set on version. Fires do not raise the version, so that an edit is not refused because of a fire.
UPDATE detent.schedules SET {decided}, next_fire_at = :next_fire_at, retry_at = NULL WHERE id = :id AND version = :before_version;

-- name: advance_schedules
-- Compare-and-set on next_fire_at: of all processes that read it as due, one advances it.
UPDATE detent.schedules AS schedules SET next_fire_at = r.next, retry_at = NULL, misfires = misfires + r.missed,
  last_misfire_at = coalesce(r.last_missed, last_misfire_at), fires = fires + r.made,
  overlapped = schedules.overlapped + r.overlapped, last_fire_at = coalesce(r.last_at, last_fire_at),
  last_job_id = coalesce(r.last_job, last_job_id), last_error = r.error
FROM (SELECT value ->> 'id' AS id, CAST(value ->> 'due' AS bigint) AS due, CAST(value ->> 'version' AS integer) AS version,
  CAST(value ->> 'next' AS bigint) AS next, CAST(value ->> 'missed' AS integer) AS missed,
  CAST(value ->> 'last_missed' AS bigint) AS last_missed, CAST(value ->> 'made' AS integer) AS made,
  CAST(value ->> 'overlapped' AS integer) AS overlapped, CAST(value ->> 'last_at' AS bigint) AS last_at,
  {uuid:value ->> 'last_job'} AS last_job, value ->> 'error' AS error FROM {rows:rows}) r
WHERE schedules.id = r.id AND schedules.version = r.version AND next_fire_at = r.due;

-- name: postpone_fires
-- The fires stay due, and are not tried again before retry_at.
UPDATE detent.schedules AS schedules SET retry_at = :retry_at, last_error = r.value ->> 'error' FROM {rows:rows} r
WHERE schedules.id = r.value ->> 'id' AND schedules.version = CAST(r.value ->> 'version' AS integer)
  AND next_fire_at = CAST(r.value ->> 'due' AS bigint);

-- name: add_fires
-- [schedule_id, fire_at, job_id, made_at] each. The primary key is the second guard: one job per fire, even if that
-- job has been pruned.
INSERT INTO detent.fires (schedule_id, fire_at, job_id, made_at)
SELECT value ->> 0, CAST(value ->> 1 AS bigint), {uuid:value ->> 2}, CAST(value ->> 3 AS bigint)
FROM {rows:rows} WHERE true ON CONFLICT DO NOTHING;

-- name: record_fires
UPDATE detent.schedules SET fires = fires + :made, overlapped = overlapped + :skipped,
  last_fire_at = coalesce(:last_at, last_fire_at), last_job_id = coalesce(:last_job, last_job_id), last_error = :error
WHERE id = :id;

-- name: drop_schedule
DELETE FROM detent.schedules WHERE id = :id;

-- name: fires
SELECT schedule_id, fire_at, job_id, made_at FROM detent.fires WHERE schedule_id = :schedule_id AND {where}
ORDER BY fire_at DESC LIMIT :limit;

-- name: old_fires
SELECT f.fire_at, j.id IS NOT NULL FROM detent.fires f LEFT JOIN detent.job_list j ON j.id = f.job_id
WHERE f.schedule_id = :schedule_id AND f.fire_at < :before ORDER BY f.fire_at LIMIT :limit;

-- name: drop_fires
DELETE FROM detent.fires WHERE schedule_id = :schedule_id AND fire_at <= :upto;

-- name: contracts
SELECT name, definition, carried FROM detent.contracts;

-- name: unfinished_statuses
-- Reads all jobs; only run when a status or an edge of a declared contract has gone.
SELECT DISTINCT status FROM detent.states
WHERE contract = :contract AND phase <> 'final' AND id IN (SELECT DISTINCT state FROM detent.jobs);

-- name: put_contract
INSERT INTO detent.contracts (name, definition, carried) VALUES (:name, :definition, :carried)
ON CONFLICT (name) DO UPDATE SET definition = excluded.definition, carried = excluded.carried;

-- name: pruning
SELECT position, beyond, passed, lap_at FROM detent.pruning WHERE scope = :scope;

-- name: put_pruning
-- Another process may have pruned further since this one has read the cursor: passed is never lowered.
INSERT INTO detent.pruning AS p (scope, position, beyond, passed, lap_at)
VALUES (:scope, :position, :beyond, :passed, :lap_at)
ON CONFLICT (scope) DO UPDATE SET position = excluded.position, beyond = excluded.beyond,
  passed = CASE WHEN p.passed > excluded.passed THEN p.passed ELSE excluded.passed END, lap_at = excluded.lap_at;

-- name: prune_candidates
-- The next jobs along the primary key, and whether each may be deleted: it ended long enough ago (the first rule that
-- matches says when), its parent has ended, it has no open dead letter. Runs of a task are deleted from the first on,
-- hence the lowest attempt that is left. :rules is [contract, queue, job_type, status, ended before, number] each.
SELECT j.id, j.version, coalesce(j.phase = 'final' AND j.finished_at <= (
      SELECT CAST(r.value ->> 4 AS bigint) FROM {rows:rules} r WHERE (r.value ->> 0 IS NULL OR r.value ->> 0 = j.contract)
      AND (r.value ->> 1 IS NULL OR r.value ->> 1 = j.queue)
      AND (r.value ->> 2 IS NULL OR r.value ->> 2 = j.job_type)
      AND (r.value ->> 3 IS NULL OR r.value ->> 3 = j.status)
      ORDER BY CAST(r.value ->> 5 AS integer) LIMIT 1)
    AND NOT EXISTS (SELECT 1 FROM detent.job_list p WHERE p.phase <> 'final' AND p.id = {uuid_or_null:j.parent_id})
    AND NOT EXISTS (SELECT 1 FROM detent.dead_letters l WHERE l.job_id = j.id AND l.status = 'open'), false),
  CASE WHEN j.task_attempt IS NOT NULL THEN (
    SELECT min(r.task_attempt) FROM detent.job_list r WHERE r.task_id = j.task_id AND r.task_attempt IS NOT NULL) END
FROM detent.job_list j WHERE {where} ORDER BY j.id LIMIT :limit;

-- name: prune_events
DELETE FROM detent.events WHERE job_id IN (SELECT {uuid:value} FROM {texts:ids});

-- name: prune_notes
DELETE FROM detent.notes WHERE job_id IN (SELECT {uuid:value} FROM {texts:ids});

-- name: prune_steps
DELETE FROM detent.steps WHERE job_id IN (SELECT {uuid:value} FROM {texts:ids});

-- name: prune_progress
DELETE FROM detent.progress WHERE job_id IN (SELECT {uuid:value} FROM {texts:ids});

-- name: prune_log_lines
DELETE FROM detent.log_lines WHERE job_id IN (SELECT {uuid:value} FROM {texts:ids});

-- name: prune_signals
DELETE FROM detent.signals WHERE job_id IN (SELECT {uuid:value} FROM {texts:ids});

-- name: prune_dead_letters
DELETE FROM detent.dead_letters WHERE job_id IN (SELECT {uuid:value} FROM {texts:ids});

-- name: prune_outbox
DELETE FROM detent.outbox WHERE job_id IN (SELECT {uuid:value} FROM {texts:ids});

-- name: prune_fires
-- Only fires of deleted schedules. Other schedules keep theirs, so that no fire creates a second job.
DELETE FROM detent.fires AS fires WHERE job_id IN (SELECT {uuid:value} FROM {texts:ids})
  AND NOT EXISTS (SELECT 1 FROM detent.schedules s WHERE s.id = fires.schedule_id);

-- name: prune_keys
-- [space, key, job_id] triples. Index: primary key.
DELETE FROM detent.keys WHERE (space, key, job_id) IN (
  SELECT value ->> 0, value ->> 1, {uuid:value ->> 2} FROM {rows:owned});

-- name: keep_keys
-- The same keys, kept until :until.
UPDATE detent.keys SET kept_until = :until WHERE (space, key, job_id) IN (
  SELECT value ->> 0, value ->> 1, {uuid:value ->> 2} FROM {rows:owned});

-- name: drop_kept_keys
-- Index: keys_kept.
DELETE FROM detent.keys WHERE (space, key) IN (
  SELECT space, key FROM detent.keys WHERE kept_until <= :now ORDER BY kept_until LIMIT :limit);

-- name: verify_pruned
-- No pruned job has an id above this one.
SELECT max(passed) FROM detent.pruning;

-- name: verify_size
SELECT count(*) FROM detent.job_list WHERE {where};

-- name: verify_jobs
-- The columns that are compared with the log, in chunks by id.
SELECT id, contract, status, phase, version, execution_no, failures, retries, interruptions,
  created_at, updated_at, started_at, finished_at, token IS NOT NULL, worker IS NOT NULL, lease_until,
  due_at, ready, next_retry_at, wait_name, max_retries, dlq_id, requeued_from,
  tenant_id, idempotency_key, idempotency_scope, task_id, task_attempt, timeout_ms
FROM detent.job_list WHERE {where} ORDER BY id LIMIT :limit;

-- name: verify_events
-- The logs of a range of jobs. Index: unique (job_id, seq).
SELECT job_id, seq, at, data, event, source, target, execution_no, retries
FROM detent.event_list WHERE {where} ORDER BY job_id, seq;

-- name: verify_dead_letters
SELECT id, job_id, contract, tenant_id, retries FROM detent.dead_letters WHERE {where} ORDER BY job_id, retries;

-- name: verify_requeued
-- Jobs requeued from a dead letter, and the job that this dead letter names.
SELECT j.id, j.requeued_from, l.id, l.requeued_as
FROM detent.job_list j LEFT JOIN detent.dead_letters l ON l.id = j.requeued_from
WHERE j.requeued_from IS NOT NULL AND {where};

-- name: verify_fates
-- Dead letters by id, each with its job.
SELECT l.id, l.job_id, l.contract, l.status, l.requeued_as, j.id, j.dlq_id
FROM detent.dead_letters l LEFT JOIN detent.job_list j ON j.id = l.job_id WHERE {where} ORDER BY l.id LIMIT :limit;

-- name: verify_discards
-- Who proposed and who confirmed the discards of these dead letters.
SELECT subject, act, actor, reason FROM detent.audit
WHERE act IN ('dlq.discard.propose', 'dlq.discard') AND subject IN (SELECT l.id FROM detent.dead_letters l WHERE {where})
ORDER BY n;

-- name: verify_keys
SELECT k.space, k.key, k.job_id, j.id, j.contract, j.tenant_id, j.idempotency_key, j.idempotency_scope, j.task_id
FROM detent.keys k LEFT JOIN detent.job_list j ON j.id = k.job_id WHERE {where} AND (j.id IS NOT NULL OR k.kept_until IS NULL)
ORDER BY k.space, k.key LIMIT :limit;

-- name: verify_tasks
-- The numbered runs of tasks. Index: jobs_task.
SELECT task_id, task_attempt, id FROM detent.job_list WHERE task_attempt IS NOT NULL AND {where}
ORDER BY task_id, task_attempt, id LIMIT :limit;

-- name: verify_fired
-- The fires of a range of jobs. Index: fires_job.
SELECT schedule_id, fire_at, job_id FROM detent.fires WHERE {where};

-- name: verify_fires
SELECT f.schedule_id, f.fire_at, f.job_id, j.id, j.scheduled_at, j.idempotency_key
FROM detent.fires f LEFT JOIN detent.job_list j ON j.id = f.job_id WHERE {where} ORDER BY f.schedule_id, f.fire_at LIMIT :limit;

-- name: verify_notes
-- Notes that follow no event: the job does not exist, or seq is outside its versions.
SELECT n.job_id, n.seq, n.name, j.version FROM detent.notes n LEFT JOIN detent.job_list j ON j.id = n.job_id
WHERE {where} AND (j.id IS NULL OR n.seq < 1 OR n.seq > j.version) ORDER BY n.job_id, n.seq;

-- name: verify_steps
-- Steps without a job, of an execution that the job never had (a requeue may take over steps), or finished without
-- a result.
SELECT s.job_id, s.name, s.execution_no, j.execution_no FROM detent.steps s LEFT JOIN detent.job_list j ON j.id = s.job_id
WHERE {where} AND (j.id IS NULL OR s.execution_no < 1 OR (j.requeued_from IS NULL AND s.execution_no > j.execution_no)
  OR (s.finished AND s.result IS NULL)) ORDER BY s.job_id, s.name;

-- name: verify_signals
-- Signals without a job, and signals that their blocked job still waits for.
SELECT s.job_id, s.name, j.status FROM detent.signals s LEFT JOIN detent.job_list j ON j.id = s.job_id
WHERE {where} AND (j.id IS NULL OR (j.phase = 'blocked' AND j.wait_name = s.name AND j.wait_kind NOT IN ('approval', 'children')))
ORDER BY s.job_id, s.name;

-- name: verify_takeovers
-- Events of these names whose data lack old consumer, new consumer or message id.
SELECT e.job_id, e.seq, e.event FROM detent.event_list e WHERE {where} AND e.event {any:SELECT value FROM {texts:events}}
  AND NOT (coalesce(e.data, '') LIKE '%"old_consumer":"%' AND e.data LIKE '%"new_consumer":"%'
    AND e.data LIKE '%"message_id":"%') ORDER BY e.job_id, e.seq;

-- name: put_token
INSERT INTO detent.tokens ({token_columns}) VALUES ({token_places})
ON CONFLICT (id) DO UPDATE SET revoked_at = excluded.revoked_at;

-- name: token_by_digest
SELECT {token_columns} FROM detent.tokens WHERE digest = :digest;

-- name: token
SELECT {token_columns} FROM detent.tokens WHERE id = :id;

-- name: lock_token
SELECT {token_columns} FROM detent.tokens WHERE id = :id {for_update};

-- name: tokens
SELECT {token_columns} FROM detent.tokens ORDER BY created_at, id;

-- name: any_token
SELECT 1 FROM detent.tokens LIMIT 1;

-- name: put_session
INSERT INTO detent.sessions ({session_columns}) VALUES ({session_places});

-- name: drop_oldest_sessions
-- Index: sessions_of_token.
DELETE FROM detent.sessions WHERE token_id = :token_id AND digest NOT IN (
  SELECT digest FROM detent.sessions WHERE token_id = :token_id ORDER BY created_at DESC, digest LIMIT :keep);

-- name: session
SELECT {session_columns} FROM detent.sessions WHERE digest = :digest;

-- name: extend_session
UPDATE detent.sessions SET expires_at = :expires_at WHERE digest = :digest AND expires_at < :expires_at;

-- name: end_session
DELETE FROM detent.sessions WHERE digest = :digest;

-- name: end_sessions_of
-- Index: sessions_of_token.
DELETE FROM detent.sessions WHERE token_id = :token_id;

-- name: drop_expired_sessions
-- Index: sessions_expired.
DELETE FROM detent.sessions WHERE digest IN (
  SELECT digest FROM detent.sessions WHERE expires_at <= :now ORDER BY expires_at LIMIT :limit);

-- name: reserve_answer
INSERT INTO detent.http_responses (asker, key, digest, fresh_id, made_at, keep_until)
VALUES (:asker, :key, :digest, :fresh_id, :now, :until) ON CONFLICT DO NOTHING;

-- name: answer
SELECT digest, fresh_id, status, headers, answer, made_at FROM detent.http_responses WHERE asker = :asker AND key = :key;

-- name: take_over_answer
UPDATE detent.http_responses SET made_at = :now, keep_until = :until
WHERE asker = :asker AND key = :key AND made_at = :made_at AND status IS NULL;

-- name: keep_answer
UPDATE detent.http_responses SET status = :status, headers = :headers, answer = :answer, keep_until = :until
WHERE asker = :asker AND key = :key;

-- name: release_answer
-- made_at = 0 makes the request look abandoned, so that the next one takes it over.
UPDATE detent.http_responses SET made_at = 0 WHERE asker = :asker AND key = :key AND status IS NULL;

-- name: drop_old_answers
-- Index: http_responses_old.
DELETE FROM detent.http_responses WHERE (asker, key) IN (
  SELECT asker, key FROM detent.http_responses WHERE keep_until <= :now ORDER BY keep_until LIMIT :limit);

-- name: trim_answers
-- Of one caller, all but the newest :kept. Index: http_responses_of_caller.
DELETE FROM detent.http_responses WHERE asker = :asker AND key IN (
  SELECT key FROM detent.http_responses WHERE asker = :asker ORDER BY keep_until DESC LIMIT 1000 OFFSET :kept);

-- name: epoch
SELECT epoch FROM detent.stream_epochs WHERE name = :name;

-- name: put_epoch
INSERT INTO detent.stream_epochs AS stream_epochs (name, epoch, at) VALUES (:name, :epoch, :now)
ON CONFLICT (name) DO UPDATE SET epoch = excluded.epoch, at = excluded.at WHERE stream_epochs.epoch = :known;

-- name: put_outbox_items
-- [job_id, kind, version, due_at] each; a newer version of an item replaces the older one.
INSERT INTO detent.outbox (job_id, kind, version, due_at)
SELECT {uuid:value ->> 0}, value ->> 1, CAST(value ->> 2 AS integer), CAST(value ->> 3 AS bigint)
FROM {rows:outbox_items} WHERE true
ON CONFLICT (job_id, kind) DO UPDATE SET version = excluded.version, due_at = excluded.due_at;

-- name: count_outbox_items
SELECT count(*) FROM detent.outbox;

-- name: verify_outbox_items
SELECT o.job_id, o.kind FROM detent.outbox o
WHERE {where} AND NOT EXISTS (SELECT 1 FROM detent.job_list j WHERE j.id = o.job_id) ORDER BY o.job_id, o.kind;
