-- Access tokens, and HTTP responses kept for idempotency keys.

CREATE TABLE tokens (
  id         text PRIMARY KEY,
  digest     text NOT NULL UNIQUE,
  person     text NOT NULL,
  role       text NOT NULL CHECK (role IN ('viewer', 'operator', 'reviewer', 'admin')),
  tenant_id  text,
  payloads   boolean NOT NULL,
  created_at bigint NOT NULL,
  created_by text NOT NULL,
  expires_at bigint,
  revoked_at bigint
);

-- HTTP responses kept for idempotency keys; status is NULL while the request is running.
CREATE TABLE http_answers (
  asker      text NOT NULL,
  key        text NOT NULL,
  digest     text NOT NULL,
  fresh_id   text NOT NULL,
  status     integer,
  media      text,
  body       bytea,
  made_at    bigint NOT NULL,
  keep_until bigint NOT NULL,
  PRIMARY KEY (asker, key)
);
CREATE INDEX http_answers_old ON http_answers (keep_until);
