-- The schema. Times are microseconds since 1970-01-01 UTC; JSON is text. `detent.` becomes the prefix `detent_`.

-- One row per migration that was run; the highest version counts.
CREATE TABLE detent.schema (version INTEGER NOT NULL) STRICT;

-- The statuses of all contracts, written when a contract is declared (ADR 0006).
-- id = contract * 16384 + number * 16 + reopens * 8 + retry_at * 4 + phase, so that the rules of table jobs need no join.
-- Phases: 0 claimable, 1 leased, 2 blocked, 3 final.
-- retry_at: jobs in this status have next_retry_at. reopens: a job that has ended so may be reopened.
CREATE TABLE detent.states (
  id       INTEGER PRIMARY KEY,
  contract TEXT NOT NULL,
  status   TEXT NOT NULL,
  phase    TEXT NOT NULL CHECK (phase = CASE id & 3 WHEN 0 THEN 'claimable' WHEN 1 THEN 'leased' WHEN 2 THEN 'blocked'
    ELSE 'final' END),
  retry_at INTEGER NOT NULL CHECK (retry_at = (id & 4 = 4)),
  reopens  INTEGER NOT NULL CHECK (reopens = (id & 8 = 8)),
  UNIQUE (contract, status, id)
) STRICT;
-- The transitions that events name: ids instead of three texts. source is '' for the first event of a job.
CREATE TABLE detent.edges (
  id     INTEGER PRIMARY KEY,
  event  TEXT NOT NULL,
  source TEXT NOT NULL,
  target TEXT NOT NULL,
  UNIQUE (event, source, target)
) STRICT;
-- Workers and people that changed jobs: ids instead of texts in jobs and events.
CREATE TABLE detent.actors (
  id   INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE
) STRICT;

-- One row per job. Read it through the view job_list, which shows names instead of numbers.
CREATE TABLE detent.jobs (
  -- identity
  id                TEXT NOT NULL UNIQUE,
  n                 INTEGER PRIMARY KEY,
  -- order of claims: contract, queue, job type, tenant and limit key, see lanes.py
  lane              INTEGER NOT NULL,
  -- state and counters; ready: it may be claimed
  state             INTEGER NOT NULL,
  ready             INTEGER NOT NULL CHECK (ready IN (0, 1)),
  version           INTEGER NOT NULL CHECK (version >= 1),
  execution_no      INTEGER NOT NULL DEFAULT 0 CHECK (execution_no >= 0),
  failures          INTEGER NOT NULL DEFAULT 0 CHECK (failures BETWEEN 0 AND max_retries + 1),
  retries           INTEGER NOT NULL DEFAULT 0 CHECK (retries BETWEEN 0 AND failures),
  interruptions     INTEGER NOT NULL DEFAULT 0 CHECK (interruptions >= 0),
  losses            INTEGER NOT NULL DEFAULT 0 CHECK (losses >= 0),
  max_retries       INTEGER NOT NULL CHECK (max_retries >= 0),
  priority          INTEGER NOT NULL,
  wait_parked       INTEGER NOT NULL DEFAULT 0 CHECK (wait_parked = 0 OR wait_parked = 1 AND wait_name IS NOT NULL),
  -- times
  created_at        INTEGER NOT NULL,
  updated_at        INTEGER NOT NULL CHECK (updated_at >= created_at),
  due_at            INTEGER,
  started_at        INTEGER CHECK ((started_at IS NOT NULL) = (execution_no > 0)),
  finished_at       INTEGER,
  -- lease
  lease_until       INTEGER,
  worker            INTEGER,
  token             TEXT,
  -- request and result
  payload           TEXT NOT NULL CHECK (json_valid(payload) AND json_type(payload) = 'object'),
  result            TEXT CHECK (json_valid(result)),
  -- what few jobs have: NULL costs one byte, and none at the end of the row
  timeout_ms        INTEGER CHECK (timeout_ms > 0),
  backoff           TEXT,
  -- NULL stands for 'trace-' and the job's id
  trace_id          TEXT,
  traceparent       TEXT,
  idempotency_key   TEXT,
  idempotency_scope TEXT,
  task_id           TEXT,
  task_attempt      INTEGER CHECK (task_attempt >= 1),
  schedule_type     TEXT,
  scheduled_at      INTEGER,
  parent_id         TEXT,
  requeued_from     TEXT,
  -- NULL stands for the job's own id
  effect_root       TEXT,
  -- A job that has not started by its deadline ends; see docs/guides/limits.md.
  deadline_at       INTEGER,
  next_retry_at     INTEGER CHECK (next_retry_at IS NULL OR next_retry_at = due_at),
  first_failed_at   INTEGER,
  error_code        TEXT,
  error_message     TEXT,
  error_counts      TEXT CHECK (json_valid(error_counts)),
  wait_name         TEXT CHECK ((wait_name IS NULL) = (wait_kind IS NULL)),
  wait_kind         TEXT,
  cancel_requested  TEXT CHECK (json_valid(cancel_requested)),
  dlq_id            TEXT,
  -- The rules that tie columns to the phase and to the flags of the state.
  CHECK (CASE state & 3
    WHEN 0 THEN due_at IS NOT NULL AND coalesce(worker, lease_until, finished_at, result, wait_name) IS NULL
    WHEN 1 THEN worker IS NOT NULL AND lease_until IS NOT NULL AND token IS NOT NULL AND ready = 0
      AND coalesce(finished_at, result, wait_name) IS NULL
    WHEN 2 THEN ready = 0 AND coalesce(worker, lease_until, finished_at, result) IS NULL
    ELSE finished_at IS NOT NULL AND ready = 0
      AND coalesce(worker, lease_until, wait_name, cancel_requested) IS NULL END),
  CHECK ((next_retry_at IS NOT NULL) = (state & 4 = 4))
) STRICT;

