-- The schema. Times are microseconds since 1970-01-01 UTC; JSON is text, because jsonb rewrites it.
-- `detent` is replaced by the name of the schema (?schema= in the URL, $DETENT_SCHEMA).

CREATE SCHEMA IF NOT EXISTS detent;

-- One row per migration that was run. A breaking migration also records its number as a negative one.
CREATE TABLE detent.schema (version integer NOT NULL);

-- Rules for one column are domains: their checks are cached, while the text of a CHECK of a table is parsed by every
-- statement that writes to it.
CREATE DOMAIN detent.counter AS integer CHECK (VALUE >= 0);
CREATE DOMAIN detent.ordinal AS integer CHECK (VALUE >= 1);
CREATE DOMAIN detent.milliseconds AS bigint CHECK (VALUE > 0);
CREATE DOMAIN detent.json_text AS text CHECK (json_typeof(VALUE::json) <> '');
CREATE DOMAIN detent.json_object AS text CHECK (json_typeof(VALUE::json) = 'object');
-- An id of table states; the constraint is written when a contract is declared.
CREATE DOMAIN detent.state AS integer;

-- The statuses of all contracts. id = number * 16 + reopens * 8 + retry_at * 4 + phase, so that the rules of table jobs
-- need no join. Phases: 0 claimable, 1 leased, 2 blocked, 3 final.
-- retry_at: jobs in this status have next_retry_at. reopens: a job that has ended so may be reopened.
CREATE TABLE detent.states (
  id       integer PRIMARY KEY,
  contract text NOT NULL,
  status   text NOT NULL,
  phase    text NOT NULL CHECK (phase = (ARRAY['claimable', 'leased', 'blocked', 'final'])[(id & 3) + 1]),
  retry_at boolean NOT NULL CHECK (retry_at = (id & 4 = 4)),
  reopens  boolean NOT NULL CHECK (reopens = (id & 8 = 8)),
  UNIQUE (contract, status, id)
);
-- The transitions that events name: ids instead of three texts. source is '' for the first event of a job.
CREATE TABLE detent.edges (
  id     integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  event  text NOT NULL,
  source text NOT NULL,
  target text NOT NULL,
  UNIQUE (event, source, target)
);
-- Workers and people that changed jobs: ids instead of texts in jobs and events.
CREATE TABLE detent.actors (
  id   integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text NOT NULL UNIQUE
);

