-- Limits, shares and quotas, priorities in use, deadlines.

-- What jobs of this database make use of (priorities, deadlines), so that claims look for no more than that.
CREATE TABLE lane_marks (
  id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind text NOT NULL,
  name text NOT NULL,
  UNIQUE (kind, name)
);
INSERT INTO lane_marks (kind, name) SELECT DISTINCT 'rank', CAST(priority AS text) FROM jobs;

-- Bounds on what runs at once and begins within a period; '' matches any.
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

-- The count of one limit for one subject. taken only grows: whoever planned with an older count can tell by how much.
CREATE TABLE meters (
  id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  limit_id   bigint NOT NULL,
  subject    text NOT NULL,
  taken      bigint NOT NULL DEFAULT 0,
  spent      text NOT NULL DEFAULT '',
  touched_at bigint NOT NULL,
  UNIQUE (limit_id, subject)
);

-- What is agreed with a tenant: its share beside others, and how much it may leave with us.
CREATE TABLE tenants (
  tenant_id   text PRIMARY KEY NOT NULL,
  weight      bigint NOT NULL CHECK (weight >= 1),
  max_backlog bigint CHECK (max_backlog >= 0),
  max_payload bigint CHECK (max_payload >= 2)
);

-- A job that has not begun by then ends; see docs/limits.md.
ALTER TABLE jobs ADD COLUMN deadline_at bigint;
CREATE INDEX jobs_deadline ON jobs (deadline_at) WHERE deadline_at IS NOT NULL AND phase IN ('claimable', 'blocked');
