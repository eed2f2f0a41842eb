-- name: settle_and_claim
-- Hot: settle plain successes, promote what has become due, claim what is next, log all of it, in one statement.
-- Relies on the primary key for settling, on jobs_later for promoting, on jobs_ready for walking and picking.
-- Arrays come as text: asyncpg knows text[] by itself, for others it asks the server before the first call.
-- {first} and {closed} are filled by dialect.py: where the walk begins, and what it leaves out under limits.
-- Every join to jobs is by LATERAL or by the ctid of a row locked above: a plan made on an empty table cannot scan.
WITH RECURSIVE t AS MATERIALIZED (  -- a book that is out of date claims nothing: a pause holds from its commit on
  SELECT {clock} AS now, value AS version, CASE value WHEN :version::bigint THEN :wanted::int ELSE 0 END AS wanted,
    CAST(:groups::text[] AS bigint[]) AS groups, CAST(:paused_parties::text[] AS bigint[]) AS paused
  FROM lane_version WHERE NOT :relaxed::boolean OR set_config('synchronous_commit', 'off', true) IS NOT NULL
), held AS MATERIALIZED (           -- ids come in order; a row somebody else holds is looked at again later
  SELECT j.at, j.worker, x.source, x.event, x.target, s.result
  FROM unnest(CAST(:ids::text[] AS uuid[]), :tokens::text[], :results::text[]) s (id, token, result)
  CROSS JOIN LATERAL (SELECT ctid AS at, contract, status, phase, token, worker, parent_id FROM jobs
    WHERE id = s.id OFFSET 0 FOR UPDATE SKIP LOCKED) j
  JOIN unnest(:end_contracts::text[], :end_sources::text[], :end_events::text[], :end_targets::text[])
    x (contract, source, event, target) ON x.contract = j.contract AND x.source = j.status
  WHERE j.token = s.token AND j.phase = 'leased' AND (j.parent_id IS NULL OR :family::boolean)
), settled AS (
  UPDATE jobs j SET status = h.target, phase = 'final', version = j.version + 1, result = h.result,
    updated_at = greatest((SELECT now FROM t), j.updated_at), finished_at = greatest((SELECT now FROM t), j.updated_at),
    worker = NULL, lease_until = NULL, due_at = NULL, error_code = NULL, error_message = NULL, cancel_requested = NULL
  FROM held h WHERE j.ctid = h.at
  RETURNING j.id, j.version, h.event, h.source, h.target, j.updated_at, h.worker, j.execution_no, j.retries, j.lane
), due AS MATERIALIZED (
  SELECT ctid AS at FROM jobs WHERE NOT ready AND due_at IS NOT NULL AND phase IN ('claimable', 'blocked')
    AND phase = 'claimable' AND due_at <= (SELECT now FROM t) ORDER BY due_at
  LIMIT (SELECT CASE WHEN wanted > 0 THEN greatest(wanted, 200) ELSE 0 END FROM t) FOR UPDATE SKIP LOCKED
), promoted AS (
  UPDATE jobs j SET ready = true FROM due d WHERE j.ctid = d.at RETURNING 1
), floors AS MATERIALIZED (
  SELECT * FROM unnest(CAST(:floor_lanes::text[] AS bigint[]), CAST(:floor_dues::text[] AS bigint[]),
    CAST(:floor_ids::text[] AS uuid[])) f (lane, due_at, id)
), walk (pos, stop, turn, rank, lap, lane, found, step) AS (  -- lap 0: next rank, 1: cursor to end, 2: start to cursor
  SELECT {first}, 9223372036854775807, -1::bigint, 0::bigint, 0, NULL::bigint, 0, 0
  UNION ALL
  SELECT n.pos, n.stop, n.turn, n.rank, n.lap, n.lane, w.found + (n.lane IS NOT NULL)::int, w.step + 1
  FROM walk w
  LEFT JOIN LATERAL (SELECT * FROM floors f WHERE f.lane > w.pos AND f.lane <= w.stop ORDER BY lane LIMIT 1) f ON true
  LEFT JOIN LATERAL (SELECT j.lane FROM jobs j WHERE j.ready AND j.lane > w.pos
    AND j.lane <= coalesce(f.lane - 1, w.stop) ORDER BY j.lane LIMIT 1) a ON true
  LEFT JOIN LATERAL (SELECT j.lane FROM jobs j WHERE a.lane IS NULL AND j.ready AND j.lane = f.lane
    AND (j.due_at, j.id) >= (f.due_at, f.id) ORDER BY j.due_at, j.id LIMIT 1) b ON true
  CROSS JOIN LATERAL (SELECT coalesce(a.lane, b.lane) AS lane, coalesce(a.lane, b.lane) >> 55 AS rank,
    (coalesce(a.lane, b.lane) >> 31) & 16777215 AS grp OFFSET 0) h
  LEFT JOIN LATERAL (SELECT coalesce((SELECT max(c) FROM unnest(CAST(:cursors::text[] AS bigint[])) c WHERE c >> 55 = h.rank),
    (h.rank << 55) - 1) AS pos WHERE w.lap = 0 AND h.lane IS NOT NULL OFFSET 0) k ON true
  CROSS JOIN LATERAL (
    SELECT k.pos, (h.rank << 55) | 36028797018963967, k.pos, h.rank, 1, NULL::bigint
      WHERE h.lane IS NOT NULL AND w.lap = 0
    UNION ALL
    SELECT h.lane, w.stop, w.turn, w.rank, w.lap,
      CASE WHEN (h.lane & 2147483647) = ANY ((SELECT paused FROM t)::bigint[]){closed} THEN NULL ELSE h.lane END
      WHERE h.lane IS NOT NULL AND w.lap > 0 AND h.grp = ANY ((SELECT groups FROM t)::bigint[])
    UNION ALL
    SELECT coalesce((((SELECT min(g) FROM unnest((SELECT groups FROM t)) g WHERE g > h.grp) << 31) | (w.rank << 55)) - 1,
      w.stop), w.stop, w.turn, w.rank, w.lap, NULL WHERE w.lap > 0 AND h.grp <> ALL ((SELECT groups FROM t)::bigint[])
    UNION ALL
    SELECT f.lane, w.stop, w.turn, w.rank, w.lap, NULL WHERE h.lane IS NULL AND f.lane IS NOT NULL
    UNION ALL
    SELECT CASE w.lap WHEN 1 THEN (w.rank << 55) - 1 ELSE (w.rank << 55) | 36028797018963967 END,
      CASE w.lap WHEN 1 THEN w.turn ELSE 9223372036854775807 END, w.turn, w.rank,
      CASE w.lap WHEN 0 THEN 9 WHEN 1 THEN 2 ELSE 0 END, NULL WHERE h.lane IS NULL AND f.lane IS NULL
  ) n (pos, stop, turn, rank, lap, lane)
  WHERE w.lap < 9 AND w.found < (SELECT wanted FROM t) AND w.step < 10000
), lanes AS MATERIALIZED (
  SELECT w.lane, w.rank, w.step, f.due_at, f.id, count(*) OVER (PARTITION BY w.rank)::int AS n
  FROM walk w LEFT JOIN floors f USING (lane) WHERE w.lane IS NOT NULL
), picked AS MATERIALIZED (        -- pass 1: an even share per lane; pass 2: fill up; then the next rank
  SELECT k.at, k.contract, k.status, l.step FROM (
    SELECT *, ((SELECT wanted FROM t) + n - 1) / n AS quota FROM lanes CROSS JOIN (VALUES (1), (2)) v (pass)
    WHERE pass = 1 OR n > 1 ORDER BY rank, pass, step) l
  CROSS JOIN LATERAL (
    SELECT j.ctid AS at, j.contract, j.status FROM jobs j WHERE j.ready AND j.lane = l.lane
      AND (j.due_at, j.id) >= (coalesce(l.due_at, -1), coalesce(l.id, '00000000-0000-0000-0000-000000000000'))
    ORDER BY j.due_at, j.id LIMIT CASE l.pass WHEN 1 THEN l.quota ELSE (SELECT wanted FROM t) END
    OFFSET CASE l.pass WHEN 1 THEN 0 ELSE l.quota END FOR UPDATE SKIP LOCKED) k
  LIMIT (SELECT wanted FROM t)
), claimed AS (
  UPDATE jobs j SET status = x.target, phase = 'leased', ready = false, version = j.version + 1, token = :token::text,
    worker = :worker::text, lease_until = greatest((SELECT now FROM t), j.updated_at) + :lease::bigint,
    execution_no = j.execution_no + 1, updated_at = greatest((SELECT now FROM t), j.updated_at),
    started_at = coalesce(j.started_at, greatest((SELECT now FROM t), j.updated_at)), next_retry_at = NULL
  FROM picked p
  JOIN unnest(:claim_contracts::text[], :claim_sources::text[], :claim_events::text[], :claim_targets::text[])
    x (contract, source, event, target) ON x.contract = p.contract AND x.source = p.status
  -- Counted first, so that pass 2 is over before a row changes: it would not count past rows that have changed.
  WHERE j.ctid = p.at AND (SELECT count(*) FROM picked) > 0
  RETURNING j.id, j.contract, j.job_type, j.queue, j.tenant_id, j.payload, j.execution_no, j.retries, j.version,
    j.timeout_ms, j.trace_id, j.effect_root, j.idempotency_key, j.cancel_requested, j.lane, j.due_at, p.step, j.traceparent,
    j.parent_id, x.event, x.source, x.target, j.updated_at, j.worker
), logged AS (
  INSERT INTO events (job_id, seq, event, source, target, at, actor, execution_no, retries, lane, xid)
  SELECT *, (SELECT pg_current_xact_id()::text::bigint) FROM (
    SELECT id, version, event, source, target, updated_at, worker, execution_no, retries, lane FROM settled
    UNION ALL
    SELECT id, version, event, source, target, updated_at, worker, execution_no, retries, lane FROM claimed) e
)
SELECT NULL, NULL, NULL, NULL, NULL,
  CASE WHEN (SELECT count(*) FROM settled) < cardinality(:ids::text[])
    THEN (SELECT coalesce(string_agg(id::text, ','), '') FROM settled) END, (SELECT count(*)::int FROM settled),
  (SELECT count(*)::int FROM promoted), NULL, NULL, NULL, NULL, NULL, NULL, (SELECT version FROM t), NULL, NULL, NULL, NULL
UNION ALL
SELECT id::text, contract, job_type, queue, tenant_id, payload, execution_no, retries, version, timeout_ms, trace_id,
  effect_root, idempotency_key, cancel_requested, lane, due_at, step, traceparent, parent_id FROM claimed;
