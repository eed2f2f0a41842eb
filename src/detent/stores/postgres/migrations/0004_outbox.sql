-- What the stream is still to be told: work that became claimable, dead letters; deleted once it was told.
CREATE TABLE outbox (
  job_id  uuid NOT NULL,
  kind    text NOT NULL CHECK (kind IN ('task', 'letter')),
  version integer NOT NULL,
  due_at  bigint NOT NULL,
  PRIMARY KEY (job_id, kind)
);
CREATE INDEX outbox_due ON outbox (due_at, job_id);

-- The epoch a stream server had when it was last complete; another one there means it came back empty.
CREATE TABLE wires (
  name  text PRIMARY KEY,
  epoch text NOT NULL,
  at    bigint NOT NULL
);
