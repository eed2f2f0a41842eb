-- Messages to publish on the stream (claimable jobs, dead letters); deleted once they are published.
CREATE TABLE outbox (
  job_id  text NOT NULL,
  kind    text NOT NULL CHECK (kind IN ('task', 'letter')),
  version integer NOT NULL,
  due_at  integer NOT NULL,
  PRIMARY KEY (job_id, kind)
) WITHOUT ROWID;
CREATE INDEX outbox_due ON outbox (due_at, job_id);

-- The last epoch of each stream server; another epoch on the server means that it has lost its data.
CREATE TABLE wires (
  name  text PRIMARY KEY,
  epoch text NOT NULL,
  at    integer NOT NULL
) WITHOUT ROWID;
