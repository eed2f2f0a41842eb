-- The same while one lane is the only one with jobs: without the walk and promotion.
-- Parts: part_now_lane, part_settle_waiting, part_done, part_claim_lane, part_log_both, part_answer.
-- Filled in: {version} = (SELECT version FROM t); {lock_ms} = 20; {promoted} = 0; {wanted} = (SELECT wanted FROM t).
-- Parameters are sent by number: $1 version, $2 wanted, $3 ids, $4 tokens, $5 results, $6 end_sources, $7 end_edges, $8
--   end_targets, $9 family, $10 done_times, $11 done_numbers, $12 lane, $13 floor_due, $14 floor_id, $15 token, $16
--   worker, $17 lease, $18 claim_sources, $19 claim_edges, $20 claim_targets.

WITH RECURSIVE
-- The same without what only the walk needs. This statement waits for locked jobs, but only for a moment: then it fails
-- and is repeated by the one that skips them. So a wait cannot become a deadlock either.
t AS MATERIALIZED (
  SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now, value AS version, CASE value WHEN :version::bigint THEN :wanted::int ELSE 0 END AS wanted
  FROM detent.lane_version WHERE set_config('lock_timeout', '20', true) IS NOT NULL
),
-- The same without locking the rows first, which halves what is written. The update waits for rows that are locked, and
-- changes those that still have the version that was read.
held AS MATERIALIZED (
  SELECT j.at, j.version, j.worker, x.edge, x.target, s.result
  FROM unnest(CAST(:ids::text[] AS uuid[]), :tokens::text[], :results::text[]) s (id, token, result)
  CROSS JOIN LATERAL (SELECT ctid AS at, version, state, token, worker, parent_id, updated_at + timeout_ms * 1000 AS times_out_at
    FROM detent.jobs WHERE id = s.id OFFSET 0) j
  JOIN unnest(CAST(:end_sources::text[] AS int[]), CAST(:end_edges::text[] AS int[]), CAST(:end_targets::text[] AS int[]))
    x (source, edge, target) ON x.source = j.state
  WHERE j.token = s.token AND (j.parent_id IS NULL OR :family::boolean)
    AND (j.times_out_at < (SELECT now FROM t)) IS NOT TRUE
), settled AS (
  UPDATE detent.jobs j SET state = h.target, result = h.result,
-- The columns that a success sets, beside state and result.
version = j.version + 1, updated_at = greatest((SELECT now FROM t), j.updated_at),
    finished_at = greatest((SELECT now FROM t), j.updated_at),
    worker = NULL, lease_until = NULL, due_at = NULL, error_code = NULL, error_message = NULL, cancel_requested = NULL
  FROM held h WHERE j.ctid = h.at AND j.version = h.version
  RETURNING j.id, j.version, h.edge, j.updated_at, h.worker, j.execution_no, coalesce(j.retries, 0) AS retries, j.lane
),
-- done: claims whose jobs are all settled. Those that a sweep has locked or replaced are left to it.
done AS (
  DELETE FROM detent.claims c USING (
    SELECT k.at FROM unnest(CAST(:done_times::text[] AS bigint[]), CAST(:done_numbers::text[] AS bigint[])) d (check_at, n)
    CROSS JOIN LATERAL (SELECT ctid AS at FROM detent.claims WHERE check_at = d.check_at AND n = d.n
      OFFSET 0 FOR UPDATE SKIP LOCKED) k) d WHERE c.ctid = d.at
),
-- picked: locks queue rows of one lane that the caller knows, from its floor on.
picked AS MATERIALIZED (
  SELECT ctid AS queued_at, id FROM detent.queue
  WHERE lane = :lane::bigint AND (due_at, id) >= (:floor_due::bigint, CAST(:floor_id::text AS uuid))
  ORDER BY due_at, id LIMIT (SELECT wanted FROM t) FOR UPDATE SKIP LOCKED
-- claimed: claimable -> leased. A job that is not claimable any more stays in the queue: then this claim brings less than
-- it wanted, and the next one is made by the statement that removes such rows.
), claimed AS (
  UPDATE detent.jobs j SET state = x.target, token = :token::text,
-- The columns that a claim sets, beside state and token. Times never go backwards within a job, hence greatest().
version = j.version + 1, execution_no = j.execution_no + 1,
    worker = :worker::int,
    lease_until = greatest((SELECT now FROM t), j.updated_at) + least(:lease::bigint, timeout_ms * 1000 + 1000000),
    updated_at = greatest((SELECT now FROM t), j.updated_at),
    started_at = coalesce(j.started_at, greatest((SELECT now FROM t), j.updated_at)), next_retry_at = NULL
  FROM unnest(CAST(:claim_sources::text[] AS int[]), CAST(:claim_edges::text[] AS int[]),
    CAST(:claim_targets::text[] AS int[])) x (source, edge, target)
  WHERE j.id = ANY (ARRAY(SELECT id FROM picked)) AND x.source = j.state
  RETURNING
-- The columns of a claimed job.
j.id, j.lane, j.payload::text AS payload, j.execution_no, coalesce(j.retries, 0) AS retries, j.version, j.timeout_ms,
    j.trace_id, j.effect_root, j.idempotency_key, j.cancel_requested::text AS cancel_requested, j.due_at, j.traceparent,
    j.parent_id, j.token, coalesce(j.losses, 0) AS losses, j.updated_at, j.worker, j.lease_until, 0 AS step, x.edge
), taken AS (
  DELETE FROM detent.queue WHERE ctid = ANY (ARRAY(
    SELECT queued_at FROM picked WHERE (id IN (SELECT id FROM claimed)) IS TRUE))
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
  (SELECT version FROM t) AS timeout_ms, NULL AS trace_id, NULL AS effect_root, NULL AS idempotency_key, NULL AS cancel_requested,
  (SELECT check_at FROM leased) AS due_at, NULL::int AS step, NULL AS traceparent, NULL AS parent_id, NULL AS token,
  NULL::int AS losses, (SELECT n FROM leased) AS claim
UNION ALL
SELECT id::text, lane, payload, execution_no, retries, version, timeout_ms, trace_id, effect_root, idempotency_key,
  cancel_requested, due_at, step, traceparent, parent_id, token, losses, NULL FROM claimed;
