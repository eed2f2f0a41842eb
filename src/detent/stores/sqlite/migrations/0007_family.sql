-- Children of a job, and approvals a running job asks for.

-- Children by their parent; jobs without one are not in it.
CREATE INDEX jobs_children ON jobs (parent_id, id) WHERE parent_id IS NOT NULL;
-- What waits for people: asked by a handler, or held before it was ever dispatched.
CREATE INDEX jobs_asking ON jobs (id)
  WHERE phase = 'blocked' AND (wait_kind = 'approval' OR wait_kind IS NULL AND due_at IS NULL);

-- What a parent must be told, written with what happened: this child has ended; or, without a child, the parent was
-- cancelled and its children must be. Gone when somebody has looked.
CREATE TABLE family_news (
  n         INTEGER PRIMARY KEY,
  parent_id TEXT NOT NULL,
  child_id  TEXT,
  failed    INTEGER NOT NULL
) STRICT;
CREATE INDEX family_news_child ON family_news (parent_id, child_id);
CREATE INDEX family_news_failed ON family_news (parent_id) WHERE failed = 1;

-- Which children a parent waits for, while it does.
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

-- One word a person.
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
