-- Schedules and their fires.

CREATE TABLE schedules (
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
  UNIQUE (tenant_id, name)
);
CREATE INDEX schedules_name ON schedules (name);
-- Schedules by the time of their next fire.
CREATE INDEX schedules_next ON schedules (next_fire_at) WHERE next_fire_at IS NOT NULL;

-- One row per fire that created a job, so that no fire creates a second one.
CREATE TABLE fires (
  schedule_id text NOT NULL,
  fire_at     bigint NOT NULL,
  job_id      uuid NOT NULL,
  made_at     bigint NOT NULL,
  PRIMARY KEY (schedule_id, fire_at)
);
CREATE UNIQUE INDEX fires_job ON fires (job_id);

-- Audit entries of one subject.
CREATE INDEX audit_subject ON audit (subject, n);
