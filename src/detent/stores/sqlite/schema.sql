-- The schema. Times are microseconds since 1970-01-01 UTC; JSON is text. `detent.` becomes the prefix `detent_`.

-- One row per migration that was run; the highest version counts.
CREATE TABLE detent.schema (version INTEGER NOT NULL) STRICT;

CREATE TABLE detent.jobs (
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
  lane              INTEGER NOT NULL,
  -- The W3C trace context of the submit.
  traceparent TEXT,
  -- A job that has not started by its deadline ends; see docs/limits.md.
  deadline_at INTEGER,
  losses INTEGER NOT NULL DEFAULT 0 CHECK (losses >= 0)
) STRICT;

-- The statuses of all contracts, written when a contract is declared; the triggers check jobs against it (ADR 0006).
CREATE TABLE detent.statuses (
  contract TEXT NOT NULL,
  status   TEXT NOT NULL,
  phase    TEXT NOT NULL,
  retry_at INTEGER NOT NULL,
  reopens  INTEGER NOT NULL,
  PRIMARY KEY (contract, status)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER detent.jobs_contract_insert BEFORE INSERT ON detent.jobs BEGIN
  SELECT RAISE(ABORT, 'jobs: the contract has no such status in this phase, or next_retry_at is not its own')
  WHERE NOT EXISTS (SELECT 1 FROM detent.statuses s WHERE s.contract = NEW.contract AND s.status = NEW.status
    AND s.phase = NEW.phase AND s.retry_at = (NEW.next_retry_at IS NOT NULL));
END;
CREATE TRIGGER detent.jobs_contract_update BEFORE UPDATE OF status, phase, next_retry_at ON detent.jobs BEGIN
  SELECT RAISE(ABORT, 'jobs: the contract has no such status in this phase, or next_retry_at is not its own')
  WHERE NOT EXISTS (SELECT 1 FROM detent.statuses s WHERE s.contract = NEW.contract AND s.status = NEW.status
    AND s.phase = NEW.phase AND s.retry_at = (NEW.next_retry_at IS NOT NULL));
END;
CREATE TRIGGER detent.jobs_ended BEFORE UPDATE OF status, phase, version ON detent.jobs WHEN OLD.phase = 'final' BEGIN
  SELECT RAISE(ABORT, 'jobs: an end is final')
  WHERE NOT EXISTS (SELECT 1 FROM detent.statuses s WHERE s.contract = OLD.contract AND s.status = OLD.status AND s.reopens = 1);
END;

-- Claimable jobs in the order of claims; see ADR 0003.
CREATE INDEX detent.jobs_ready ON detent.jobs (lane, due_at, id) WHERE ready = 1;
-- Jobs that become claimable or wake up at due_at.
CREATE INDEX detent.jobs_later ON detent.jobs (phase, due_at)
  WHERE ready = 0 AND due_at IS NOT NULL AND phase IN ('claimable', 'blocked');
-- Leases by expiry time.
CREATE INDEX detent.jobs_leased ON detent.jobs (lease_until) WHERE phase = 'leased';
-- The numbered runs of a task, for contracts that have them.
CREATE UNIQUE INDEX detent.jobs_task ON detent.jobs (task_id, task_attempt) WHERE task_attempt IS NOT NULL;

-- AUTOINCREMENT: readers of the tail remember the last number, so pruning the newest events must not free it.
CREATE TABLE detent.events (
  n            INTEGER PRIMARY KEY AUTOINCREMENT,
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
  -- The lane gives contract, queue, job type and tenant of a job, so that events are counted without a join.
  lane INTEGER,
  UNIQUE (job_id, seq)
) STRICT;

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
  UNIQUE (job_id, retries)
) STRICT;

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
  PRIMARY KEY (job_id, name)
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
  lease      INTEGER NOT NULL
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

-- Schedules and their fires.

