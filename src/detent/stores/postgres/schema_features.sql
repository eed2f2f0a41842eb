-- The second part of the schema: what jobs do not need to be claimed and settled. See schema.sql.

-- Schedules and their fires.

CREATE TABLE detent.schedules (
  id              text COLLATE "C" PRIMARY KEY,
  tenant_id       text NOT NULL,
  name            text NOT NULL,
  kind            text NOT NULL CHECK (kind IN ('at', 'cron', 'every')),
  expression      text NOT NULL,
  timezone        text NOT NULL,
  anchor          bigint NOT NULL,
  starts_at       bigint,
  ends_at         bigint,
  jitter          bigint NOT NULL CHECK (jitter >= 0),
  misfire         text NOT NULL CHECK (misfire IN ('skip', 'once', 'all')),
  misfire_limit   integer NOT NULL CHECK (misfire_limit >= 1),
  misfire_grace   bigint NOT NULL CHECK (misfire_grace >= 0),
  overlap         text NOT NULL CHECK (overlap IN ('allow', 'skip', 'cancel')),
  job_type        text NOT NULL,
  payload         text NOT NULL,
  contract        text NOT NULL,
  queue           text NOT NULL,
  priority        integer NOT NULL,
  max_retries     integer,
  timeout_ms      bigint,
  limit_key       text NOT NULL,
  backoff         text,
  declared        text,
  paused_at       bigint CHECK (paused_at IS NULL OR next_fire_at IS NULL),
  version         integer NOT NULL CHECK (version >= 1),
  created_at      bigint NOT NULL,
  updated_at      bigint NOT NULL,
  next_fire_at    bigint,
  last_fire_at    bigint,
  last_job_id     uuid CHECK ((last_job_id IS NULL) = (last_fire_at IS NULL)),
  fires           bigint NOT NULL CHECK (fires >= 0),
  misfires        bigint NOT NULL CHECK (misfires >= 0),
  last_misfire_at bigint,
  overlapped        bigint NOT NULL CHECK (overlapped >= 0),
  last_error      text,
  deadline bigint CHECK (deadline > 0),
  retry_at bigint CHECK (retry_at IS NULL OR next_fire_at IS NOT NULL),
  UNIQUE (tenant_id, name)
);
CREATE INDEX schedules_name ON detent.schedules (name);

-- Schedules by the time of their next fire or retry.
CREATE INDEX schedules_next ON detent.schedules (coalesce(retry_at, next_fire_at)) WHERE next_fire_at IS NOT NULL;

-- One row per fire that created a job, so that no fire creates a second one.
CREATE TABLE detent.fires (
  schedule_id text NOT NULL,
  fire_at     bigint NOT NULL,
  job_id      uuid NOT NULL,
  made_at     bigint NOT NULL,
  PRIMARY KEY (schedule_id, fire_at)
);
CREATE UNIQUE INDEX fires_job ON detent.fires (job_id);

-- Audit entries of one subject.
CREATE INDEX audit_subject ON detent.audit (subject, n);

-- Access tokens, and HTTP responses kept for idempotency keys.

CREATE TABLE detent.tokens (
  id         text PRIMARY KEY,
  digest     text NOT NULL UNIQUE,
  person     text NOT NULL,
  role       text NOT NULL CHECK (role IN ('worker', 'producer', 'viewer', 'operator', 'reviewer', 'admin')),
  tenant_id  text,
  payloads   boolean NOT NULL,
  created_at bigint NOT NULL,
  created_by text NOT NULL,
  expires_at bigint,
  revoked_at bigint,
  roles text NOT NULL DEFAULT '[]',
  queues text NOT NULL DEFAULT '[]',
  job_types text NOT NULL DEFAULT '[]',
  -- who knows the secret besides the owner
  shared_with text NOT NULL DEFAULT '[]'
);

-- Sessions of the dashboard: digests of the cookie and of the key that each request sends with it. expires_at moves with
-- each use, ends_at does not.
CREATE TABLE detent.sessions (
  digest     text PRIMARY KEY,
  key_digest text NOT NULL,
  token_id   text NOT NULL,
  created_at bigint NOT NULL,
  expires_at bigint NOT NULL,
  ends_at    bigint NOT NULL
);
CREATE INDEX sessions_expired ON detent.sessions (expires_at);
CREATE INDEX sessions_of_token ON detent.sessions (token_id, created_at);

-- HTTP responses kept for idempotency keys; status is NULL while the request is running. `answer` is JSON with ids
-- instead of jobs, schedules and dead letters: no payloads, no secrets.
CREATE TABLE detent.http_responses (
  asker      text NOT NULL,
  key        text NOT NULL,
  digest     text NOT NULL,
  fresh_id   text NOT NULL,
  status     integer,
  headers    text,
  answer     text,
  made_at    bigint NOT NULL,
  keep_until bigint NOT NULL,
  PRIMARY KEY (asker, key)
);
CREATE INDEX http_responses_old ON detent.http_responses (keep_until);
CREATE INDEX http_responses_of_caller ON detent.http_responses (asker, keep_until);

