-- The first schema. Times are microseconds since 1970-01-01 UTC; JSON is text.

CREATE TABLE jobs (
  id                TEXT PRIMARY KEY NOT NULL,
  contract          TEXT NOT NULL,
  job_type          TEXT NOT NULL,
  queue             TEXT NOT NULL,
  tenant_id         TEXT NOT NULL,
  status            TEXT NOT NULL,
  phase             TEXT NOT NULL CHECK (phase IN ('claimable', 'leased', 'blocked', 'final')),
  version           INTEGER NOT NULL CHECK (version >= 1),
  payload           TEXT NOT NULL CHECK (json_valid(payload) AND json_type(payload) = 'object'),
  created_at        INTEGER NOT NULL,
  updated_at        INTEGER NOT NULL CHECK (updated_at >= created_at),
  due_at            INTEGER CHECK (due_at IS NOT NULL OR phase <> 'claimable'),
  ready             INTEGER NOT NULL CHECK (ready IN (0, 1) AND (ready = 0 OR phase = 'claimable')),
  priority          INTEGER NOT NULL,
  limit_key         TEXT NOT NULL,
  max_retries       INTEGER NOT NULL CHECK (max_retries >= 0),
  timeout_ms        INTEGER CHECK (timeout_ms > 0),
  execution_no      INTEGER NOT NULL CHECK (execution_no >= 0),
  failures          INTEGER NOT NULL CHECK (failures BETWEEN 0 AND max_retries + 1),
  retries           INTEGER NOT NULL CHECK (retries BETWEEN 0 AND failures),
  interruptions     INTEGER NOT NULL CHECK (interruptions >= 0),
  token             TEXT CHECK (token IS NOT NULL OR phase <> 'leased'),
  worker            TEXT CHECK ((worker IS NOT NULL) = (phase = 'leased')),
  lease_until       INTEGER CHECK ((lease_until IS NOT NULL) = (phase = 'leased')),
  result            TEXT CHECK (result IS NULL OR (phase = 'final' AND json_valid(result))),
  error_code        TEXT,
  error_message     TEXT,
  error_counts      TEXT CHECK (error_counts IS NULL OR json_valid(error_counts)),
  next_retry_at     INTEGER CHECK (next_retry_at IS NULL OR next_retry_at = due_at),
  wait_name         TEXT CHECK (wait_name IS NULL OR phase = 'blocked'),
  wait_kind         TEXT CHECK ((wait_kind IS NULL) = (wait_name IS NULL)),
  wait_parked       INTEGER NOT NULL CHECK (wait_parked IN (0, 1) AND (wait_parked = 0 OR wait_name IS NOT NULL)),
  cancel_requested  TEXT CHECK (cancel_requested IS NULL OR (phase <> 'final' AND json_valid(cancel_requested))),
  idempotency_key   TEXT,
  idempotency_scope TEXT,
  task_id           TEXT,
  task_attempt      INTEGER CHECK (task_attempt >= 1),
  schedule_type     TEXT,
  scheduled_at      INTEGER,
  trace_id          TEXT,
  parent_id         TEXT,
  dlq_id            TEXT,
  requeued_from     TEXT,
  effect_root       TEXT,
  first_failed_at   INTEGER,
  started_at        INTEGER CHECK ((started_at IS NOT NULL) = (execution_no > 0)),
  finished_at       INTEGER CHECK ((finished_at IS NOT NULL) = (phase = 'final')),
  lane              INTEGER NOT NULL
) STRICT;

