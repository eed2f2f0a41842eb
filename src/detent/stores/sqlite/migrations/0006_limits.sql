-- Limits, tenant weights and quotas, priorities in use, deadlines.

-- Priorities and deadlines that jobs of this database use, so that claims do no work for unused ones.
CREATE TABLE lane_marks (
  id   INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  UNIQUE (kind, name)
) STRICT;
INSERT INTO lane_marks (kind, name) SELECT DISTINCT 'rank', CAST(priority AS TEXT) FROM jobs;

-- Limits on concurrent jobs and on starts per period; '' matches any value.
CREATE TABLE limits (
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
CREATE TABLE meters (
  id         INTEGER PRIMARY KEY,
  limit_id   INTEGER NOT NULL,
  subject    TEXT NOT NULL,
  taken      INTEGER NOT NULL DEFAULT 0,
  spent      TEXT NOT NULL DEFAULT '',
  touched_at INTEGER NOT NULL,
  UNIQUE (limit_id, subject)
) STRICT;

-- Weight and quotas of a tenant.
CREATE TABLE tenants (
  tenant_id   TEXT PRIMARY KEY NOT NULL,
  weight      INTEGER NOT NULL CHECK (weight >= 1),
  max_backlog INTEGER CHECK (max_backlog >= 0),
  max_payload INTEGER CHECK (max_payload >= 2)
) STRICT;

-- A job that has not started by its deadline ends; see docs/limits.md.
ALTER TABLE jobs ADD COLUMN deadline_at INTEGER;
CREATE INDEX jobs_deadline ON jobs (deadline_at) WHERE deadline_at IS NOT NULL AND phase IN ('claimable', 'blocked');