-- AFTER: a BEFORE trigger makes SQLite look up every row a second time.
CREATE TRIGGER detent.jobs_state_insert AFTER INSERT ON detent.jobs
  WHEN NOT EXISTS (SELECT 1 FROM detent.states WHERE id = NEW.state)
BEGIN
  SELECT RAISE(ABORT, 'jobs: no contract has such a state');
END;
CREATE TRIGGER detent.jobs_state_update AFTER UPDATE OF state, version ON detent.jobs
  WHEN OLD.state & 3 = 3 OR OLD.state >> 14 <> NEW.state >> 14
    OR NOT EXISTS (SELECT 1 FROM detent.states WHERE id = NEW.state)
BEGIN
  SELECT RAISE(ABORT, 'jobs: no contract has such a state')
  WHERE NOT EXISTS (SELECT 1 FROM detent.states WHERE id = NEW.state);
  SELECT RAISE(ABORT, 'jobs: a job keeps its contract') WHERE OLD.state >> 14 <> NEW.state >> 14;
  -- The status may have become one that reopens since the job got there.
  SELECT RAISE(ABORT, 'jobs: an end is final')
  WHERE OLD.state & 3 = 3 AND NOT EXISTS (
    SELECT 1 FROM detent.states o JOIN detent.states n USING (contract, status) WHERE o.id = OLD.state AND n.reopens = 1);
END;
-- Columns that describe a job never change. Of its lane only the rank does: a wrong lane would change the order of claims.
CREATE TRIGGER detent.jobs_fixed BEFORE UPDATE OF n, id, priority, payload, created_at ON detent.jobs
BEGIN
  SELECT RAISE(ABORT, 'jobs: what a job is made of does not change');
END;
CREATE TRIGGER detent.jobs_lane BEFORE UPDATE OF lane ON detent.jobs
  WHEN NEW.lane <> (CASE WHEN NEW.losses >= 2 THEN 255 ELSE 100 - NEW.priority END << 55) + (OLD.lane & 36028797018963967)
BEGIN
  SELECT RAISE(ABORT, 'jobs: what a job is made of does not change');
