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

-- The statuses of all contracts. id = contract * 16384 + number * 16 + reopens * 8 + retry_at * 4 + phase, so that the
-- rules of table jobs need no join. Phases: 0 claimable, 1 leased, 2 blocked, 3 final.
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
-- key has a column that claims and settlements change, so that these updates are heap-only (HOT). The fillfactor leaves
-- room for the two versions that they write; with 70 a third of them went to other pages and cost more bytes in all.
CREATE TABLE detent.jobs (
  -- Hardly ever change, and come first: the log of an update leaves out equal bytes at the beginning and at the end.
  -- identity
  id                uuid PRIMARY KEY,
  -- order of claims: contract, queue, job type, tenant and limit key, see lanes.py
  lane              bigint NOT NULL,
  created_at        bigint NOT NULL,
  max_retries       detent.counter NOT NULL,
  priority          smallint NOT NULL,
  wait_parked       boolean NOT NULL DEFAULT false,
  -- Change with every claim and settlement.
  -- times
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
  -- result, token of the lease, request
  result            detent.json_text,
  token             text,
  payload           detent.json_object NOT NULL,
  -- What few jobs have: NULL costs one bit. Counters of what went wrong: NULL stands for 0.
  failures          detent.ordinal,
  retries           detent.ordinal,
  interruptions     detent.ordinal,
  losses            detent.ordinal,
  timeout_ms        detent.milliseconds,
  backoff           text,
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
  -- NULL stands for the job's own id, and in trace_id for 'trace-' and the job's id
  effect_root       text
) WITH (fillfactor = 38, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- Triggers raise the error after the change: a BEFORE trigger would lock every row a second time.
CREATE FUNCTION detent.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME;
END $$;
-- The rules that tie columns to each other, for inserts and for updates. Postgres parses the text of a CHECK, or of the
-- WHEN of a trigger, for every statement: 45 us, which is little for a claim of many jobs and much for the insert of one.
-- The plan of a function is kept by the session, but each call costs 5 us. So inserts call a function, and updates have
-- a trigger that calls nothing as long as its WHEN is false.
DO $do$
DECLARE
  fits text := $rule$(CASE NEW.state & 3
      WHEN 0 THEN num_nonnulls(NEW.worker, NEW.lease_until, NEW.finished_at, NEW.result, NEW.wait_name) = 0
        AND NEW.due_at IS NOT NULL
      WHEN 1 THEN num_nonnulls(NEW.worker, NEW.lease_until, NEW.token) = 3
        AND num_nonnulls(NEW.finished_at, NEW.result, NEW.wait_name) = 0
      WHEN 2 THEN num_nonnulls(NEW.worker, NEW.lease_until, NEW.finished_at, NEW.result) = 0
      ELSE num_nonnulls(NEW.worker, NEW.lease_until, NEW.wait_name, NEW.cancel_requested) = 0
        AND NEW.finished_at IS NOT NULL END
    AND NEW.updated_at >= NEW.created_at AND coalesce(NEW.failures, 0) <= NEW.max_retries + 1
    AND coalesce(NEW.retries, 0) <= coalesce(NEW.failures, 0)
    AND (NEW.started_at IS NOT NULL) = (NEW.execution_no > 0)
    AND num_nonnulls(NEW.wait_name, NEW.wait_kind) <> 1 AND (NOT NEW.wait_parked OR NEW.wait_name IS NOT NULL)
    AND (NEW.next_retry_at IS NOT NULL) = (NEW.state & 4 = 4)
    AND (NEW.next_retry_at IS NULL OR NEW.next_retry_at = NEW.due_at))$rule$;
BEGIN
  -- A status may have become one that reopens since the job got there, hence the look at table states.
  EXECUTE format($sql$
    CREATE FUNCTION detent.check_new_job() RETURNS trigger LANGUAGE plpgsql AS $check$
    BEGIN
      IF NOT %1$s THEN
        RAISE EXCEPTION 'jobs: the columns of the row do not fit its state'
          USING ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME;
      END IF;
      RETURN NULL;
    END $check$;
    CREATE FUNCTION detent.check_changed_job() RETURNS trigger LANGUAGE plpgsql AS $check$
    DECLARE
      violated text := CASE WHEN NOT %1$s THEN 'the columns of the row do not fit its state'
        WHEN OLD.state >> 14 <> NEW.state >> 14 THEN 'a job keeps its contract'
        WHEN (OLD.version <> NEW.version OR OLD.state <> NEW.state) AND NOT EXISTS (
          SELECT 1 FROM detent.states o JOIN detent.states n USING (contract, status)
          WHERE o.id = OLD.state AND n.reopens) THEN 'an end is final' END;
    BEGIN
      IF violated IS NOT NULL THEN
        RAISE EXCEPTION 'jobs: %%', violated
          USING ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME;
      END IF;
      RETURN NULL;
    END $check$;
    CREATE TRIGGER jobs_new_rules AFTER INSERT ON detent.jobs FOR EACH ROW EXECUTE FUNCTION detent.check_new_job();
    CREATE TRIGGER jobs_rules AFTER UPDATE ON detent.jobs FOR EACH ROW
      WHEN (%1$s IS NOT TRUE OR OLD.state >> 14 <> NEW.state >> 14 OR OLD.state & 11 = 3)
      EXECUTE FUNCTION detent.check_changed_job()$sql$, fits);
END $do$;
-- Columns that describe a job never change. Of its lane only the rank does: a wrong lane would change the order of claims.
CREATE TRIGGER jobs_fixed AFTER UPDATE OF id, priority, payload, created_at ON detent.jobs
  FOR EACH STATEMENT EXECUTE FUNCTION detent.refuse('jobs: what a job is made of does not change');
CREATE TRIGGER jobs_lane AFTER UPDATE OF lane ON detent.jobs FOR EACH ROW
  WHEN (NEW.lane <> (CASE WHEN coalesce(NEW.losses, 0) >= 2 THEN 255 ELSE 100 - NEW.priority END::bigint << 55)
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

-- One row per status change, read through the view event_list. Its partitions are in schema_partitions.sql.
CREATE TABLE detent.events (
  job_id       uuid NOT NULL,
  at           bigint NOT NULL,
  -- contract, queue, job type and tenant of the job, so that events are counted without a join
  lane         bigint NOT NULL,
  xid          bigint NOT NULL,
  seq          detent.ordinal NOT NULL,
  edge         integer NOT NULL,
  actor        integer,
  execution_no integer NOT NULL,
  retries      integer NOT NULL,
  data         text,
  PRIMARY KEY (job_id, seq)
) PARTITION BY RANGE (job_id);
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
  proposed_with   text,
  -- see core.job.error_group
  error_group     text NOT NULL,
  UNIQUE (job_id, retries)
);
CREATE INDEX dead_letters_open ON detent.dead_letters (id) WHERE status = 'open';

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
  started_at   bigint NOT NULL,
  PRIMARY KEY (job_id, name)
);

