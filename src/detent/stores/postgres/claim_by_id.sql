-- name: claim_by_id
-- Hot path: settle plain successes and claim jobs by id, each under its own token, in one statement.
-- Index: primary key of jobs. Joins to jobs as in settle_and_claim.sql, for the same reason.
WITH t AS MATERIALIZED (
  SELECT {clock} AS now
-- held: the leased rows of the successes whose token matches, locked in the order of :ids. Rows locked by others are
-- skipped; the caller gets them back as unsettled. Children are not settled here.
), held AS MATERIALIZED (
  SELECT j.at, j.worker, x.source, x.event, x.target, s.result
  FROM unnest(CAST(:ids::text[] AS uuid[]), :tokens::text[], :results::text[]) s (id, token, result)
  CROSS JOIN LATERAL (SELECT ctid AS at, contract, status, phase, token, worker, parent_id FROM detent.jobs
    WHERE id = s.id OFFSET 0 FOR UPDATE SKIP LOCKED) j
  JOIN unnest(:end_contracts::text[], :end_sources::text[], :end_events::text[], :end_targets::text[])
    x (contract, source, event, target) ON x.contract = j.contract AND x.source = j.status
  WHERE j.token = s.token AND j.phase = 'leased' AND j.parent_id IS NULL
-- settled: leased -> final.
), settled AS (
  UPDATE detent.jobs j SET status = h.target, phase = 'final', version = j.version + 1, result = h.result,
    updated_at = greatest((SELECT now FROM t), j.updated_at), finished_at = greatest((SELECT now FROM t), j.updated_at),
    worker = NULL, lease_until = NULL, due_at = NULL, error_code = NULL, error_message = NULL, cancel_requested = NULL
  FROM held h WHERE j.ctid = h.at
  RETURNING j.id, j.version, h.event, h.source, h.target, j.updated_at, h.worker, j.execution_no, j.retries, j.lane
-- named: the due jobs with these ids. The failure count must match, so that a stream message about an earlier attempt
-- claims nothing.
), named AS MATERIALIZED (
  SELECT j.at, x.source, x.event, x.target, s.token
  FROM unnest(CAST(:named_ids::text[] AS uuid[]), :named_tokens::text[], CAST(:named_counts::text[] AS integer[]))
    s (id, token, failures)
  CROSS JOIN LATERAL (SELECT ctid AS at, contract, status, phase, failures, due_at FROM detent.jobs
    WHERE id = s.id OFFSET 0 FOR UPDATE SKIP LOCKED) j
  JOIN unnest(:claim_contracts::text[], :claim_sources::text[], :claim_events::text[], :claim_targets::text[])
    x (contract, source, event, target) ON x.contract = j.contract AND x.source = j.status
  WHERE j.phase = 'claimable' AND j.failures = s.failures AND j.due_at <= (SELECT now FROM t)
-- claimed: claimable -> leased.
), claimed AS (
  UPDATE detent.jobs j SET status = n.target, phase = 'leased', ready = false, version = j.version + 1, token = n.token,
    worker = :worker::text, lease_until = greatest((SELECT now FROM t), j.updated_at) + :lease::bigint,
    execution_no = j.execution_no + 1, updated_at = greatest((SELECT now FROM t), j.updated_at),
    started_at = coalesce(j.started_at, greatest((SELECT now FROM t), j.updated_at)), next_retry_at = NULL
  FROM named n WHERE j.ctid = n.at
  RETURNING j.id, j.token, j.contract, j.job_type, j.queue, j.tenant_id, j.payload, j.execution_no, j.retries,
    j.version, j.timeout_ms, j.trace_id, j.effect_root, j.idempotency_key, j.cancel_requested,
    j.due_at, j.traceparent, j.parent_id, j.losses, j.lane, n.event, n.source, n.target, j.updated_at, j.worker
-- logged: one event per settled and per claimed job.
), logged AS (
  INSERT INTO detent.events (job_id, seq, event, source, target, at, actor, execution_no, retries, lane, xid)
  SELECT *, (SELECT pg_current_xact_id()::text::bigint) FROM (
    SELECT id, version, event, source, target, updated_at, worker, execution_no, retries, lane FROM settled
    UNION ALL
    SELECT id, version, event, source, target, updated_at, worker, execution_no, retries, lane FROM claimed) e
)
-- The head row: [6] ids of the settled jobs, or NULL if all were settled; [7] how many. Then one row per claimed job.
SELECT NULL, NULL, NULL, NULL, NULL, NULL,
  CASE WHEN (SELECT count(*) FROM settled) < cardinality(:ids::text[])
    THEN (SELECT coalesce(string_agg(id::text, ','), '') FROM settled) END,
  (SELECT count(*)::int FROM settled), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
UNION ALL
SELECT id::text, token, contract, job_type, queue, tenant_id, payload, execution_no, retries, version, timeout_ms,
  trace_id, coalesce(effect_root, id::text), idempotency_key, cancel_requested, due_at, traceparent, parent_id,
  losses >= 2
FROM claimed;
