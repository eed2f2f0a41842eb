-- Event counts, alerts and their deliveries, commands to workers, expired leases, trace context.

-- The lane gives contract, queue, job type and tenant of a job, so that events are counted without a join.
ALTER TABLE events ADD COLUMN lane bigint;
-- Notes are counted in commit order too, see ADR 0007. Notes older than this column have NULL and are not counted.
ALTER TABLE notes ADD COLUMN xid bigint;
ALTER TABLE notes ALTER COLUMN xid SET DEFAULT pg_current_xact_id()::text::bigint;
CREATE INDEX notes_xid ON notes USING brin (xid) WITH (pages_per_range = 16, autosummarize = on);
-- The W3C trace context of the submit.
ALTER TABLE jobs ADD COLUMN traceparent text;

-- The position up to which each log is counted. version is raised when pruning has counted events after it.
CREATE TABLE tails (
  log      text PRIMARY KEY,
  position bigint NOT NULL,
  version  bigint NOT NULL
);

-- Counts of events and notes. party is 0 where counts are not split by tenant.
CREATE TABLE tallies (
  log        text NOT NULL,
  lane_group bigint NOT NULL,
  party      bigint NOT NULL,
  source     text NOT NULL,
  event      text NOT NULL,
  target     text NOT NULL,
  number     bigint NOT NULL,
  PRIMARY KEY (log, lane_group, party, source, event, target)
);
-- The same by time slot, for the last hours only.
CREATE TABLE tally_slots (
  slot       bigint NOT NULL,
  log        text NOT NULL,
  lane_group bigint NOT NULL,
  party      bigint NOT NULL,
  source     text NOT NULL,
  event      text NOT NULL,
  target     text NOT NULL,
  number     bigint NOT NULL,
  PRIMARY KEY (slot, log, lane_group, party, source, event, target)
);

-- When a periodic task that only one process has to run was run last.
CREATE TABLE turns (
  name text PRIMARY KEY,
  at   bigint NOT NULL
);

CREATE TABLE alerts (
  rule        text NOT NULL,
  subject     text NOT NULL,
  state       text NOT NULL,
  severity    text NOT NULL,
  value       double precision NOT NULL,
  summary     text NOT NULL,
  since       bigint NOT NULL,
  fired_at    bigint,
  clear_since bigint,
  resolved_at bigint CHECK ((resolved_at IS NOT NULL) = (state = 'resolved')),
  updated_at  bigint NOT NULL,
  episode     integer NOT NULL,
  version     bigint NOT NULL,
  PRIMARY KEY (rule, subject)
);

-- Alert messages to sinks, pending and delivered; written in the transaction that changes the alert.
CREATE TABLE alert_deliveries (
  id           text PRIMARY KEY,
  rule         text NOT NULL,
  subject      text NOT NULL,
  sink         text NOT NULL,
  body         text NOT NULL,
  created_at   bigint NOT NULL,
  due_at       bigint,
  attempts     integer NOT NULL,
  delivered_at bigint,
  last_error   text
);
CREATE INDEX alert_deliveries_due ON alert_deliveries (due_at) WHERE due_at IS NOT NULL;

-- A command to one worker, which its heartbeat reads.
CREATE TABLE worker_orders (
  worker text PRIMARY KEY,
  act    text NOT NULL CHECK (act IN ('drain', 'stop')),
  actor  text NOT NULL,
  reason text,
  at     bigint NOT NULL
);

-- One row per lease that expired while a worker held the job.
CREATE TABLE losses (
  job_id       uuid NOT NULL,
  execution_no integer NOT NULL,
  worker       text NOT NULL,
  job_type     text NOT NULL,
  queue        text NOT NULL,
  contract     text NOT NULL,
  tenant_id    text NOT NULL,
  seen_at      bigint,
  lease_until  bigint NOT NULL,
  at           bigint NOT NULL,
  charged      boolean NOT NULL,
  given_up     boolean NOT NULL,
  target       text NOT NULL,
  PRIMARY KEY (job_id, execution_no)
);
CREATE INDEX losses_at ON losses (at);
