-- Children of jobs, and approvals requested by running jobs.

-- Child jobs by parent.
CREATE INDEX jobs_children ON jobs (parent_id, id) WHERE parent_id IS NOT NULL;
-- Jobs that wait for an approval, requested by a handler or required before the first run.
CREATE INDEX jobs_asking ON jobs (id)
  WHERE phase = 'blocked' AND (wait_kind = 'approval' OR wait_kind IS NULL AND due_at IS NULL);

-- Events to process for a parent, written in the transaction of the change: a child has ended, or (child_id NULL) the
-- parent was cancelled and its children must be cancelled. Deleted when processed.
CREATE TABLE family_news (
  n         INTEGER PRIMARY KEY,
  parent_id TEXT NOT NULL,
  child_id  TEXT,
  failed    INTEGER NOT NULL
) STRICT;
CREATE INDEX family_news_child ON family_news (parent_id, child_id);
CREATE INDEX family_news_failed ON family_news (parent_id) WHERE failed = 1;

-- The children a waiting parent waits for.
CREATE TABLE awaited (
  parent_id TEXT NOT NULL,
  child_id  TEXT NOT NULL,
  wakes_on  TEXT NOT NULL CHECK (wakes_on IN ('end', 'failure', 'any')),
  PRIMARY KEY (parent_id, child_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE approvals (
  job_id     TEXT NOT NULL,
  name       TEXT NOT NULL,
  summary    TEXT NOT NULL,
  about      TEXT NOT NULL,
  digest     TEXT NOT NULL,
  roles      TEXT NOT NULL,
  quorum     INTEGER NOT NULL CHECK (quorum >= 1),
  on_expiry  TEXT NOT NULL CHECK (on_expiry IN ('approve', 'reject', 'fail')),
  asked_at   INTEGER NOT NULL,
  deadline   INTEGER,
  decision   TEXT CHECK (decision IN ('approve', 'reject', 'fail')),
  decided_at INTEGER CHECK ((decided_at IS NULL) = (decision IS NULL)),
  expired    INTEGER NOT NULL CHECK (expired IN (0, 1) AND (expired = 0 OR decision IS NOT NULL)),
  PRIMARY KEY (job_id, name)
) STRICT, WITHOUT ROWID;

-- One vote per person and approval.
CREATE TABLE votes (
  job_id   TEXT NOT NULL,
  name     TEXT NOT NULL,
  person   TEXT NOT NULL,
  approved INTEGER NOT NULL,
  reason   TEXT,
  roles    TEXT,
  at       INTEGER NOT NULL,
  PRIMARY KEY (job_id, name, person)
) STRICT, WITHOUT ROWID;