END;

-- Claimable jobs in the order of claims; see ADR 0003. Jobs that are due at the same time follow by n.
CREATE INDEX detent.jobs_ready ON detent.jobs (lane, due_at) WHERE ready = 1;
-- Jobs that become claimable (phase 0) or wake up (phase 2) at due_at.
CREATE INDEX detent.jobs_later ON detent.jobs (state & 3, due_at) WHERE ready = 0 AND due_at IS NOT NULL AND state & 1 = 0;
-- Leases by expiry time.
CREATE INDEX detent.jobs_leased ON detent.jobs (lease_until) WHERE lease_until IS NOT NULL;
-- The numbered runs of a task, for contracts that have them.
CREATE UNIQUE INDEX detent.jobs_task ON detent.jobs (task_id, task_attempt) WHERE task_attempt IS NOT NULL;
-- Deadlines of jobs that have not started.
CREATE INDEX detent.jobs_deadline ON detent.jobs (deadline_at) WHERE deadline_at IS NOT NULL AND state & 1 = 0;
-- Child jobs by parent.
CREATE INDEX detent.jobs_children ON detent.jobs (parent_id, id) WHERE parent_id IS NOT NULL;
-- Jobs that wait for an approval, requested by a handler or required before the first run.
CREATE INDEX detent.jobs_asking ON detent.jobs (id)
  WHERE state & 3 = 2 AND (wait_kind = 'approval' OR wait_kind IS NULL AND due_at IS NULL);

-- One row per status change, read through the view event_list. Numbers are in commit order and are never used twice.
CREATE TABLE detent.events (
  n            INTEGER PRIMARY KEY,
  job_id       TEXT NOT NULL,
  seq          INTEGER NOT NULL CHECK (seq >= 1),
  edge         INTEGER NOT NULL,
  at           INTEGER NOT NULL,
  -- contract, queue, job type and tenant of the job, so that events are counted without a join
  lane         INTEGER NOT NULL,
  actor        INTEGER,
  execution_no INTEGER NOT NULL,
  retries      INTEGER NOT NULL,
  data         TEXT,
  UNIQUE (job_id, seq)
) STRICT;
-- Readers of the tail remember the last number, so pruning the newest event must not free it: a row without an edge keeps
-- it. AUTOINCREMENT would write one more page with every commit.
CREATE TRIGGER detent.events_last AFTER DELETE ON detent.events
  WHEN OLD.edge <> 0 AND OLD.n > coalesce((SELECT max(n) FROM detent.events), 0)
BEGIN
  DELETE FROM detent.events WHERE job_id = '' AND seq < OLD.n;
  INSERT INTO detent.events (n, job_id, seq, edge, at, lane, execution_no, retries) VALUES (OLD.n, '', OLD.n, 0, OLD.at, 0, 0, 0);
END;

CREATE TABLE detent.notes (
  n            INTEGER PRIMARY KEY,
  job_id       TEXT NOT NULL,
  seq          INTEGER NOT NULL,
  name         TEXT NOT NULL,
  at           INTEGER NOT NULL,
  actor        TEXT,
  execution_no INTEGER NOT NULL,
  data         TEXT
) STRICT;
CREATE INDEX detent.notes_job ON detent.notes (job_id, n);

CREATE TABLE detent.dead_letters (
  id              TEXT PRIMARY KEY NOT NULL,
  job_id          TEXT NOT NULL,
  tenant_id       TEXT NOT NULL,
  contract        TEXT NOT NULL,
  job_type        TEXT NOT NULL,
  queue           TEXT NOT NULL,
  error_class     TEXT,
  error_code      TEXT NOT NULL,
  error_message   TEXT,
  payload         TEXT NOT NULL,
  context         TEXT NOT NULL,
  retries         INTEGER NOT NULL,
  status          TEXT NOT NULL CHECK (status IN ('open', 'requeued', 'discarded')),
  first_failed_at INTEGER NOT NULL,
  created_at      INTEGER NOT NULL,
  updated_at      INTEGER NOT NULL,
  requeued_as     TEXT CHECK ((requeued_as IS NOT NULL) = (status = 'requeued')),
  proposed_by     TEXT,
  proposed_reason TEXT,
  proposed_with   TEXT,
  -- see core.job.error_group
  error_group     TEXT NOT NULL,
  UNIQUE (job_id, retries)
) STRICT;
CREATE INDEX detent.dead_letters_open ON detent.dead_letters (id) WHERE status = 'open';

