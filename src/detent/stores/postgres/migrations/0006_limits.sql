-- Limits, tenant weights and quotas, priorities in use, deadlines.

-- Priorities and deadlines that jobs of this database use, so that claims do no work for unused ones.
CREATE TABLE lane_marks (
  id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind text NOT NULL,
  name text NOT NULL,
  UNIQUE (kind, name)
);
INSERT INTO lane_marks (kind, name) SELECT DISTINCT 'rank', CAST(priority AS text) FROM jobs;

-- Limits on concurrent jobs and on starts per period; '' matches any value.
CREATE TABLE limits (
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
CREATE TABLE meters (
  id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  limit_id   bigint NOT NULL,
  subject    text NOT NULL,
  taken      bigint NOT NULL DEFAULT 0,
  spent      text NOT NULL DEFAULT '',
  touched_at bigint NOT NULL,
  UNIQUE (limit_id, subject)
);

-- Weight and quotas of a tenant.
CREATE TABLE tenants (
  tenant_id   text PRIMARY KEY NOT NULL,
  weight      bigint NOT NULL CHECK (weight >= 1),
  max_backlog bigint CHECK (max_backlog >= 0),
  max_payload bigint CHECK (max_payload >= 2)
);

-- A job that has not started by its deadline ends; see docs/limits.md.
ALTER TABLE jobs ADD COLUMN deadline_at bigint;
CREATE INDEX jobs_deadline ON jobs (deadline_at) WHERE deadline_at IS NOT NULL AND phase IN ('claimable', 'blocked');
