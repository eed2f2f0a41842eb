-- Schedules and their fires.

CREATE TABLE schedules (
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
  UNIQUE (tenant_id, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX schedules_name ON schedules (name);
-- Schedules by the time of their next fire.
CREATE INDEX schedules_next ON schedules (next_fire_at) WHERE next_fire_at IS NOT NULL;

-- One row per fire that created a job, so that no fire creates a second one.
CREATE TABLE fires (
  schedule_id TEXT NOT NULL,
  fire_at     INTEGER NOT NULL,
  job_id      TEXT NOT NULL,
  made_at     INTEGER NOT NULL,
  PRIMARY KEY (schedule_id, fire_at)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX fires_job ON fires (job_id);

-- Audit entries of one subject.
CREATE INDEX audit_subject ON audit (subject, n);