-- The last progress that an execution reported: one row per job, overwritten. The event stream reads it by time.
CREATE TABLE detent.progress (
  job_id       uuid PRIMARY KEY,
  execution_no integer NOT NULL,
  share        double precision NOT NULL,
  message      text NOT NULL,
  at           bigint NOT NULL
);
CREATE INDEX progress_at ON detent.progress (at, job_id);

-- The last log lines of each execution of a job that captures logs. n counts the lines of an execution from 1.
CREATE TABLE detent.log_lines (
  job_id       uuid NOT NULL,
  execution_no integer NOT NULL,
  n            integer NOT NULL,
  at           bigint NOT NULL,
  level        text NOT NULL,
  logger       text NOT NULL,
  message      text NOT NULL,
  PRIMARY KEY (job_id, execution_no, n)
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
  lease      bigint NOT NULL,
  blocked    text  -- JSON while a handler blocks its event loop
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

-- Views for people and tools: names instead of numbers. LEFT JOIN: the planner expects one row from inner joins, and
-- would then read and sort the whole table for each page of jobs.

CREATE VIEW detent.job_list AS
SELECT j.id, s.contract, g.job_type, g.queue, p.tenant_id, s.status, s.phase, j.version, j.payload::text AS payload,
  j.created_at, j.updated_at, j.due_at,
  -- Not EXISTS, for which the planner may read the whole queue once.
  coalesce((SELECT true FROM detent.queue q WHERE q.lane = j.lane AND q.due_at = j.due_at AND q.id = j.id), false) AS ready,
  j.priority::integer AS priority, p.limit_key, j.max_retries, j.timeout_ms, j.backoff, j.execution_no,
  coalesce(j.failures, 0) AS failures, coalesce(j.retries, 0) AS retries, coalesce(j.interruptions, 0) AS interruptions,
  coalesce(j.losses, 0) AS losses, j.token, a.name AS worker, j.lease_until, j.result::text AS result, j.error_code,
  j.error_message, j.error_counts::text AS error_counts, j.next_retry_at, j.wait_name, j.wait_kind, j.wait_parked,
  j.cancel_requested::text AS cancel_requested, j.idempotency_key, j.idempotency_scope, j.task_id, j.task_attempt,
  j.schedule_type, j.scheduled_at, coalesce(j.trace_id, 'trace-' || j.id) AS trace_id, j.traceparent, j.parent_id,
  j.dlq_id, j.requeued_from,
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