-- The statuses of all contracts, written when a contract is declared; the triggers check jobs against it (ADR 0006).
CREATE TABLE statuses (
  contract TEXT NOT NULL,
  status   TEXT NOT NULL,
  phase    TEXT NOT NULL,
  retry_at INTEGER NOT NULL,
  reopens  INTEGER NOT NULL,
  PRIMARY KEY (contract, status)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER jobs_contract_insert BEFORE INSERT ON jobs BEGIN
  SELECT RAISE(ABORT, 'jobs: the contract has no such status in this phase, or next_retry_at is not its own')
  WHERE NOT EXISTS (SELECT 1 FROM statuses s WHERE s.contract = NEW.contract AND s.status = NEW.status
    AND s.phase = NEW.phase AND s.retry_at = (NEW.next_retry_at IS NOT NULL));
END;
CREATE TRIGGER jobs_contract_update BEFORE UPDATE OF status, phase, next_retry_at ON jobs BEGIN
  SELECT RAISE(ABORT, 'jobs: the contract has no such status in this phase, or next_retry_at is not its own')
  WHERE NOT EXISTS (SELECT 1 FROM statuses s WHERE s.contract = NEW.contract AND s.status = NEW.status
    AND s.phase = NEW.phase AND s.retry_at = (NEW.next_retry_at IS NOT NULL));
END;
CREATE TRIGGER jobs_ended BEFORE UPDATE OF status, phase, version ON jobs WHEN OLD.phase = 'final' BEGIN
  SELECT RAISE(ABORT, 'jobs: an end is final')
  WHERE NOT EXISTS (SELECT 1 FROM statuses s WHERE s.contract = OLD.contract AND s.status = OLD.status AND s.reopens = 1);
END;

-- Columns that describe a job never change; a wrong lane would change the order of claims.
CREATE TRIGGER jobs_fixed
  BEFORE UPDATE OF id, contract, job_type, queue, tenant_id, priority, limit_key, payload, created_at, lane ON jobs
BEGIN
  SELECT RAISE(ABORT, 'jobs: what a job is made of does not change');
END;

-- Claimable jobs in the order of claims; see ADR 0003.
CREATE INDEX jobs_ready ON jobs (lane, due_at, id) WHERE ready = 1;
-- Jobs that become claimable or wake up at due_at.
CREATE INDEX jobs_later ON jobs (phase, due_at)
  WHERE ready = 0 AND due_at IS NOT NULL AND phase IN ('claimable', 'blocked');
-- Leases by expiry time.
CREATE INDEX jobs_leased ON jobs (lease_until) WHERE phase = 'leased';
-- The numbered runs of a task, for contracts that have them.
CREATE UNIQUE INDEX jobs_task ON jobs (task_id, task_attempt) WHERE task_attempt IS NOT NULL;

CREATE TABLE events (
  n            INTEGER PRIMARY KEY,
  job_id       TEXT NOT NULL,
  seq          INTEGER NOT NULL CHECK (seq >= 1),
  event        TEXT NOT NULL,
  source       TEXT CHECK ((source IS NULL) = (seq = 1)),
  target       TEXT NOT NULL,
  at           INTEGER NOT NULL,
  actor        TEXT,
  execution_no INTEGER NOT NULL,
  retries      INTEGER NOT NULL,
  data         TEXT,
  UNIQUE (job_id, seq)
) STRICT;

CREATE TABLE notes (
  n            INTEGER PRIMARY KEY,
  job_id       TEXT NOT NULL,
  seq          INTEGER NOT NULL,
  name         TEXT NOT NULL,
  at           INTEGER NOT NULL,
  actor        TEXT,
  execution_no INTEGER NOT NULL,
  data         TEXT
) STRICT;
CREATE INDEX notes_job ON notes (job_id, n);

CREATE TABLE dead_letters (
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
  UNIQUE (job_id, retries)
) STRICT;

CREATE TABLE signals (
  job_id TEXT NOT NULL,
  name   TEXT NOT NULL,
  data   TEXT NOT NULL,
  actor  TEXT,
  at     INTEGER NOT NULL,
  timed_out INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (job_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE steps (
  job_id       TEXT NOT NULL,
  name         TEXT NOT NULL,
  digest       TEXT NOT NULL,
  result       TEXT,
  finished     INTEGER NOT NULL,
  execution_no INTEGER NOT NULL,
  at           INTEGER NOT NULL,
  PRIMARY KEY (job_id, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE keys (
  space      TEXT NOT NULL,
  key        TEXT NOT NULL,
  job_id     TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  kept_until INTEGER,
  PRIMARY KEY (space, key)
) STRICT, WITHOUT ROWID;
-- Idempotency keys that are kept after their job was pruned, by the time they may be deleted.
CREATE INDEX keys_kept ON keys (kept_until) WHERE kept_until IS NOT NULL;

-- The position of pruning along the primary key, one row per selection of jobs.
CREATE TABLE pruning (
  scope    TEXT PRIMARY KEY NOT NULL,
  position TEXT NOT NULL,
  beyond   TEXT NOT NULL,
  passed   TEXT NOT NULL,
  lap_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
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
CREATE TABLE lane_groups (
  id       INTEGER PRIMARY KEY,
  contract TEXT NOT NULL,
  queue    TEXT NOT NULL,
  job_type TEXT NOT NULL,
  UNIQUE (contract, queue, job_type)
) STRICT;
CREATE TABLE lane_parties (
  id        INTEGER PRIMARY KEY,
  tenant_id TEXT NOT NULL,
  limit_key TEXT NOT NULL,
  UNIQUE (tenant_id, limit_key)
) STRICT;

CREATE TABLE pauses (
  kind   TEXT NOT NULL CHECK (kind IN ('queue', 'job_type', 'tenant')),
  name   TEXT NOT NULL,
  actor  TEXT NOT NULL,
  reason TEXT,
  at     INTEGER NOT NULL,
  PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

-- Workers; one without a heartbeat for three leases counts as gone.
CREATE TABLE workers (
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
  lease      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Declared contracts.
CREATE TABLE contracts (
  name       TEXT PRIMARY KEY NOT NULL,
  definition TEXT NOT NULL,
  carried    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Raised when groups, parties, pauses or limits change, so that claims refresh their lane cache.
CREATE TABLE lane_version (one INTEGER PRIMARY KEY CHECK (one = 1), value INTEGER NOT NULL) STRICT;
INSERT INTO lane_version VALUES (1, 1);
