-- The first schema. Times are microseconds since 1970-01-01 UTC; JSON is text, because jsonb rewrites it.

CREATE TABLE jobs (
  id                uuid PRIMARY KEY,
  contract          text NOT NULL,
  job_type          text NOT NULL,
  queue             text NOT NULL,
  tenant_id         text NOT NULL,
  status            text NOT NULL,
  phase             text NOT NULL,
  version           integer NOT NULL,
  payload           text NOT NULL,
  created_at        bigint NOT NULL,
  updated_at        bigint NOT NULL,
  due_at            bigint,
  ready             boolean NOT NULL,
  priority          integer NOT NULL,
  limit_key         text NOT NULL,
  max_retries       integer NOT NULL,
  timeout_ms        bigint,
  execution_no      integer NOT NULL,
  failures          integer NOT NULL,
  retries           integer NOT NULL,
  interruptions     integer NOT NULL,
  token             text,
  worker            text,
  lease_until       bigint,
  result            text,
  error_code        text,
  error_message     text,
  error_counts      text,
  next_retry_at     bigint,
  wait_name         text,
  wait_kind         text,
  wait_parked       boolean NOT NULL,
  cancel_requested  text,
  idempotency_key   text,
  idempotency_scope text,
  task_id           text,
  task_attempt      integer,
  schedule_type     text,
  scheduled_at      bigint,
  trace_id          text,
  parent_id         text,
  dlq_id            text,
  requeued_from     text,
  effect_root       text,
  first_failed_at   bigint,
  started_at        bigint,
  finished_at       bigint,
  lane              bigint NOT NULL,
  CONSTRAINT jobs_phase CHECK (phase IN ('claimable', 'leased', 'blocked', 'final')),
  CONSTRAINT jobs_counters CHECK (version >= 1 AND max_retries >= 0 AND execution_no >= 0 AND interruptions >= 0
    AND failures BETWEEN 0 AND max_retries + 1 AND retries BETWEEN 0 AND failures AND task_attempt >= 1
    AND timeout_ms > 0),
  CONSTRAINT jobs_times CHECK (updated_at >= created_at AND (started_at IS NOT NULL) = (execution_no > 0)
    AND (finished_at IS NOT NULL) = (phase = 'final') AND (due_at IS NOT NULL OR phase <> 'claimable')
    AND (next_retry_at IS NULL OR next_retry_at = due_at)),
  CONSTRAINT jobs_lease CHECK ((token IS NOT NULL OR phase <> 'leased') AND (worker IS NOT NULL) = (phase = 'leased')
    AND (lease_until IS NOT NULL) = (phase = 'leased')),
  CONSTRAINT jobs_json CHECK (json_typeof(result::json) <> '' AND json_typeof(cancel_requested::json) <> ''
    AND json_typeof(error_counts::json) <> ''),
  CONSTRAINT jobs_ends CHECK ((NOT ready OR phase = 'claimable') AND (result IS NULL OR phase = 'final')
    AND (wait_name IS NULL OR phase = 'blocked') AND (wait_kind IS NULL) = (wait_name IS NULL)
    AND (NOT wait_parked OR wait_name IS NOT NULL) AND (cancel_requested IS NULL OR phase <> 'final'))
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- AFTER triggers that raise an error: a BEFORE trigger would lock every row a second time. Per statement where the list
-- of columns is a sufficient condition, because a row trigger reads the old row again.
CREATE FUNCTION detent_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME;
END $$;
-- Columns that describe a job never change; a wrong lane would change the order of claims.
CREATE TRIGGER jobs_fixed
  AFTER UPDATE OF id, contract, job_type, queue, tenant_id, priority, limit_key, payload, created_at, lane ON jobs
  FOR EACH STATEMENT EXECUTE FUNCTION detent_refuse('jobs: what a job is made of does not change');
-- Not a CHECK, which would read the payload at every change of the row. Invalid JSON is an error of the cast.
CREATE TRIGGER jobs_payload AFTER INSERT ON jobs FOR EACH ROW WHEN (json_typeof(NEW.payload::json) <> 'object')
  EXECUTE FUNCTION detent_refuse('jobs: the payload is no JSON object');

-- Claimable jobs in the order of claims; see ADR 0003.
CREATE INDEX jobs_ready ON jobs (lane, due_at, id) WHERE ready;
-- Jobs that become claimable or wake up at due_at.
CREATE INDEX jobs_later ON jobs (phase, due_at)
  WHERE NOT ready AND due_at IS NOT NULL AND phase IN ('claimable', 'blocked');
-- Leases by expiry time.
CREATE INDEX jobs_leased ON jobs (lease_until) WHERE phase = 'leased';
-- The numbered runs of a task, for contracts that have them.
CREATE UNIQUE INDEX jobs_task ON jobs (task_id, task_attempt) WHERE task_attempt IS NOT NULL;

CREATE TABLE events (
  job_id       uuid NOT NULL,
  seq          integer NOT NULL CHECK (seq >= 1),
  event        text NOT NULL,
  source       text CHECK ((source IS NULL) = (seq = 1)),
  target       text NOT NULL,
  at           bigint NOT NULL,
  actor        text,
  execution_no integer NOT NULL,
  retries      integer NOT NULL,
  data         text,
  xid          bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
  PRIMARY KEY (job_id, seq)
);
-- For reading all events in commit order, see ADR 0007. Rows are appended nearly in this order, so BRIN is enough.
CREATE INDEX events_xid ON events USING brin (xid) WITH (pages_per_range = 16, autosummarize = on);

CREATE TABLE notes (
  n            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  job_id       uuid NOT NULL,
  seq          integer NOT NULL,
  name         text NOT NULL,
  at           bigint NOT NULL,
  actor        text,
  execution_no integer NOT NULL,
  data         text
);
CREATE INDEX notes_job ON notes (job_id, n);

CREATE TABLE dead_letters (
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

CREATE TABLE signals (
  job_id    uuid NOT NULL,
  name      text NOT NULL,
  data      text NOT NULL,
  actor     text,
  at        bigint NOT NULL,
  timed_out boolean NOT NULL DEFAULT false,
  PRIMARY KEY (job_id, name)
);

CREATE TABLE steps (
  job_id       uuid NOT NULL,
  name         text NOT NULL,
  digest       text NOT NULL,
  result       text,
  finished     boolean NOT NULL,
  execution_no integer NOT NULL,
  at           bigint NOT NULL,
  PRIMARY KEY (job_id, name)
);

CREATE TABLE keys (
  space      text NOT NULL,
  key        text NOT NULL,
  job_id     uuid NOT NULL,
  created_at bigint NOT NULL,
  kept_until bigint,
  PRIMARY KEY (space, key)
);
-- Idempotency keys that are kept after their job was pruned, by the time they may be deleted.
CREATE INDEX keys_kept ON keys (kept_until) WHERE kept_until IS NOT NULL;

-- The position of pruning along the primary key, one row per selection of jobs.
CREATE TABLE pruning (
  scope    text PRIMARY KEY,
  position text NOT NULL,
  beyond   text NOT NULL,
  passed   text NOT NULL,
  lap_at   bigint NOT NULL
);

CREATE TABLE audit (
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
CREATE TABLE lane_groups (
  id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  contract text NOT NULL,
  queue    text NOT NULL,
  job_type text NOT NULL,
  UNIQUE (contract, queue, job_type)
);
CREATE TABLE lane_parties (
  id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tenant_id text NOT NULL,
  limit_key text NOT NULL,
  UNIQUE (tenant_id, limit_key)
);

CREATE TABLE pauses (
  kind   text NOT NULL CHECK (kind IN ('queue', 'job_type', 'tenant')),
  name   text NOT NULL,
  actor  text NOT NULL,
  reason text,
  at     bigint NOT NULL,
  PRIMARY KEY (kind, name)
);

-- Workers; one without a heartbeat for three leases counts as gone.
CREATE TABLE workers (
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

-- Declared contracts; the CHECK jobs_contract is generated from their statuses.
CREATE TABLE contracts (
  name       text PRIMARY KEY,
  definition text NOT NULL,
  carried    boolean NOT NULL
);

-- Raised when groups, pauses or limits change, so that claims refresh their lane cache.
CREATE TABLE lane_version (one integer PRIMARY KEY CHECK (one = 1), value bigint NOT NULL);
INSERT INTO lane_version VALUES (1, 1);
