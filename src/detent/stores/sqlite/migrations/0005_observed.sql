-- Event counts, alerts and their deliveries, commands to workers, expired leases, trace context.

-- The lane gives contract, queue, job type and tenant of a job, so that events are counted without a join.
ALTER TABLE events ADD COLUMN lane INTEGER;
-- The W3C trace context of the submit.
ALTER TABLE jobs ADD COLUMN traceparent TEXT;

-- The position up to which each log is counted. version is raised when pruning has counted events after it.
CREATE TABLE tails (
  log      TEXT PRIMARY KEY NOT NULL,
  position INTEGER NOT NULL,
  version  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Counts of events and notes. party is 0 where counts are not split by tenant.
CREATE TABLE tallies (
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
CREATE TABLE tally_slots (
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
CREATE TABLE turns (
  name TEXT PRIMARY KEY NOT NULL,
  at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE alerts (
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
CREATE TABLE alert_deliveries (
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
CREATE INDEX alert_deliveries_due ON alert_deliveries (due_at) WHERE due_at IS NOT NULL;

-- A command to one worker, which its heartbeat reads.
CREATE TABLE worker_orders (
  worker TEXT PRIMARY KEY NOT NULL,
  act    TEXT NOT NULL CHECK (act IN ('drain', 'stop')),
  actor  TEXT NOT NULL,
  reason TEXT,
  at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- One row per lease that expired while a worker held the job.
CREATE TABLE losses (
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
CREATE INDEX losses_at ON losses (at);