CREATE TABLE detent.signals (
  job_id TEXT NOT NULL,
  name   TEXT NOT NULL,
  data   TEXT NOT NULL,
  actor  TEXT,
  at     INTEGER NOT NULL,
  timed_out INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (job_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE detent.steps (
  job_id       TEXT NOT NULL,
  name         TEXT NOT NULL,
  digest       TEXT NOT NULL,
  result       TEXT,
  finished     INTEGER NOT NULL,
  execution_no INTEGER NOT NULL,
  at           INTEGER NOT NULL,
  started_at   INTEGER NOT NULL,
  PRIMARY KEY (job_id, name)
) STRICT, WITHOUT ROWID;

-- The last progress that an execution reported: one row per job, overwritten. The event stream reads it by time.
CREATE TABLE detent.progress (
  job_id       TEXT PRIMARY KEY NOT NULL,
  execution_no INTEGER NOT NULL,
  share        REAL NOT NULL,
  message      TEXT NOT NULL,
  at           INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX detent.progress_at ON detent.progress (at, job_id);

-- The last log lines of each execution of a job that captures logs. n counts the lines of an execution from 1.
CREATE TABLE detent.log_lines (
  job_id       TEXT NOT NULL,
  execution_no INTEGER NOT NULL,
  n            INTEGER NOT NULL,
  at           INTEGER NOT NULL,
  level        TEXT NOT NULL,
  logger       TEXT NOT NULL,
  message      TEXT NOT NULL,
  PRIMARY KEY (job_id, execution_no, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE detent.keys (
  space      TEXT NOT NULL,
  key        TEXT NOT NULL,
  job_id     TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  kept_until INTEGER,
  PRIMARY KEY (space, key)
) STRICT, WITHOUT ROWID;
-- Idempotency keys that are kept after their job was pruned, by the time they may be deleted.
CREATE INDEX detent.keys_kept ON detent.keys (kept_until) WHERE kept_until IS NOT NULL;

-- The position of pruning along the primary key, one row per selection of jobs.
CREATE TABLE detent.pruning (
  scope    TEXT PRIMARY KEY NOT NULL,
  position TEXT NOT NULL,
  beyond   TEXT NOT NULL,
  passed   TEXT NOT NULL,
  lap_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE detent.audit (
  n         INTEGER PRIMARY KEY,
  at        INTEGER NOT NULL,
  actor     TEXT NOT NULL,
  act       TEXT NOT NULL,
  subject   TEXT NOT NULL,
  tenant_id TEXT,
  reason    TEXT,
  data      TEXT
) STRICT;

-- Interned parts of a lane (see lanes.py); ids are never reused.
CREATE TABLE detent.lane_groups (
  id       INTEGER PRIMARY KEY,
  contract TEXT NOT NULL,
  queue    TEXT NOT NULL,
  job_type TEXT NOT NULL,
  UNIQUE (contract, queue, job_type)
) STRICT;
CREATE TABLE detent.lane_parties (
  id        INTEGER PRIMARY KEY,
  tenant_id TEXT NOT NULL,
  limit_key TEXT NOT NULL,
  UNIQUE (tenant_id, limit_key)
) STRICT;

CREATE TABLE detent.pauses (
  kind   TEXT NOT NULL CHECK (kind IN ('queue', 'job_type', 'tenant')),
  name   TEXT NOT NULL,
  actor  TEXT NOT NULL,
  reason TEXT,
  at     INTEGER NOT NULL,
  PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

-- Workers; one without a heartbeat for three leases counts as gone.
CREATE TABLE detent.workers (
  id         TEXT PRIMARY KEY NOT NULL,
  host       TEXT NOT NULL,
  pid        INTEGER NOT NULL,
  version    TEXT NOT NULL,
  queues     TEXT,
  job_types  TEXT NOT NULL,
  slots      INTEGER NOT NULL,
  busy       INTEGER NOT NULL,
  state      TEXT NOT NULL,
  started_at INTEGER NOT NULL,
  seen_at    INTEGER NOT NULL,
  lease      INTEGER NOT NULL,
  blocked    TEXT  -- JSON while a handler blocks its event loop
) STRICT, WITHOUT ROWID;

-- Declared contracts.
CREATE TABLE detent.contracts (
  name       TEXT PRIMARY KEY NOT NULL,
  definition TEXT NOT NULL,
  carried    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Raised when groups, parties, pauses or limits change, so that claims refresh their lane cache.
CREATE TABLE detent.lane_version (one INTEGER PRIMARY KEY CHECK (one = 1), value INTEGER NOT NULL) STRICT;
INSERT INTO detent.lane_version VALUES (1, 1);

-- Views for people and tools: names instead of numbers; the same columns as on Postgres. Subqueries and not joins, so
-- that SQLite reads a view on the right side of a LEFT JOIN through the indexes of its table.
CREATE VIEW detent.job_list AS
SELECT j.id, (SELECT s.contract FROM detent.states s WHERE s.id = j.state) AS contract,
  (SELECT g.job_type FROM detent.lane_groups g WHERE g.id = j.lane >> 31 & 16777215) AS job_type,
  (SELECT g.queue FROM detent.lane_groups g WHERE g.id = j.lane >> 31 & 16777215) AS queue,
  (SELECT p.tenant_id FROM detent.lane_parties p WHERE p.id = j.lane & 2147483647) AS tenant_id,
  (SELECT s.status FROM detent.states s WHERE s.id = j.state) AS status,
  CASE j.state & 3 WHEN 0 THEN 'claimable' WHEN 1 THEN 'leased' WHEN 2 THEN 'blocked' ELSE 'final' END AS phase,
  j.version, j.payload, j.created_at, j.updated_at, j.due_at, j.ready, j.priority,
  (SELECT p.limit_key FROM detent.lane_parties p WHERE p.id = j.lane & 2147483647) AS limit_key,
  j.max_retries, j.timeout_ms, j.backoff, j.execution_no, j.failures, j.retries, j.interruptions, j.losses, j.token,
  (SELECT a.name FROM detent.actors a WHERE a.id = j.worker) AS worker, j.lease_until, j.result, j.error_code,
  j.error_message, j.error_counts, j.next_retry_at, j.wait_name, j.wait_kind, j.wait_parked, j.cancel_requested,
  j.idempotency_key, j.idempotency_scope, j.task_id, j.task_attempt, j.schedule_type, j.scheduled_at,
  coalesce(j.trace_id, 'trace-' || j.id) AS trace_id,
  j.traceparent, j.parent_id, j.dlq_id, j.requeued_from, coalesce(j.effect_root, j.id) AS effect_root,
  j.first_failed_at, j.started_at, j.finished_at, j.deadline_at, j.lane, j.state
FROM detent.jobs j;
CREATE VIEW detent.event_list AS
SELECT e.n, e.job_id, e.seq, d.event, nullif(d.source, '') AS source, d.target, e.at,
  (SELECT a.name FROM detent.actors a WHERE a.id = e.actor) AS actor, e.execution_no, e.retries, e.data, e.lane, e.edge
FROM detent.events e LEFT JOIN detent.edges d ON d.id = e.edge WHERE e.edge <> 0;
-- The jobs that workers hold.
CREATE VIEW detent.lease_list AS SELECT * FROM detent.job_list WHERE lease_until IS NOT NULL;