-- Messages to publish on the stream (claimable jobs, dead letters); deleted once they are published.
CREATE TABLE detent.outbox (
  job_id  uuid NOT NULL,
  kind    text NOT NULL CHECK (kind IN ('task', 'letter')),
  version integer NOT NULL,
  due_at  bigint NOT NULL,
  PRIMARY KEY (job_id, kind)
);
CREATE INDEX outbox_due ON detent.outbox (due_at, job_id);

-- The last epoch of each stream server; another epoch on the server means that it has lost its data.
CREATE TABLE detent.stream_epochs (
  name  text PRIMARY KEY,
  epoch text NOT NULL,
  at    bigint NOT NULL
);

-- Event counts, alerts and their deliveries, commands to workers, expired leases, trace context.

CREATE INDEX notes_xid ON detent.notes USING brin (xid) WITH (pages_per_range = 16, autosummarize = on);

-- The position up to which each log is counted. version is raised when pruning has counted events after it.
CREATE TABLE detent.tails (
  log      text PRIMARY KEY,
  position bigint NOT NULL,
  version  bigint NOT NULL
);

-- Counts of events and notes. party is 0 where counts are not split by tenant.
CREATE TABLE detent.tallies (
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
CREATE TABLE detent.tally_slots (
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
CREATE TABLE detent.periodic_runs (
  name text PRIMARY KEY,
  at   bigint NOT NULL
);

CREATE TABLE detent.alerts (
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
  acknowledged_by text,
  acknowledged_at bigint,
  PRIMARY KEY (rule, subject)
);

-- While a silence lasts, sinks are not notified of matching alerts. subject '' matches every subject of the rule.
CREATE TABLE detent.alert_silences (
  id         text PRIMARY KEY,
  rule       text NOT NULL,
  subject    text NOT NULL,
  until      bigint NOT NULL,
  actor      text NOT NULL,
  reason     text,
  created_at bigint NOT NULL
);

-- Subscriptions to events of jobs; position: the place in the log up to which events are queued.
-- old_secret: the one before the last change, signs too until old_secret_until.
CREATE TABLE detent.webhooks (
  id               text PRIMARY KEY,
  name             text NOT NULL,
  url              text NOT NULL,
  secret           text NOT NULL,
  tenant_id        text,
  queue            text,
  job_type         text,
  contract         text,
  events           text NOT NULL,
  phases           text NOT NULL,
  payloads         boolean NOT NULL,
  state            text NOT NULL CHECK (state IN ('active', 'paused', 'disabled')),
  position         text NOT NULL,
  created_by       text NOT NULL,
  created_at       bigint NOT NULL,
  failures         integer NOT NULL,
  failing_since    bigint,
  retry_at         bigint,
  last_error       text,
  old_secret       text,
  old_secret_until bigint
);

-- Messages to alert sinks and webhooks, pending and ended. sink: the name of a sink or the id of a webhook; rule and
-- subject: of the alert, or the event and its job. due_at is null after the last attempt.
CREATE TABLE detent.deliveries (
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
CREATE INDEX deliveries_due ON detent.deliveries (sink, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX deliveries_order ON detent.deliveries (sink, subject, id) WHERE due_at IS NOT NULL;
CREATE INDEX deliveries_sink ON detent.deliveries (sink, id);

-- The job types that workers declare: options and JSON schema of the payload, as the last worker started with them.
CREATE TABLE detent.declarations (
  job_type    text PRIMARY KEY,
  options     text NOT NULL,
  schema      text,
  declared_at bigint NOT NULL
);

-- A command to one worker, which its heartbeat reads.
CREATE TABLE detent.worker_commands (
  worker text PRIMARY KEY,
  act    text NOT NULL CHECK (act IN ('drain', 'stop')),
  actor  text NOT NULL,
  reason text,
  at     bigint NOT NULL
);

-- One row per lease that expired while a worker held the job.
CREATE TABLE detent.losses (
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
CREATE INDEX losses_at ON detent.losses (at);

-- Limits, tenant weights and quotas, priorities in use, deadlines.

-- Priorities and deadlines that jobs of this database use, so that claims do no work for unused ones.
CREATE TABLE detent.lane_marks (
  id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind text NOT NULL,
  name text NOT NULL,
  UNIQUE (kind, name)
);

-- Limits on concurrent jobs and on starts per period; '' matches any value.
CREATE TABLE detent.limits (
  id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  queue       text NOT NULL,
  job_type    text NOT NULL,
  tenant_id   text NOT NULL,
  limit_key   text NOT NULL,
  per         text NOT NULL CHECK (per IN ('', 'queue', 'job_type', 'tenant_id', 'limit_key')),
  concurrency bigint CHECK (concurrency >= 1),
  rate        bigint CHECK (rate >= 1),
  period      bigint CHECK ((period IS NOT NULL) = (rate IS NOT NULL)),
  declared    text,
  CHECK (concurrency IS NOT NULL OR rate IS NOT NULL),
  UNIQUE (queue, job_type, tenant_id, limit_key, per)
);

-- The counter of one limit for one subject. taken only grows, so that a claim planned with an older value can compute
-- how much others have claimed since. spent: recent starts, for rate limits.
CREATE TABLE detent.meters (
  id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  limit_id   bigint NOT NULL,
  subject    text NOT NULL,
  taken      bigint NOT NULL DEFAULT 0,
  spent      text NOT NULL DEFAULT '',
  touched_at bigint NOT NULL,
  UNIQUE (limit_id, subject)
);

-- Weight and quotas of a tenant.
CREATE TABLE detent.tenants (
  tenant_id   text PRIMARY KEY NOT NULL,
  weight      bigint NOT NULL CHECK (weight >= 1),
  max_backlog bigint CHECK (max_backlog >= 0),
  max_payload bigint CHECK (max_payload >= 2)
);


-- Children of jobs, and approvals requested by running jobs.


-- Events to process for a parent, written in the transaction of the change: a child has ended, or (child_id NULL) the
-- parent was cancelled and its children must be cancelled. Deleted when processed.
CREATE TABLE detent.child_events (
  n         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  parent_id text NOT NULL,
  child_id  text,
  failed    boolean NOT NULL
);
CREATE INDEX child_events_child ON detent.child_events (parent_id, child_id);
CREATE INDEX child_events_failed ON detent.child_events (parent_id) WHERE failed;

-- The children a waiting parent waits for.
CREATE TABLE detent.awaited (
  parent_id text NOT NULL,
  child_id  text NOT NULL,
  wakes_on  text NOT NULL CHECK (wakes_on IN ('end', 'failure', 'any')),
  PRIMARY KEY (parent_id, child_id)
);

CREATE TABLE detent.approvals (
  job_id     uuid NOT NULL,
  name       text NOT NULL,
  summary    text NOT NULL,
  about      text NOT NULL,
  digest     text NOT NULL,
  roles      text NOT NULL,
  quorum     integer NOT NULL CHECK (quorum >= 1),
  on_expiry  text NOT NULL CHECK (on_expiry IN ('approve', 'reject', 'fail')),
  asked_at   bigint NOT NULL,
  deadline   bigint,
  decision   text CHECK (decision IN ('approve', 'reject', 'fail')),
  decided_at bigint CHECK ((decided_at IS NULL) = (decision IS NULL)),
  expired    boolean NOT NULL CHECK (NOT expired OR decision IS NOT NULL),
  PRIMARY KEY (job_id, name)
);

-- One vote per person and approval.
CREATE TABLE detent.votes (
  job_id   uuid NOT NULL,
  name     text NOT NULL,
  person   text NOT NULL,
  approved boolean NOT NULL,
  reason   text,
  roles    text,
  at       bigint NOT NULL,
  shared_with text,
  PRIMARY KEY (job_id, name, person)
);

-- What has a time series of its own: all jobs, a queue, a job type, a tenant; and a lane group, which has totals only. The
-- number of each kind is bounded: later ones share the subject with the name ''.
CREATE TABLE detent.series_subjects (
  id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind text NOT NULL CHECK (kind IN ('all', 'queue', 'job_type', 'tenant', 'group')),
  name text NOT NULL,
  UNIQUE (kind, name)
);
-- Throughput and latency by subject in slots of `width` seconds; slots of each width are kept for a time of its own. Width 0:
-- since the beginning, in slot 0. waits, runs: histograms, `bucket:number` separated by spaces; see engine/metrics/buckets.py.
-- waited, ran: the sums, in microseconds.
CREATE TABLE detent.series (
  width     integer NOT NULL,
  subject   bigint NOT NULL,
  slot      bigint NOT NULL,
  submitted bigint NOT NULL,
  succeeded bigint NOT NULL,
  failed    bigint NOT NULL,
  retried   bigint NOT NULL,
  waited    bigint NOT NULL,
  ran       bigint NOT NULL,
  waits     text NOT NULL,
  runs      text NOT NULL,
  PRIMARY KEY (width, subject, slot)
);

-- What lists of jobs and dead letters search by. Rows are written only if there is something to find.

-- The jobs of a trace. A job whose trace id contains its own id has no row.
CREATE TABLE detent.job_traces (
  trace_id text NOT NULL,
  job_id   uuid NOT NULL,
  PRIMARY KEY (trace_id, job_id)
);
-- The jobs that ended with an error.
CREATE TABLE detent.job_errors (
  error_code text NOT NULL,
  job_id     uuid NOT NULL,
  PRIMARY KEY (error_code, job_id)
);
-- When a tenant had the first dead letter of an error group; kept when its dead letters are deleted.
CREATE TABLE detent.error_groups (
  error_group text NOT NULL,
  tenant_id   text NOT NULL,
  first_at    bigint NOT NULL,
  PRIMARY KEY (error_group, tenant_id)
);
-- Filters of lists that people saved. tenant_id: of the person's token, '' if it has none.
CREATE TABLE detent.saved_views (
  tenant_id text NOT NULL,
  person    text NOT NULL,
  page      text NOT NULL,
  name      text NOT NULL,
  query     text NOT NULL,
  saved_at  bigint NOT NULL,
  PRIMARY KEY (tenant_id, person, page, name)
);
