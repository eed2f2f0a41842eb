-- The same while one lane is the only one with jobs: without the walk and promotion.
-- Parts: part_now_lane, part_settle, part_pick_lane, part_claim, part_log_both, part_answer.
-- Filled in: {promoted} = 0; {version} = (SELECT version FROM t).
-- Parameters are sent by number: $1 version, $2 wanted, $3 ids, $4 tokens, $5 results, $6 end_sources, $7 end_edges, $8
--   end_targets, $9 family, $10 done_times, $11 done_numbers, $12 lane, $13 floor_due, $14 floor_id, $15 claim_sources,
--   $16 claim_edges, $17 claim_targets, $18 token, $19 worker, $20 lease.

WITH RECURSIVE
-- The same without what only the walk needs.
t AS MATERIALIZED (
  SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now, value AS version, CASE value WHEN :version::bigint THEN :wanted::int ELSE 0 END AS wanted
  FROM detent.lane_version
),
-- held: the leased rows of the successes whose token matches and whose timeout has not passed, locked in the order of :ids (sorted by the caller, so
-- that two statements cannot deadlock). Rows locked by others are skipped; the caller gets them back as unsettled.
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
-- settled: leased -> final. Times never go backwards within a job, hence greatest().
), settled AS (
  UPDATE detent.jobs j SET state = h.target, version = j.version + 1, result = h.result,
    updated_at = greatest((SELECT now FROM t), j.updated_at), finished_at = greatest((SELECT now FROM t), j.updated_at),
    worker = NULL, lease_until = NULL, due_at = NULL, error_code = NULL, error_message = NULL, cancel_requested = NULL
  FROM held h WHERE j.ctid = h.at
  RETURNING j.id, j.version, h.edge, j.updated_at, h.worker, j.execution_no, j.retries, j.lane
-- done: claims whose jobs are all settled. Those that a sweep has locked or replaced are left to it.
), done AS (
  DELETE FROM detent.claims c USING (
    SELECT k.at FROM unnest(CAST(:done_times::text[] AS bigint[]), CAST(:done_numbers::text[] AS bigint[])) d (check_at, n)
    CROSS JOIN LATERAL (SELECT ctid AS at FROM detent.claims WHERE check_at = d.check_at AND n = d.n
      OFFSET 0 FOR UPDATE SKIP LOCKED) k) d WHERE c.ctid = d.at
),
-- picked: the same for one lane that the caller knows, from its floor on.
picked AS MATERIALIZED (
  SELECT q.at AS queued_at, j.at, j.state, 0 AS step FROM (
    SELECT ctid AS at, id FROM detent.queue
    WHERE lane = :lane::bigint AND (due_at, id) >= (:floor_due::bigint, CAST(:floor_id::text AS uuid))
    ORDER BY due_at, id FOR UPDATE SKIP LOCKED) q
  CROSS JOIN LATERAL (SELECT ctid AS at, state FROM detent.jobs WHERE id = q.id OFFSET 0 FOR UPDATE SKIP LOCKED) j
  LIMIT (SELECT wanted FROM t)
),
-- mine: the picked jobs with their transition. A job that is not claimable (target is NULL) was claimed by id while
-- another process moved it to the queue: only its queue row goes.
mine AS MATERIALIZED (
  SELECT p.queued_at, p.at, x.edge, x.target, p.step FROM picked p
  LEFT JOIN unnest(CAST(:claim_sources::text[] AS int[]), CAST(:claim_edges::text[] AS int[]),
    CAST(:claim_targets::text[] AS int[])) x (source, edge, target) ON x.source = p.state
  WHERE x.target IS NOT NULL OR p.state & 3 <> 0
-- claimed: claimable -> leased. The condition on count(*) computes all of picked and mine before the first row changes:
-- OFFSET in pass 2 does not count rows that this statement has already changed.
), claimed AS (
  UPDATE detent.jobs j SET state = m.target, version = j.version + 1, token = :token::text,
    worker = :worker::int, lease_until = greatest((SELECT now FROM t), j.updated_at) + least(:lease::bigint, timeout_ms * 1000 + 1000000),
    execution_no = j.execution_no + 1, updated_at = greatest((SELECT now FROM t), j.updated_at),
    started_at = coalesce(j.started_at, greatest((SELECT now FROM t), j.updated_at)), next_retry_at = NULL
  FROM mine m WHERE j.ctid = m.at AND m.target IS NOT NULL AND (SELECT count(*) FROM mine) > 0
  RETURNING j.id, j.lane, j.payload::text AS payload, j.execution_no, j.retries, j.version, j.timeout_ms, j.trace_id,
    j.effect_root, j.idempotency_key, j.cancel_requested::text AS cancel_requested, j.due_at, m.step, j.traceparent,
    j.parent_id, j.token, j.losses, m.edge, j.updated_at, j.worker, j.lease_until, m.queued_at
-- taken: only of jobs that were claimed. One that was changed since the snapshot of this statement is not, and stays.
), taken AS (
  DELETE FROM detent.queue q USING (
    SELECT queued_at FROM claimed UNION ALL SELECT queued_at FROM mine WHERE target IS NULL) m WHERE q.ctid = m.queued_at
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
-- The head row: settled = ids of the settled jobs, or NULL if all were settled; number = how many; promoted; version =
-- lane version; check_at, claim = the row of table claims. Then one row per claimed job.
SELECT NULL AS id, NULL::bigint AS lane, CASE WHEN (SELECT count(*) FROM settled) < cardinality(:ids::text[])
    THEN (SELECT coalesce(string_agg(id::text, ','), '') FROM settled) END AS payload,
  (SELECT count(*)::int FROM settled) AS execution_no, 0 AS retries, NULL::int AS version,
  (SELECT version FROM t) AS timeout_ms, NULL AS trace_id, NULL AS effect_root, NULL AS idempotency_key, NULL AS cancel_requested,
  (SELECT check_at FROM leased) AS due_at, NULL::int AS step, NULL AS traceparent, NULL AS parent_id, NULL AS token,
  NULL::int AS losses, (SELECT n FROM leased) AS claim
UNION ALL
SELECT id::text, lane, payload, execution_no, retries, version, timeout_ms, trace_id, effect_root, idempotency_key,
  cancel_requested, due_at, step, traceparent, parent_id, token, losses, NULL FROM claimed;
