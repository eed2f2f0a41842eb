-- One view per table that a contract's specification names, with its column names; docs/understand/contracts.md describes them.
-- Part of the schema, created after schema.sql. Values and units are those of the contract's view in the REST API.

-- Microseconds since 1970 as a timestamp, and as ISO-8601 text in UTC with a fraction only if there is one.
CREATE FUNCTION detent.as_timestamp(moment bigint) RETURNS timestamptz LANGUAGE sql STABLE AS $$
  SELECT timestamptz 'epoch' + moment * interval '1 microsecond'
$$;
CREATE FUNCTION detent.as_iso(moment bigint) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT to_char(timestamp 'epoch' + moment * interval '1 microsecond', 'YYYY-MM-DD"T"HH24:MI:SS')
    || CASE moment % 1000000 WHEN 0 THEN '' ELSE '.' || lpad((moment % 1000000)::text, 6, '0') END || 'Z'
$$;

CREATE VIEW detent.gate_b2_jobs AS
SELECT id AS job_id, tenant_id, job_type, status, retries AS retry_count, idempotency_key, trace_id, error_code,
  payload::json AS payload_json, detent.as_timestamp(created_at) AS created_at,
  detent.as_timestamp(updated_at) AS updated_at
FROM detent.job_list WHERE contract = 'gate-b2';

CREATE VIEW detent.gate_b2_dlq_items AS
SELECT id AS dlq_id, tenant_id, job_id, error_class, error_code, payload::json AS payload_json,
  context::json AS context_json, status, detent.as_timestamp(first_failed_at) AS first_failed_at,
  detent.as_timestamp(created_at) AS created_at, detent.as_timestamp(updated_at) AS updated_at
FROM detent.dead_letters WHERE contract = 'gate-b2';

-- Times are text, as in the payloads of the specification.
CREATE VIEW detent.men_tasks AS
SELECT task_id, schedule_type, status AS state, retries + 1 AS attempt, max_retries, timeout_ms, idempotency_key,
  error_code AS last_error_code, error_message AS last_error_reason, detent.as_iso(created_at) AS created_at,
  detent.as_iso(updated_at) AS updated_at, detent.as_iso(started_at) AS started_at,
  detent.as_iso(finished_at) AS finished_at, 1 + max_retries AS max_attempts,
  detent.as_iso(scheduled_at) AS scheduled_at, idempotency_scope, payload::json AS payload
FROM detent.job_list WHERE contract = 'men';

CREATE VIEW detent.p3c_task_runs AS
SELECT id AS run_id, task_id, status AS run_status, task_attempt::integer AS attempt, idempotency_key,
  detent.as_timestamp(next_retry_at) AS next_retry_at, error_code, trace_id,
  detent.as_timestamp(created_at) AS created_at, detent.as_timestamp(updated_at) AS updated_at,
  detent.as_timestamp(started_at) AS started_at, detent.as_timestamp(finished_at) AS finished_at
FROM detent.job_list WHERE contract = 'p3c';

CREATE VIEW detent.streams_tasks AS
SELECT id AS task_id, job_type AS tool_name, status, payload::json AS payload, failures AS retry_count,
  idempotency_key, trace_id, result::json AS output, error_message AS error, error_code
FROM detent.job_list WHERE contract = 'streams';

-- A long wait is data of the row, which stays in the status of any wait.
CREATE VIEW detent.formal_jobs AS
SELECT id AS job_id, CASE WHEN wait_parked THEN 'Parked' ELSE status END AS state,
  CASE phase WHEN 'leased' THEN token END AS attempt_id, wait_name AS correlation_key, wait_kind AS wait_type,
  cancel_requested IS NOT NULL AS cancel_requested
FROM detent.job_list WHERE contract = 'formal';
