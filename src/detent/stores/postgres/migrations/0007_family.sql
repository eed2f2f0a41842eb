-- Children of jobs, and approvals requested by running jobs.

-- Child jobs by parent.
CREATE INDEX jobs_children ON jobs (parent_id, id) WHERE parent_id IS NOT NULL;
-- Jobs that wait for an approval, requested by a handler or required before the first run.
CREATE INDEX jobs_asking ON jobs (id)
  WHERE phase = 'blocked' AND (wait_kind = 'approval' OR wait_kind IS NULL AND due_at IS NULL);

-- Events to process for a parent, written in the transaction of the change: a child has ended, or (child_id NULL) the
-- parent was cancelled and its children must be cancelled. Deleted when processed.
CREATE TABLE family_news (
  n         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  parent_id text NOT NULL,
  child_id  text,
  failed    boolean NOT NULL
);
CREATE INDEX family_news_child ON family_news (parent_id, child_id);
CREATE INDEX family_news_failed ON family_news (parent_id) WHERE failed;

-- The children a waiting parent waits for.
CREATE TABLE awaited (
  parent_id text NOT NULL,
  child_id  text NOT NULL,
  wakes_on  text NOT NULL CHECK (wakes_on IN ('end', 'failure', 'any')),
  PRIMARY KEY (parent_id, child_id)
);

CREATE TABLE approvals (
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
CREATE TABLE votes (
  job_id   uuid NOT NULL,
  name     text NOT NULL,
  person   text NOT NULL,
  approved boolean NOT NULL,
  reason   text,
  roles    text,
  at       bigint NOT NULL,
  PRIMARY KEY (job_id, name, person)
);
