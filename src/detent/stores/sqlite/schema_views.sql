-- One view per table that a contract's specification names, with its column names; docs/understand/contracts.md describes them.
-- Part of the schema, created after schema.sql. Values and units are those of the contract's view in the REST API.
-- Times are ISO-8601 text in UTC, with a fraction only if there is one.

CREATE VIEW detent.gate_b2_jobs AS
SELECT id AS job_id, tenant_id, job_type, status, retries AS retry_count, idempotency_key, trace_id, error_code,
  payload AS payload_json,
  strftime('%Y-%m-%dT%H:%M:%S', created_at / 1000000, 'unixepoch')
    || CASE created_at % 1000000 WHEN 0 THEN '' ELSE printf('.%06d', created_at % 1000000) END || 'Z' AS created_at,
  strftime('%Y-%m-%dT%H:%M:%S', updated_at / 1000000, 'unixepoch')
    || CASE updated_at % 1000000 WHEN 0 THEN '' ELSE printf('.%06d', updated_at % 1000000) END || 'Z' AS updated_at
FROM detent.job_list WHERE contract = 'gate-b2';

CREATE VIEW detent.gate_b2_dlq_items AS
SELECT id AS dlq_id, tenant_id, job_id, error_class, error_code, payload AS payload_json, context AS context_json,
  status,
  strftime('%Y-%m-%dT%H:%M:%S', first_failed_at / 1000000, 'unixepoch')
    || CASE first_failed_at % 1000000 WHEN 0 THEN '' ELSE printf('.%06d', first_failed_at % 1000000) END || 'Z' AS first_failed_at,
  strftime('%Y-%m-%dT%H:%M:%S', created_at / 1000000, 'unixepoch')
    || CASE created_at % 1000000 WHEN 0 THEN '' ELSE printf('.%06d', created_at % 1000000) END || 'Z' AS created_at,
  strftime('%Y-%m-%dT%H:%M:%S', updated_at / 1000000, 'unixepoch')
    || CASE updated_at % 1000000 WHEN 0 THEN '' ELSE printf('.%06d', updated_at % 1000000) END || 'Z' AS updated_at
FROM detent.dead_letters WHERE contract = 'gate-b2';

CREATE VIEW detent.men_tasks AS
SELECT task_id, schedule_type, status AS state, retries + 1 AS attempt, max_retries, timeout_ms, idempotency_key,
  error_code AS last_error_code, error_message AS last_error_reason,
  strftime('%Y-%m-%dT%H:%M:%S', created_at / 1000000, 'unixepoch')
    || CASE created_at % 1000000 WHEN 0 THEN '' ELSE printf('.%06d', created_at % 1000000) END || 'Z' AS created_at,
  strftime('%Y-%m-%dT%H:%M:%S', updated_at / 1000000, 'unixepoch')
    || CASE updated_at % 1000000 WHEN 0 THEN '' ELSE printf('.%06d', updated_at % 1000000) END || 'Z' AS updated_at,
  strftime('%Y-%m-%dT%H:%M:%S', started_at / 1000000, 'unixepoch')
    || CASE started_at % 1000000 WHEN 0 THEN '' ELSE printf('.%06d', started_at % 1000000) END || 'Z' AS started_at,
  strftime('%Y-%m-%dT%H:%M:%S', finished_at / 1000000, 'unixepoch')
    || CASE finished_at % 1000000 WHEN 0 THEN '' ELSE printf('.%06d', finished_at % 1000000) END || 'Z' AS finished_at,
  1 + max_retries AS max_attempts,
  strftime('%Y-%m-%dT%H:%M:%S', scheduled_at / 1000000, 'unixepoch')
    || CASE scheduled_at % 1000000 WHEN 0 THEN '' ELSE printf('.%06d', scheduled_at % 1000000) END || 'Z' AS scheduled_at,
  idempotency_scope, payload
FROM detent.job_list WHERE contract = 'men';

CREATE VIEW detent.p3c_task_runs AS
SELECT id AS run_id, task_id, status AS run_status, task_attempt AS attempt, idempotency_key,
  strftime('%Y-%m-%dT%H:%M:%S', next_retry_at / 1000000, 'unixepoch')
    || CASE next_retry_at % 1000000 WHEN 0 THEN '' ELSE printf('.%06d', next_retry_at % 1000000) END || 'Z' AS next_retry_at,
  error_code, trace_id,
  strftime('%Y-%m-%dT%H:%M:%S', created_at / 1000000, 'unixepoch')
    || CASE created_at % 1000000 WHEN 0 THEN '' ELSE printf('.%06d', created_at % 1000000) END || 'Z' AS created_at,
  strftime('%Y-%m-%dT%H:%M:%S', updated_at / 1000000, 'unixepoch')
    || CASE updated_at % 1000000 WHEN 0 THEN '' ELSE printf('.%06d', updated_at % 1000000) END || 'Z' AS updated_at,
  strftime('%Y-%m-%dT%H:%M:%S', started_at / 1000000, 'unixepoch')
    || CASE started_at % 1000000 WHEN 0 THEN '' ELSE printf('.%06d', started_at % 1000000) END || 'Z' AS started_at,
  strftime('%Y-%m-%dT%H:%M:%S', finished_at / 1000000, 'unixepoch')
    || CASE finished_at % 1000000 WHEN 0 THEN '' ELSE printf('.%06d', finished_at % 1000000) END || 'Z' AS finished_at
FROM detent.job_list WHERE contract = 'p3c';

CREATE VIEW detent.streams_tasks AS
SELECT id AS task_id, job_type AS tool_name, status, payload, failures AS retry_count, idempotency_key, trace_id,
  result AS output, error_message AS error, error_code
FROM detent.job_list WHERE contract = 'streams';

-- A long wait is data of the row, which stays in the status of any wait.
CREATE VIEW detent.formal_jobs AS
SELECT id AS job_id, CASE wait_parked WHEN 1 THEN 'Parked' ELSE status END AS state,
  CASE phase WHEN 'leased' THEN token END AS attempt_id, wait_name AS correlation_key, wait_kind AS wait_type,
  cancel_requested IS NOT NULL AS cancel_requested
FROM detent.job_list WHERE contract = 'formal';
