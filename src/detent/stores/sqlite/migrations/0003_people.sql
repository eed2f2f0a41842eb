-- Access tokens, HTTP responses kept for idempotency keys, and event numbers that are never reused.

CREATE TABLE tokens (
  id         TEXT PRIMARY KEY NOT NULL,
  digest     TEXT NOT NULL UNIQUE,
  person     TEXT NOT NULL,
  role       TEXT NOT NULL CHECK (role IN ('viewer', 'operator', 'reviewer', 'admin')),
  tenant_id  TEXT,
  payloads   INTEGER NOT NULL CHECK (payloads IN (0, 1)),
  created_at INTEGER NOT NULL,
  created_by TEXT NOT NULL,
  expires_at INTEGER,
  revoked_at INTEGER
) STRICT, WITHOUT ROWID;

-- HTTP responses kept for idempotency keys; status is NULL while the request is running.
CREATE TABLE http_answers (
  asker      TEXT NOT NULL,
  key        TEXT NOT NULL,
  digest     TEXT NOT NULL,
  fresh_id   TEXT NOT NULL,
  status     INTEGER,
  media      TEXT,
  body       BLOB,
  made_at    INTEGER NOT NULL,
  keep_until INTEGER NOT NULL,
  PRIMARY KEY (asker, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX http_answers_old ON http_answers (keep_until);

-- AUTOINCREMENT: readers of the tail remember the last number, so pruning the newest events must not free it.
CREATE TABLE events_numbered (
  n            INTEGER PRIMARY KEY AUTOINCREMENT,
  job_id       TEXT NOT NULL,
  seq          INTEGER NOT NULL CHECK (seq >= 1),
  event        TEXT NOT NULL,
  source       TEXT CHECK ((source IS NULL) = (seq = 1)),
  target       TEXT NOT NULL,
  at           INTEGER NOT NULL,
  actor        TEXT,
  execution_no INTEGER NOT NULL,
  retries      INTEGER NOT NULL,
  data         TEXT,
  UNIQUE (job_id, seq)
) STRICT;
INSERT INTO events_numbered SELECT n, job_id, seq, event, source, target, at, actor, execution_no, retries, data FROM events;
DROP TABLE events;
ALTER TABLE events_numbered RENAME TO events;