CREATE TABLE detent.schedules (
  id              TEXT PRIMARY KEY NOT NULL,
  tenant_id       TEXT NOT NULL,
  name            TEXT NOT NULL,
  kind            TEXT NOT NULL CHECK (kind IN ('at', 'cron', 'every')),
  expression      TEXT NOT NULL,
  timezone        TEXT NOT NULL,
  anchor          INTEGER NOT NULL,
  starts_at       INTEGER,
  ends_at         INTEGER,
  jitter          INTEGER NOT NULL CHECK (jitter >= 0),
  misfire         TEXT NOT NULL CHECK (misfire IN ('skip', 'once', 'all')),
  misfire_limit   INTEGER NOT NULL CHECK (misfire_limit >= 1),
  misfire_grace   INTEGER NOT NULL CHECK (misfire_grace >= 0),
  overlap         TEXT NOT NULL CHECK (overlap IN ('allow', 'skip', 'cancel')),
  job_type        TEXT NOT NULL,
  payload         TEXT NOT NULL CHECK (json_valid(payload) AND json_type(payload) = 'object'),
  contract        TEXT NOT NULL,
  queue           TEXT NOT NULL,
  priority        INTEGER NOT NULL,
  max_retries     INTEGER,
  timeout_ms      INTEGER,
  limit_key       TEXT NOT NULL,
  declared        TEXT,
  paused_at       INTEGER CHECK (paused_at IS NULL OR next_fire_at IS NULL),
  version         INTEGER NOT NULL CHECK (version >= 1),
  created_at      INTEGER NOT NULL,
  updated_at      INTEGER NOT NULL,
  next_fire_at    INTEGER,
  last_fire_at    INTEGER,
  last_job_id     TEXT CHECK ((last_job_id IS NULL) = (last_fire_at IS NULL)),
  fires           INTEGER NOT NULL CHECK (fires >= 0),
  misfires        INTEGER NOT NULL CHECK (misfires >= 0),
  last_misfire_at INTEGER,
  overlapped        INTEGER NOT NULL CHECK (overlapped >= 0),
  last_error      TEXT,
  deadline INTEGER CHECK (deadline > 0),
  retry_at INTEGER CHECK (retry_at IS NULL OR next_fire_at IS NOT NULL),
  UNIQUE (tenant_id, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX detent.schedules_name ON detent.schedules (name);

-- One row per fire that created a job, so that no fire creates a second one.
CREATE TABLE detent.fires (
  schedule_id TEXT NOT NULL,
  fire_at     INTEGER NOT NULL,
  job_id      TEXT NOT NULL,
  made_at     INTEGER NOT NULL,
  PRIMARY KEY (schedule_id, fire_at)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX detent.fires_job ON detent.fires (job_id);

-- Audit entries of one subject.
CREATE INDEX detent.audit_subject ON detent.audit (subject, n);

-- Access tokens, HTTP responses kept for idempotency keys, and event numbers that are never reused.

CREATE TABLE detent.tokens (
  id         TEXT PRIMARY KEY NOT NULL,
  digest     TEXT NOT NULL UNIQUE,
  person     TEXT NOT NULL,
  role       TEXT NOT NULL CHECK (role IN ('viewer', 'operator', 'reviewer', 'admin')),
  tenant_id  TEXT,
  payloads   INTEGER NOT NULL CHECK (payloads IN (0, 1)),
  created_at INTEGER NOT NULL,
  created_by TEXT NOT NULL,
  expires_at INTEGER,
  revoked_at INTEGER,
  roles TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(roles))
) STRICT, WITHOUT ROWID;

-- HTTP responses kept for idempotency keys; status is NULL while the request is running.
CREATE TABLE detent.http_responses (
  asker      TEXT NOT NULL,
  key        TEXT NOT NULL,
  digest     TEXT NOT NULL,
  fresh_id   TEXT NOT NULL,
  status     INTEGER,
  media      TEXT,
  body       BLOB,
  made_at    INTEGER NOT NULL,
  keep_until INTEGER NOT NULL,
  PRIMARY KEY (asker, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX detent.http_responses_old ON detent.http_responses (keep_until);

-- Messages to publish on the stream (claimable jobs, dead letters); deleted once they are published.
CREATE TABLE detent.outbox (
  job_id  text NOT NULL,
  kind    text NOT NULL CHECK (kind IN ('task', 'letter')),
  version integer NOT NULL,
  due_at  integer NOT NULL,
  PRIMARY KEY (job_id, kind)
) WITHOUT ROWID;
CREATE INDEX detent.outbox_due ON detent.outbox (due_at, job_id);

-- The last epoch of each stream server; another epoch on the server means that it has lost its data.
CREATE TABLE detent.stream_epochs (
  name  text PRIMARY KEY,
  epoch text NOT NULL,
  at    integer NOT NULL
) WITHOUT ROWID;

-- Event counts, alerts and their deliveries, commands to workers, expired leases, trace context.

-- The position up to which each log is counted. version is raised when pruning has counted events after it.
CREATE TABLE detent.tails (
  log      TEXT PRIMARY KEY NOT NULL,
  position INTEGER NOT NULL,
  version  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Counts of events and notes. party is 0 where counts are not split by tenant.
CREATE TABLE detent.tallies (
  log        TEXT NOT NULL,
  lane_group INTEGER NOT NULL,
  party      INTEGER NOT NULL,
  source     TEXT NOT NULL,
  event      TEXT NOT NULL,
  target     TEXT NOT NULL,
  number     INTEGER NOT NULL,
  PRIMARY KEY (log, lane_group, party, source, event, target)
) STRICT, WITHOUT ROWID;
-- The same by time slot, for the last hours only.
CREATE TABLE detent.tally_slots (
  slot       INTEGER NOT NULL,
  log        TEXT NOT NULL,
  lane_group INTEGER NOT NULL,
  party      INTEGER NOT NULL,
  source     TEXT NOT NULL,
  event      TEXT NOT NULL,
  target     TEXT NOT NULL,
  number     INTEGER NOT NULL,
  PRIMARY KEY (slot, log, lane_group, party, source, event, target)
) STRICT, WITHOUT ROWID;

-- When a periodic task that only one process has to run was run last.
CREATE TABLE detent.periodic_runs (
  name TEXT PRIMARY KEY NOT NULL,
  at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE detent.alerts (
  rule        TEXT NOT NULL,
  subject     TEXT NOT NULL,
  state       TEXT NOT NULL,
  severity    TEXT NOT NULL,
  value       REAL NOT NULL,
  summary     TEXT NOT NULL,
  since       INTEGER NOT NULL,
  fired_at    INTEGER,
  clear_since INTEGER,
  resolved_at INTEGER CHECK ((resolved_at IS NOT NULL) = (state = 'resolved')),
  updated_at  INTEGER NOT NULL,
  episode     INTEGER NOT NULL,
  version     INTEGER NOT NULL,
  PRIMARY KEY (rule, subject)
) STRICT, WITHOUT ROWID;

-- Alert messages to sinks, pending and delivered; written in the transaction that changes the alert.
CREATE TABLE detent.alert_deliveries (
  id           TEXT PRIMARY KEY NOT NULL,
  rule         TEXT NOT NULL,
  subject      TEXT NOT NULL,
  sink         TEXT NOT NULL,
  body         TEXT NOT NULL CHECK (json_valid(body)),
  created_at   INTEGER NOT NULL,
  due_at       INTEGER,
  attempts     INTEGER NOT NULL,
  delivered_at INTEGER,
  last_error   TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX detent.alert_deliveries_due ON detent.alert_deliveries (due_at) WHERE due_at IS NOT NULL;

-- A command to one worker, which its heartbeat reads.
CREATE TABLE detent.worker_commands (
  worker TEXT PRIMARY KEY NOT NULL,
  act    TEXT NOT NULL CHECK (act IN ('drain', 'stop')),
  actor  TEXT NOT NULL,
  reason TEXT,
  at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- One row per lease that expired while a worker held the job.
CREATE TABLE detent.losses (
  job_id       TEXT NOT NULL,
  execution_no INTEGER NOT NULL,
  worker       TEXT NOT NULL,
  job_type     TEXT NOT NULL,
  queue        TEXT NOT NULL,
  contract     TEXT NOT NULL,
  tenant_id    TEXT NOT NULL,
  seen_at      INTEGER,
  lease_until  INTEGER NOT NULL,
  at           INTEGER NOT NULL,
  charged      INTEGER NOT NULL,
  given_up     INTEGER NOT NULL,
  target       TEXT NOT NULL,
  PRIMARY KEY (job_id, execution_no)
) STRICT, WITHOUT ROWID;
CREATE INDEX detent.losses_at ON detent.losses (at);

-- Limits, tenant weights and quotas, priorities in use, deadlines.

-- Priorities and deadlines that jobs of this database use, so that claims do no work for unused ones.
CREATE TABLE detent.lane_marks (
  id   INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  UNIQUE (kind, name)
) STRICT;

-- Limits on concurrent jobs and on starts per period; '' matches any value.
CREATE TABLE detent.limits (
  id          INTEGER PRIMARY KEY,
  queue       TEXT NOT NULL,
  job_type    TEXT NOT NULL,
  tenant_id   TEXT NOT NULL,
  limit_key   TEXT NOT NULL,
  per         TEXT NOT NULL CHECK (per IN ('', 'queue', 'job_type', 'tenant_id', 'limit_key')),
  concurrency INTEGER CHECK (concurrency >= 1),
  rate        INTEGER CHECK (rate >= 1),
  period      INTEGER CHECK ((period IS NOT NULL) = (rate IS NOT NULL)),
  declared    TEXT,
  CHECK (concurrency IS NOT NULL OR rate IS NOT NULL),
  UNIQUE (queue, job_type, tenant_id, limit_key, per)
) STRICT;

-- The counter of one limit for one subject. taken only grows, so that a claim planned with an older value can compute
-- how much others have claimed since. spent: recent starts, for rate limits.
CREATE TABLE detent.meters (
  id         INTEGER PRIMARY KEY,
  limit_id   INTEGER NOT NULL,
  subject    TEXT NOT NULL,
  taken      INTEGER NOT NULL DEFAULT 0,
  spent      TEXT NOT NULL DEFAULT '',
  touched_at INTEGER NOT NULL,
  UNIQUE (limit_id, subject)
) STRICT;

-- Weight and quotas of a tenant.
CREATE TABLE detent.tenants (
  tenant_id   TEXT PRIMARY KEY NOT NULL,
  weight      INTEGER NOT NULL CHECK (weight >= 1),
  max_backlog INTEGER CHECK (max_backlog >= 0),
  max_payload INTEGER CHECK (max_payload >= 2)
) STRICT;

CREATE INDEX detent.jobs_deadline ON detent.jobs (deadline_at) WHERE deadline_at IS NOT NULL AND phase IN ('claimable', 'blocked');

-- Children of jobs, and approvals requested by running jobs.

-- Child jobs by parent.
CREATE INDEX detent.jobs_children ON detent.jobs (parent_id, id) WHERE parent_id IS NOT NULL;
-- Jobs that wait for an approval, requested by a handler or required before the first run.
CREATE INDEX detent.jobs_asking ON detent.jobs (id)
  WHERE phase = 'blocked' AND (wait_kind = 'approval' OR wait_kind IS NULL AND due_at IS NULL);

-- Events to process for a parent, written in the transaction of the change: a child has ended, or (child_id NULL) the
-- parent was cancelled and its children must be cancelled. Deleted when processed.
CREATE TABLE detent.child_events (
  n         INTEGER PRIMARY KEY,
  parent_id TEXT NOT NULL,
  child_id  TEXT,
  failed    INTEGER NOT NULL
) STRICT;
CREATE INDEX detent.child_events_child ON detent.child_events (parent_id, child_id);
CREATE INDEX detent.child_events_failed ON detent.child_events (parent_id) WHERE failed = 1;

-- The children a waiting parent waits for.
CREATE TABLE detent.awaited (
  parent_id TEXT NOT NULL,
  child_id  TEXT NOT NULL,
  wakes_on  TEXT NOT NULL CHECK (wakes_on IN ('end', 'failure', 'any')),
  PRIMARY KEY (parent_id, child_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE detent.approvals (
  job_id     TEXT NOT NULL,
  name       TEXT NOT NULL,
  summary    TEXT NOT NULL,
  about      TEXT NOT NULL,
  digest     TEXT NOT NULL,
  roles      TEXT NOT NULL,
  quorum     INTEGER NOT NULL CHECK (quorum >= 1),
  on_expiry  TEXT NOT NULL CHECK (on_expiry IN ('approve', 'reject', 'fail')),
  asked_at   INTEGER NOT NULL,
  deadline   INTEGER,
  decision   TEXT CHECK (decision IN ('approve', 'reject', 'fail')),
  decided_at INTEGER CHECK ((decided_at IS NULL) = (decision IS NULL)),
  expired    INTEGER NOT NULL CHECK (expired IN (0, 1) AND (expired = 0 OR decision IS NOT NULL)),
  PRIMARY KEY (job_id, name)
) STRICT, WITHOUT ROWID;

-- One vote per person and approval.
CREATE TABLE detent.votes (
  job_id   TEXT NOT NULL,
  name     TEXT NOT NULL,
  person   TEXT NOT NULL,
  approved INTEGER NOT NULL,
  reason   TEXT,
  roles    TEXT,
  at       INTEGER NOT NULL,
  PRIMARY KEY (job_id, name, person)
) STRICT, WITHOUT ROWID;

-- Time series in slots of ten seconds, for the charts of the last hour, day and week.
CREATE TABLE detent.series (
  slot      INTEGER PRIMARY KEY NOT NULL,
  submitted INTEGER NOT NULL,
  succeeded INTEGER NOT NULL,
  failed    INTEGER NOT NULL,
  retried   INTEGER NOT NULL,
  waits     INTEGER NOT NULL,
  waited    INTEGER NOT NULL,
  runs      INTEGER NOT NULL,
  ran       INTEGER NOT NULL
) STRICT;

-- Deadlines for jobs of schedules, and a retry time for fires that a quota refused.

-- Schedules by the time of their next fire or retry.
CREATE INDEX detent.schedules_next ON detent.schedules (coalesce(retry_at, next_fire_at)) WHERE next_fire_at IS NOT NULL;

-- The roles of a person, as approvals require them: a JSON list of names.

-- How many executions of a job were lost in a row. From two on the job is a suspect: it is claimed alone, from lanes of
-- its own with the rank 255, whatever its priority.

-- Columns that describe a job never change. Of its lane only the rank does: a wrong lane would change the order of claims.
CREATE TRIGGER detent.jobs_fixed
  BEFORE UPDATE OF id, contract, job_type, queue, tenant_id, priority, limit_key, payload, created_at ON detent.jobs
BEGIN
  SELECT RAISE(ABORT, 'jobs: what a job is made of does not change');
END;
CREATE TRIGGER detent.jobs_lane BEFORE UPDATE OF lane ON detent.jobs
  WHEN NEW.lane <> (CASE WHEN NEW.losses >= 2 THEN 255 ELSE 100 - NEW.priority END << 55) + (OLD.lane & 36028797018963967)
BEGIN
  SELECT RAISE(ABORT, 'jobs: what a job is made of does not change');
END;

-- Views for people and tools; the same names as on Postgres.
CREATE VIEW detent.job_list AS SELECT * FROM detent.jobs;
CREATE VIEW detent.event_list AS SELECT * FROM detent.events;
CREATE VIEW detent.lease_list AS SELECT * FROM detent.jobs WHERE phase = 'leased';
