-- The schema, continued: schedules, access, observability, limits, children and approvals.

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
  backoff         TEXT,
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
  role       TEXT NOT NULL CHECK (role IN ('worker', 'producer', 'viewer', 'operator', 'reviewer', 'admin')),
  tenant_id  TEXT,
  payloads   INTEGER NOT NULL CHECK (payloads IN (0, 1)),
  created_at INTEGER NOT NULL,
  created_by TEXT NOT NULL,
  expires_at INTEGER,
  revoked_at INTEGER,
  roles TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(roles)),
  queues TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(queues)),
  job_types TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(job_types)),
  -- who knows the secret besides the owner
  shared_with TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(shared_with))
) STRICT, WITHOUT ROWID;

-- Sessions of the dashboard: digests of the cookie and of the key that each request sends with it. expires_at moves with
-- each use, ends_at does not.
CREATE TABLE detent.sessions (
  digest     TEXT PRIMARY KEY NOT NULL,
  key_digest TEXT NOT NULL,
  token_id   TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  ends_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX detent.sessions_expired ON detent.sessions (expires_at);
CREATE INDEX detent.sessions_of_token ON detent.sessions (token_id, created_at);

-- HTTP responses kept for idempotency keys; status is NULL while the request is running. `answer` is JSON with ids
-- instead of jobs, schedules and dead letters: no payloads, no secrets.
CREATE TABLE detent.http_responses (
  asker      TEXT NOT NULL,
  key        TEXT NOT NULL,
  digest     TEXT NOT NULL,
  fresh_id   TEXT NOT NULL,
  status     INTEGER,
  headers    TEXT,
  answer     TEXT,
  made_at    INTEGER NOT NULL,
  keep_until INTEGER NOT NULL,
  PRIMARY KEY (asker, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX detent.http_responses_old ON detent.http_responses (keep_until);
CREATE INDEX detent.http_responses_of_caller ON detent.http_responses (asker, keep_until);

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
  acknowledged_by TEXT,
  acknowledged_at INTEGER,
  PRIMARY KEY (rule, subject)
) STRICT, WITHOUT ROWID;

-- While a silence lasts, sinks are not notified of matching alerts. subject '' matches every subject of the rule.
CREATE TABLE detent.alert_silences (
  id         TEXT PRIMARY KEY NOT NULL,
  rule       TEXT NOT NULL,
  subject    TEXT NOT NULL,
  until      INTEGER NOT NULL,
  actor      TEXT NOT NULL,
  reason     TEXT,
  created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Subscriptions to events of jobs; position: the place in the log up to which events are queued.
-- old_secret: the one before the last change, signs too until old_secret_until.
CREATE TABLE detent.webhooks (
  id               TEXT PRIMARY KEY NOT NULL,
  name             TEXT NOT NULL,
  url              TEXT NOT NULL,
  secret           TEXT NOT NULL,
  tenant_id        TEXT,
  queue            TEXT,
  job_type         TEXT,
  contract         TEXT,
  events           TEXT NOT NULL,
  phases           TEXT NOT NULL,
  payloads         INTEGER NOT NULL,
  state            TEXT NOT NULL CHECK (state IN ('active', 'paused', 'disabled')),
  position         TEXT NOT NULL,
  created_by       TEXT NOT NULL,
  created_at       INTEGER NOT NULL,
  failures         INTEGER NOT NULL,
  failing_since    INTEGER,
  retry_at         INTEGER,
  last_error       TEXT,
  old_secret       TEXT,
  old_secret_until INTEGER
) STRICT, WITHOUT ROWID;

-- Messages to alert sinks and webhooks, pending and ended. sink: the name of a sink or the id of a webhook; rule and
-- subject: of the alert, or the event and its job. due_at is null after the last attempt.
CREATE TABLE detent.deliveries (
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
CREATE INDEX detent.deliveries_due ON detent.deliveries (sink, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX detent.deliveries_order ON detent.deliveries (sink, subject, id) WHERE due_at IS NOT NULL;
CREATE INDEX detent.deliveries_sink ON detent.deliveries (sink, id);

-- The job types that workers declare: options and JSON schema of the payload, as the last worker started with them.
CREATE TABLE detent.declarations (
  job_type    TEXT PRIMARY KEY NOT NULL,
  options     TEXT NOT NULL,
  schema      TEXT,
  declared_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

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

-- Children of jobs, and approvals requested by running jobs.

-- Events to process for a parent, written in the transaction of the change: a child has ended, or (child_id NULL) the
-- parent was cancelled and its children must be cancelled. Deleted when processed.
CREATE TABLE detent.child_events (
  n         INTEGER PRIMARY KEY,
  parent_id TEXT NOT NULL,
  child_id  TEXT,
  failed    INTEGER NOT NULL
) STRICT;
CREATE INDEX detent.child_events_child ON detent.child_events (parent_id, child_id);
CREATE INDEX detent.child_events_failed ON detent.child_events (parent_id) WHERE failed;

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
  shared_with TEXT,
  PRIMARY KEY (job_id, name, person)
) STRICT, WITHOUT ROWID;

-- What has a time series of its own: all jobs, a queue, a job type, a tenant; and a lane group, which has totals only. The
-- number of each kind is bounded: later ones share the subject with the name ''.
CREATE TABLE detent.series_subjects (
  id   INTEGER PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('all', 'queue', 'job_type', 'tenant', 'group')),
  name TEXT NOT NULL,
  UNIQUE (kind, name)
) STRICT;
-- Throughput and latency by subject in slots of `width` seconds; slots of each width are kept for a time of its own. Width 0:
-- since the beginning, in slot 0. waits, runs: histograms, `bucket:number` separated by spaces; see engine/metrics/buckets.py.
-- waited, ran: the sums, in microseconds.
CREATE TABLE detent.series (
  width     INTEGER NOT NULL,
  subject   INTEGER NOT NULL,
  slot      INTEGER NOT NULL,
  submitted INTEGER NOT NULL,
  succeeded INTEGER NOT NULL,
  failed    INTEGER NOT NULL,
  retried   INTEGER NOT NULL,
  waited    INTEGER NOT NULL,
  ran       INTEGER NOT NULL,
  waits     TEXT NOT NULL,
  runs      TEXT NOT NULL,
  PRIMARY KEY (width, subject, slot)
) STRICT, WITHOUT ROWID;

-- Deadlines for jobs of schedules, and a retry time for fires that a quota refused.

-- Schedules by the time of their next fire or retry.
CREATE INDEX detent.schedules_next ON detent.schedules (coalesce(retry_at, next_fire_at)) WHERE next_fire_at IS NOT NULL;

-- What lists of jobs and dead letters search by. Rows are written only if there is something to find.

-- The jobs of a trace. A job whose trace id contains its own id has no row.
CREATE TABLE detent.job_traces (
  trace_id TEXT NOT NULL,
  job_id   TEXT NOT NULL,
  PRIMARY KEY (trace_id, job_id)
) STRICT, WITHOUT ROWID;
-- The jobs that ended with an error.
CREATE TABLE detent.job_errors (
  error_code TEXT NOT NULL,
  job_id     TEXT NOT NULL,
  PRIMARY KEY (error_code, job_id)
) STRICT, WITHOUT ROWID;
-- When a tenant had the first dead letter of an error group; kept when its dead letters are deleted.
CREATE TABLE detent.error_groups (
  error_group TEXT NOT NULL,
  tenant_id   TEXT NOT NULL,
  first_at    INTEGER NOT NULL,
  PRIMARY KEY (error_group, tenant_id)
) STRICT, WITHOUT ROWID;
-- Filters of lists that people saved. tenant_id: of the person's token, '' if it has none.
CREATE TABLE detent.saved_views (
  tenant_id TEXT NOT NULL,
  person    TEXT NOT NULL,
  page      TEXT NOT NULL,
  name      TEXT NOT NULL,
  query     TEXT NOT NULL,
  saved_at  INTEGER NOT NULL,
  PRIMARY KEY (tenant_id, person, page, name)
) STRICT, WITHOUT ROWID;