-- One row per job. Read it through the view job_list, which shows names instead of numbers. No index but the primary
-- key has a column that claims and settlements change, so that these updates are heap-only (HOT).
CREATE TABLE detent.jobs (
  -- identity
  id                uuid PRIMARY KEY,
  -- order of claims: contract, queue, job type, tenant and limit key, see lanes.py
  lane              bigint NOT NULL,
  -- times
  created_at        bigint NOT NULL,
  updated_at        bigint NOT NULL,
  due_at            bigint,
  started_at        bigint,
  finished_at       bigint,
  -- lease
  lease_until       bigint,
  worker            integer,
  -- state and counters
  state             detent.state NOT NULL,
  version           detent.ordinal NOT NULL,
  execution_no      detent.counter NOT NULL DEFAULT 0,
  failures          detent.counter NOT NULL DEFAULT 0,
  retries           detent.counter NOT NULL DEFAULT 0,
  interruptions     detent.counter NOT NULL DEFAULT 0,
  losses            detent.counter NOT NULL DEFAULT 0,
  max_retries       detent.counter NOT NULL,
  priority          smallint NOT NULL,
  wait_parked       boolean NOT NULL DEFAULT false,
  token             text,
  -- request and result
  payload           detent.json_object NOT NULL,
  result            detent.json_text,
  -- what few jobs have: NULL costs one bit
  timeout_ms        detent.milliseconds,
  deadline_at       bigint,
  next_retry_at     bigint,
  first_failed_at   bigint,
  scheduled_at      bigint,
  task_attempt      detent.ordinal,
  error_code        text,
  error_message     text,
  error_counts      detent.json_text,
  wait_name         text,
  wait_kind         text,
  cancel_requested  detent.json_text,
  idempotency_key   text,
  idempotency_scope text,
  task_id           text,
  schedule_type     text,
  trace_id          text,
  traceparent       text,
  parent_id         text,
  dlq_id            text,
  requeued_from     text,
  -- NULL stands for the job's own id
  effect_root       text
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Triggers raise the error after the change: a BEFORE trigger would lock every row a second time.
CREATE FUNCTION detent.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME;
END $$;
-- The rules that tie columns to each other. A function and not a CHECK: its plan is kept by the session.
CREATE FUNCTION detent.check_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NOT (CASE NEW.state & 3
      WHEN 0 THEN num_nonnulls(NEW.worker, NEW.lease_until, NEW.finished_at, NEW.result, NEW.wait_name) = 0
        AND NEW.due_at IS NOT NULL
      WHEN 1 THEN num_nonnulls(NEW.worker, NEW.lease_until, NEW.token) = 3
        AND num_nonnulls(NEW.finished_at, NEW.result, NEW.wait_name) = 0
      WHEN 2 THEN num_nonnulls(NEW.worker, NEW.lease_until, NEW.finished_at, NEW.result) = 0
      ELSE num_nonnulls(NEW.worker, NEW.lease_until, NEW.wait_name, NEW.cancel_requested) = 0
        AND NEW.finished_at IS NOT NULL END
    AND NEW.updated_at >= NEW.created_at AND NEW.failures <= NEW.max_retries + 1 AND NEW.retries <= NEW.failures
    AND (NEW.started_at IS NOT NULL) = (NEW.execution_no > 0)
    AND num_nonnulls(NEW.wait_name, NEW.wait_kind) <> 1 AND (NOT NEW.wait_parked OR NEW.wait_name IS NOT NULL)
    AND (NEW.next_retry_at IS NOT NULL) = (NEW.state & 4 = 4)
    AND (NEW.next_retry_at IS NULL OR NEW.next_retry_at = NEW.due_at)) THEN
    RAISE EXCEPTION 'jobs: the columns of the row do not fit its state'
      USING ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME;
  END IF;
  IF TG_OP = 'UPDATE' THEN
    IF OLD.state & 11 = 3 AND (OLD.version <> NEW.version OR OLD.state <> NEW.state) THEN
      RAISE EXCEPTION 'jobs: an end is final'
        USING ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME;
    END IF;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER jobs_rules AFTER INSERT OR UPDATE ON detent.jobs FOR EACH ROW EXECUTE FUNCTION detent.check_job();
-- Columns that describe a job never change. Of its lane only the rank does: a wrong lane would change the order of claims.
CREATE TRIGGER jobs_fixed AFTER UPDATE OF id, priority, payload, created_at ON detent.jobs
  FOR EACH STATEMENT EXECUTE FUNCTION detent.refuse('jobs: what a job is made of does not change');
CREATE TRIGGER jobs_lane AFTER UPDATE OF lane ON detent.jobs FOR EACH ROW
  WHEN (NEW.lane <> (CASE WHEN NEW.losses >= 2 THEN 255 ELSE 100 - NEW.priority END::bigint << 55)
    + (OLD.lane & 36028797018963967))
  EXECUTE FUNCTION detent.refuse('jobs: what a job is made of does not change');

-- The numbered runs of a task, for contracts that have them.
CREATE UNIQUE INDEX jobs_task ON detent.jobs (task_id, task_attempt) WHERE task_attempt IS NOT NULL;
-- Child jobs by parent.
CREATE INDEX jobs_children ON detent.jobs (parent_id, id) WHERE parent_id IS NOT NULL;

-- The jobs that may be claimed now, in the order of claims; see ADR 0003. A claim deletes its rows.
CREATE TABLE detent.queue (
  lane   bigint NOT NULL,
  due_at bigint NOT NULL,
  id     uuid NOT NULL,
  PRIMARY KEY (lane, due_at, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
-- The jobs that become claimable (wakes = false) or wake up (wakes = true) at due_at.
CREATE TABLE detent.timers (
  wakes  boolean NOT NULL,
  due_at bigint NOT NULL,
  id     uuid NOT NULL,
  PRIMARY KEY (wakes, due_at, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
-- Jobs that end if they have not started by deadline_at. A row stays until its time has come, even if the job has ended.
CREATE TABLE detent.deadlines (
  deadline_at bigint NOT NULL,
  id          uuid NOT NULL,
  PRIMARY KEY (deadline_at, id)
);
-- One row per claim: where leased jobs are found. Every leased job is in a row whose check_at is not after its
-- lease_until; a row may also name jobs that are no longer leased. Deleted when all of its jobs are settled, or by a
-- sweep at check_at.
CREATE TABLE detent.claims (
  check_at bigint NOT NULL,
  n        bigint GENERATED ALWAYS AS IDENTITY,
  ids      uuid[] NOT NULL,
  PRIMARY KEY (check_at, n)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
-- Jobs that wait for an approval, requested by a handler or required before the first run.
CREATE TABLE detent.awaiting_approval (
  id uuid PRIMARY KEY
);

-- One row per status change, read through the view event_list.
CREATE TABLE detent.events (
  job_id       uuid NOT NULL,
  at           bigint NOT NULL,
  -- contract, queue, job type and tenant of the job, so that events are counted without a join
  lane         bigint NOT NULL,
  xid          bigint NOT NULL,
  seq          integer NOT NULL,
  edge         integer NOT NULL,
  actor        integer,
  execution_no integer NOT NULL,
  retries      integer NOT NULL,
  data         text,
  PRIMARY KEY (job_id, seq)
);
-- For reading all events in commit order, see ADR 0007. Rows are appended nearly in this order, so BRIN is enough.
CREATE INDEX events_xid ON detent.events USING brin (xid) WITH (pages_per_range = 16, autosummarize = on);

CREATE TABLE detent.notes (
  n            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  job_id       uuid NOT NULL,
  seq          integer NOT NULL,
  name         text NOT NULL,
  at           bigint NOT NULL,
  actor        text,
  execution_no integer NOT NULL,
  data         text,
  -- Notes are counted in commit order too, see ADR 0007. Notes older than this column have NULL and are not counted.
  xid bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint
);
CREATE INDEX notes_job ON detent.notes (job_id, n);

CREATE TABLE detent.dead_letters (
  id              text COLLATE "C" PRIMARY KEY,
  job_id          uuid NOT NULL,
  tenant_id       text NOT NULL,
  contract        text NOT NULL,
  job_type        text NOT NULL,
  queue           text NOT NULL,
  error_class     text,
  error_code      text NOT NULL,
  error_message   text,
  payload         text NOT NULL,
  context         text NOT NULL,
  retries         integer NOT NULL,
  status          text NOT NULL CHECK (status IN ('open', 'requeued', 'discarded')),
  first_failed_at bigint NOT NULL,
  created_at      bigint NOT NULL,
  updated_at      bigint NOT NULL,
  requeued_as     text CHECK ((requeued_as IS NOT NULL) = (status = 'requeued')),
  proposed_by     text,
  proposed_reason text,
  UNIQUE (job_id, retries)
);

CREATE TABLE detent.signals (
  job_id    uuid NOT NULL,
  name      text NOT NULL,
  data      text NOT NULL,
  actor     text,
  at        bigint NOT NULL,
  timed_out boolean NOT NULL DEFAULT false,
  PRIMARY KEY (job_id, name)
);

CREATE TABLE detent.steps (
  job_id       uuid NOT NULL,
  name         text NOT NULL,
  digest       text NOT NULL,
  result       text,
  finished     boolean NOT NULL,
  execution_no integer NOT NULL,
  at           bigint NOT NULL,
  PRIMARY KEY (job_id, name)
);

CREATE TABLE detent.keys (
  space      text NOT NULL,
  key        text NOT NULL,
  job_id     uuid NOT NULL,
  created_at bigint NOT NULL,
  kept_until bigint,
  PRIMARY KEY (space, key)
);
-- Idempotency keys that are kept after their job was pruned, by the time they may be deleted.
CREATE INDEX keys_kept ON detent.keys (kept_until) WHERE kept_until IS NOT NULL;

-- The position of pruning along the primary key, one row per selection of jobs.
CREATE TABLE detent.pruning (
  scope    text PRIMARY KEY,
  position text NOT NULL,
  beyond   text NOT NULL,
  passed   text NOT NULL,
  lap_at   bigint NOT NULL
);

CREATE TABLE detent.audit (
  n         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at        bigint NOT NULL,
  actor     text NOT NULL,
  act       text NOT NULL,
  subject   text NOT NULL,
  tenant_id text,
  reason    text,
  data      text
);

-- Interned parts of a lane (see lanes.py); ids are never reused.
CREATE TABLE detent.lane_groups (
  id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  contract text NOT NULL,
  queue    text NOT NULL,
  job_type text NOT NULL,
  UNIQUE (contract, queue, job_type)
);
CREATE TABLE detent.lane_parties (
  id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant_id text NOT NULL,
  limit_key text NOT NULL,
  UNIQUE (tenant_id, limit_key)
);

CREATE TABLE detent.pauses (
  kind   text NOT NULL CHECK (kind IN ('queue', 'job_type', 'tenant')),
  name   text NOT NULL,
  actor  text NOT NULL,
  reason text,
  at     bigint NOT NULL,
  PRIMARY KEY (kind, name)
);

-- Workers; one without a heartbeat for three leases counts as gone.
CREATE TABLE detent.workers (
  id         text PRIMARY KEY,
  host       text NOT NULL,
  pid        integer NOT NULL,
  version    text NOT NULL,
  queues     text,
  job_types  text NOT NULL,
  slots      integer NOT NULL,
  busy       integer NOT NULL,
  state      text NOT NULL,
  started_at bigint NOT NULL,
  seen_at    bigint NOT NULL,
  lease      bigint NOT NULL
);

-- Declared contracts; their statuses are rows of table states.
CREATE TABLE detent.contracts (
  name       text PRIMARY KEY,
  definition text NOT NULL,
  carried    boolean NOT NULL
);

-- Raised when groups, pauses or limits change, so that claims refresh their lane cache.
CREATE TABLE detent.lane_version (one integer PRIMARY KEY CHECK (one = 1), value bigint NOT NULL);
INSERT INTO detent.lane_version VALUES (1, 1);

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
  role       text NOT NULL CHECK (role IN ('viewer', 'operator', 'reviewer', 'admin')),
  tenant_id  text,
  payloads   boolean NOT NULL,
  created_at bigint NOT NULL,
  created_by text NOT NULL,
  expires_at bigint,
  revoked_at bigint,
  roles text NOT NULL DEFAULT '[]'
);

-- HTTP responses kept for idempotency keys; status is NULL while the request is running.
CREATE TABLE detent.http_responses (
  asker      text NOT NULL,
  key        text NOT NULL,
  digest     text NOT NULL,
  fresh_id   text NOT NULL,
  status     integer,
  media      text,
  body       bytea,
  made_at    bigint NOT NULL,
  keep_until bigint NOT NULL,
  PRIMARY KEY (asker, key)
);
CREATE INDEX http_responses_old ON detent.http_responses (keep_until);

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
  PRIMARY KEY (rule, subject)
);

-- Alert messages to sinks, pending and delivered; written in the transaction that changes the alert.
CREATE TABLE detent.alert_deliveries (
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
CREATE INDEX alert_deliveries_due ON detent.alert_deliveries (due_at) WHERE due_at IS NOT NULL;

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
  PRIMARY KEY (job_id, name, person)
);

-- Time series in slots of ten seconds, for the charts of the last hour, day and week.
CREATE TABLE detent.series (
  slot      bigint PRIMARY KEY,
  submitted bigint NOT NULL,
  succeeded bigint NOT NULL,
  failed    bigint NOT NULL,
  retried   bigint NOT NULL,
  waits     bigint NOT NULL,
  waited    bigint NOT NULL,
  runs      bigint NOT NULL,
  ran       bigint NOT NULL
);

-- Views for people and tools: names instead of numbers. Outer joins, although every number has its row: the planner
-- has no statistics of parts of a lane, expects an inner join to find one job, and reads the whole table for a page.
-- ready is not EXISTS, which may become a hash of the whole queue.

CREATE VIEW detent.job_list AS
SELECT j.id, s.contract, g.job_type, g.queue, p.tenant_id, s.status, s.phase, j.version, j.payload::text AS payload,
  j.created_at, j.updated_at, j.due_at,
  (SELECT true FROM detent.queue q WHERE q.lane = j.lane AND q.due_at = j.due_at AND q.id = j.id) IS TRUE AS ready,
  j.priority::integer AS priority, p.limit_key, j.max_retries, j.timeout_ms, j.execution_no, j.failures, j.retries,
  j.interruptions, j.losses, j.token, a.name AS worker, j.lease_until, j.result::text AS result, j.error_code,
  j.error_message, j.error_counts::text AS error_counts, j.next_retry_at, j.wait_name, j.wait_kind, j.wait_parked,
  j.cancel_requested::text AS cancel_requested, j.idempotency_key, j.idempotency_scope, j.task_id, j.task_attempt,
  j.schedule_type, j.scheduled_at, j.trace_id, j.traceparent, j.parent_id, j.dlq_id, j.requeued_from,
  coalesce(j.effect_root, j.id::text) AS effect_root,
  j.first_failed_at, j.started_at, j.finished_at, j.deadline_at, j.lane
FROM detent.jobs j
LEFT JOIN detent.states s ON s.id = j.state
LEFT JOIN detent.lane_groups g ON g.id = (j.lane >> 31) & 16777215
LEFT JOIN detent.lane_parties p ON p.id = j.lane & 2147483647
LEFT JOIN detent.actors a ON a.id = j.worker;

CREATE VIEW detent.event_list AS
SELECT e.job_id, e.seq, d.event, nullif(d.source, '') AS source, d.target, e.at, a.name AS actor, e.execution_no,
  e.retries, e.data, e.lane, e.xid
FROM detent.events e
LEFT JOIN detent.edges d ON d.id = e.edge
LEFT JOIN detent.actors a ON a.id = e.actor;

-- The jobs that workers hold.
CREATE VIEW detent.lease_list AS
SELECT j.* FROM (SELECT DISTINCT u.id FROM detent.claims c CROSS JOIN LATERAL unnest(c.ids) u (id)) u
JOIN detent.job_list j ON j.id = u.id WHERE j.phase = 'leased';
