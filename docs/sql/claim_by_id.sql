-- Claims the jobs that messages of a stream name, and records successes.
-- Parts: part_now_by_id, part_settle, part_done, part_claim_by_id, part_log_both, part_answer.
-- Filled in: {promoted} = 0; {version} = NULL::bigint.
-- Parameters are sent by number: $1 ids, $2 tokens, $3 results, $4 end_sources, $5 end_edges, $6 end_targets, $7
--   family, $8 done_times, $9 done_numbers, $10 named_ids, $11 named_tokens, $12 named_counts, $13 claim_sources, $14
--   claim_edges, $15 claim_targets, $16 worker, $17 lease.

WITH RECURSIVE
t AS MATERIALIZED (
  SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now
),
-- held: the leased rows of the successes whose token matches and whose timeout has not passed, in the order of :ids
-- (sorted by the caller, so that two statements cannot deadlock). Rows locked by others are skipped; the caller gets them
-- back as unsettled.
-- Children are settled only with :family, when the caller also writes the event for their parents.
held AS MATERIALIZED (
  SELECT j.at, j.worker, x.edge, x.target, s.result
  FROM unnest(CAST(:ids::text[] AS uuid[]), :tokens::text[], :results::text[]) s (id, token, result)
  CROSS JOIN LATERAL (SELECT ctid AS at, state, token, worker, parent_id, updated_at + timeout_ms * 1000 AS times_out_at FROM detent.jobs
    WHERE id = s.id OFFSET 0 FOR UPDATE SKIP LOCKED) j
  JOIN unnest(CAST(:end_sources::text[] AS int[]), CAST(:end_edges::text[] AS int[]), CAST(:end_targets::text[] AS int[]))
    x (source, edge, target) ON x.source = j.state
  WHERE j.token = s.token AND (j.parent_id IS NULL OR :family::boolean)
    AND (j.times_out_at < (SELECT now FROM t)) IS NOT TRUE
-- settled: leased -> final.
), settled AS (
  UPDATE detent.jobs j SET state = h.target, result = h.result,
-- The columns that a success sets, beside state and result.
version = j.version + 1, updated_at = greatest((SELECT now FROM t), j.updated_at),
    finished_at = greatest((SELECT now FROM t), j.updated_at),
    worker = NULL, lease_until = NULL, due_at = NULL, error_code = NULL, error_message = NULL, cancel_requested = NULL
  FROM held h WHERE j.ctid = h.at
  RETURNING j.id, j.version, h.edge, j.updated_at, h.worker, j.execution_no, coalesce(j.retries, 0) AS retries, j.lane
),
-- done: claims whose jobs are all settled. Those that a sweep has locked or replaced are left to it.
done AS (
  DELETE FROM detent.claims c USING (
    SELECT k.at FROM unnest(CAST(:done_times::text[] AS bigint[]), CAST(:done_numbers::text[] AS bigint[])) d (check_at, n)
    CROSS JOIN LATERAL (SELECT ctid AS at FROM detent.claims WHERE check_at = d.check_at AND n = d.n
      OFFSET 0 FOR UPDATE SKIP LOCKED) k) d WHERE c.ctid = d.at
),
-- named: the due jobs with these ids. The failure count must match, so that a stream message about an earlier attempt
-- claims nothing.
named AS MATERIALIZED (
  SELECT j.at, x.edge, x.target, s.token
  FROM unnest(CAST(:named_ids::text[] AS uuid[]), :named_tokens::text[], CAST(:named_counts::text[] AS integer[]))
    s (id, token, failures)
  CROSS JOIN LATERAL (SELECT ctid AS at, state, failures, due_at FROM detent.jobs
    WHERE id = s.id OFFSET 0 FOR UPDATE SKIP LOCKED) j
  JOIN unnest(CAST(:claim_sources::text[] AS int[]), CAST(:claim_edges::text[] AS int[]),
    CAST(:claim_targets::text[] AS int[])) x (source, edge, target) ON x.source = j.state
  WHERE coalesce(j.failures, 0) = s.failures AND j.due_at <= (SELECT now FROM t)
-- claimed: claimable -> leased.
), claimed AS (
  UPDATE detent.jobs j SET state = n.target, token = n.token,
-- The columns that a claim sets, beside state and token. Times never go backwards within a job, hence greatest().
version = j.version + 1, execution_no = j.execution_no + 1,
    worker = :worker::int,
    lease_until = greatest((SELECT now FROM t), j.updated_at) + least(:lease::bigint, timeout_ms * 1000 + 1000000),
    updated_at = greatest((SELECT now FROM t), j.updated_at),
    started_at = coalesce(j.started_at, greatest((SELECT now FROM t), j.updated_at)), next_retry_at = NULL
  FROM named n WHERE j.ctid = n.at
  RETURNING
-- The columns of a claimed job.
j.id, j.lane, j.payload::text AS payload, j.execution_no, coalesce(j.retries, 0) AS retries, j.version, j.timeout_ms,
    j.trace_id, j.effect_root, j.idempotency_key, j.cancel_requested::text AS cancel_requested, j.due_at, j.traceparent,
    j.parent_id, j.token, coalesce(j.losses, 0) AS losses, j.updated_at, j.worker, j.lease_until, 0 AS step, n.edge
), taken AS (
  DELETE FROM detent.queue q USING (
    SELECT k.at FROM claimed c CROSS JOIN LATERAL (SELECT ctid AS at FROM detent.queue
      WHERE lane = c.lane AND due_at = c.due_at AND id = c.id OFFSET 0) k) c WHERE q.ctid = c.at
), untimed AS (
  DELETE FROM detent.timers x USING (
    SELECT k.at FROM claimed c CROSS JOIN LATERAL (SELECT ctid AS at FROM detent.timers
      WHERE NOT wakes AND due_at = c.due_at AND id = c.id OFFSET 0) k) c WHERE x.ctid = c.at
), leased AS (
  INSERT INTO detent.claims (check_at, ids) SELECT min(lease_until), array_agg(id) FROM claimed HAVING count(*) > 0
  RETURNING check_at, n
),
-- logged: one event per settled and per claimed job; seq is the new version of the row.
logged AS (
  INSERT INTO detent.events (job_id, seq, edge, at, actor, execution_no, retries, lane, xid)
  SELECT *, (SELECT pg_current_xact_id()::text::bigint) FROM (
    SELECT id, version, edge, updated_at, worker, execution_no, retries, lane FROM settled
    UNION ALL
    SELECT id, version, edge, updated_at, worker, execution_no, retries, lane FROM claimed) e
)
-- The head row: lane = the server's time; settled = ids of the settled jobs, or NULL if all were settled; number = how many; promoted; version =
-- lane version; check_at, claim = the row of table claims. Then one row per claimed job.
SELECT NULL AS id, (SELECT now FROM t) AS lane, CASE WHEN (SELECT count(*) FROM settled) < cardinality(:ids::text[])
    THEN (SELECT coalesce(string_agg(id::text, ','), '') FROM settled) END AS payload,
  (SELECT count(*)::int FROM settled) AS execution_no, 0 AS retries, NULL::int AS version,
  NULL::bigint AS timeout_ms, NULL AS trace_id, NULL AS effect_root, NULL AS idempotency_key, NULL AS cancel_requested,
  (SELECT check_at FROM leased) AS due_at, NULL::int AS step, NULL AS traceparent, NULL AS parent_id, NULL AS token,
  NULL::int AS losses, (SELECT n FROM leased) AS claim
UNION ALL
SELECT id::text, lane, payload, execution_no, retries, version, timeout_ms, trace_id, effect_root, idempotency_key,
  cancel_requested, due_at, step, traceparent, parent_id, token, losses, NULL FROM claimed;
