-- name: settle_and_claim
-- Hot path: settle plain successes, promote jobs that have become due, claim the next jobs and write all their events,
-- in one statement. dialect.py also derives from it: claim (without held and settled), settle_and_claim_from_rank,
-- settle_and_inspect (up to the CTE lanes) and claim_limited (claimed, logged and the final SELECT).
--
-- Indexes: primary key of jobs (held), jobs_later (due), jobs_ready = (lane, due_at, id) WHERE ready (walk, picked).
-- Every join to jobs is a LATERAL index probe or uses the ctid of a row locked before: a plan made while the table was
-- empty cannot become a scan. OFFSET 0 keeps the planner from flattening a subquery.
-- Parameters: arrays are text[] and cast here, because asyncpg asks the server about other array types before their
-- first use. {first}: position before the first lane of the walk, {last}: its last lane. {closed}: condition for lanes to skip, see
-- dialect.py. {clock}: the current time. :family is true if the successes are child jobs.
--
-- A lane is rank << 55 | group << 31 | party, see lanes.py. Masks: 16777215 = group (24 bits), 2147483647 = party (31
-- bits), 36028797018963967 = group and party (55 bits). The lanes of suspects are above all others, see {last}.
--
-- Lines that start with -- are removed before the statement is sent.

-- t: current time, lane version, allowed groups, paused parties. If the caller's lane cache is out of date, wanted is
-- 0 and nothing is claimed, so that a pause is effective from its commit on. A claim without successes commits with
-- synchronous_commit = off (:relaxed).
WITH RECURSIVE t AS MATERIALIZED (
  SELECT {clock} AS now, value AS version, CASE value WHEN :version::bigint THEN :wanted::int ELSE 0 END AS wanted,
    CAST(:groups::text[] AS bigint[]) AS groups, CAST(:paused_parties::text[] AS bigint[]) AS paused
  FROM detent.lane_version WHERE NOT :relaxed::boolean OR set_config('synchronous_commit', 'off', true) IS NOT NULL
-- held: the leased rows of the successes whose token matches, locked in the order of :ids (sorted by the caller, so
-- that two statements cannot deadlock). Rows locked by others are skipped; the caller gets them back as unsettled.
-- Children are settled only with :family, when the caller also writes the event for their parents.
), held AS MATERIALIZED (
  SELECT j.at, j.worker, x.source, x.event, x.target, s.result
  FROM unnest(CAST(:ids::text[] AS uuid[]), :tokens::text[], :results::text[]) s (id, token, result)
  CROSS JOIN LATERAL (SELECT ctid AS at, contract, status, phase, token, worker, parent_id FROM detent.jobs
    WHERE id = s.id OFFSET 0 FOR UPDATE SKIP LOCKED) j
  JOIN unnest(:end_contracts::text[], :end_sources::text[], :end_events::text[], :end_targets::text[])
    x (contract, source, event, target) ON x.contract = j.contract AND x.source = j.status
  WHERE j.token = s.token AND j.phase = 'leased' AND (j.parent_id IS NULL OR :family::boolean)
-- settled: leased -> final. Times never go backwards within a job, hence greatest().
), settled AS (
  UPDATE detent.jobs j SET status = h.target, phase = 'final', version = j.version + 1, result = h.result,
    updated_at = greatest((SELECT now FROM t), j.updated_at), finished_at = greatest((SELECT now FROM t), j.updated_at),
    worker = NULL, lease_until = NULL, due_at = NULL, error_code = NULL, error_message = NULL, cancel_requested = NULL
  FROM held h WHERE j.ctid = h.at
  RETURNING j.id, j.version, h.event, h.source, h.target, j.updated_at, h.worker, j.execution_no, j.retries, j.lane
-- due, promoted: up to max(wanted, 200) future jobs whose time has come become ready. This statement cannot claim them
-- yet, so the caller repeats the claim. The two conditions on phase match the predicate of the index jobs_later.
), due AS MATERIALIZED (
  SELECT ctid AS at FROM detent.jobs WHERE NOT ready AND due_at IS NOT NULL AND phase IN ('claimable', 'blocked')
    AND phase = 'claimable' AND due_at <= (SELECT now FROM t) ORDER BY due_at
  LIMIT (SELECT CASE WHEN wanted > 0 THEN greatest(wanted, 200) ELSE 0 END FROM t) FOR UPDATE SKIP LOCKED
), promoted AS (
  UPDATE detent.jobs j SET ready = true FROM due d WHERE j.ctid = d.at RETURNING 1
-- floors: (due_at, id) per lane below which a recent claim left nothing; probes start there instead of reading the dead
-- index entries of claimed jobs, which remain while an old snapshot exists.
), floors AS MATERIALIZED (
  SELECT * FROM unnest(CAST(:floor_lanes::text[] AS bigint[]), CAST(:floor_dues::text[] AS bigint[]),
    CAST(:floor_ids::text[] AS uuid[])) f (lane, due_at, id)
-- walk: the lanes to claim from, at most :wanted, highest priority first; within a rank it starts after the lane that
-- was claimed from last (the cursor) and wraps around. One index probe per step. Each row is a state:
--
--   lap | searches lanes in (pos, stop]    | lane with ready jobs found          | nothing found
--   ----+----------------------------------+-------------------------------------+-----------------------
--    0  | from pos on: the next rank       | lap 1 of its rank, after the cursor | lap 9
--    1  | after the cursor to end of rank  | stay in lap 1, pos = that lane      | lap 2
--    2  | start of rank to the cursor      | stay in lap 2, pos = that lane      | lap 0, after this rank
--    9  | end of the walk                  |                                     |
--
-- turn = the cursor of the rank; lane = a lane to claim from, NULL for a step that emits none; found = lanes so far;
-- step = order of the steps, which is also the order of the claims.
--   f: the first lane in the range that has a floor. a: the first lane before f with ready jobs. b: the lane of f, if
--   there is no a and it has ready jobs from its floor on. h: a or b, with rank and group. k: the cursor of h's rank.
--   n: the next state, exactly one of these five:
--     1. lap 0 and a lane found: begin lap 1 of its rank.
--     2. laps 1, 2 and a lane of an allowed group found: emit it, unless its party is paused or {closed} holds.
--     3. laps 1, 2 and a lane of another group found: skip to the next allowed group of the rank.
--     4. no lane found, but there is an f: it has nothing above its floor, continue after it.
--     5. nothing found: next lap, as in the table.
), walk (pos, stop, turn, rank, lap, lane, found, step) AS (
  SELECT {first}, {last}, -1::bigint, 0::bigint, 0, NULL::bigint, 0, 0
  UNION ALL
  SELECT n.pos, n.stop, n.turn, n.rank, n.lap, n.lane, w.found + (n.lane IS NOT NULL)::int, w.step + 1
  FROM walk w
  LEFT JOIN LATERAL (SELECT * FROM floors f WHERE f.lane > w.pos AND f.lane <= w.stop ORDER BY lane LIMIT 1) f ON true
  LEFT JOIN LATERAL (SELECT j.lane FROM detent.jobs j WHERE j.ready AND j.lane > w.pos
    AND j.lane <= coalesce(f.lane - 1, w.stop) ORDER BY j.lane LIMIT 1) a ON true
  LEFT JOIN LATERAL (SELECT j.lane FROM detent.jobs j WHERE a.lane IS NULL AND j.ready AND j.lane = f.lane
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
      CASE w.lap WHEN 1 THEN w.turn ELSE {last} END, w.turn, w.rank,
      CASE w.lap WHEN 0 THEN 9 WHEN 1 THEN 2 ELSE 0 END, NULL WHERE h.lane IS NULL AND f.lane IS NULL
  ) n (pos, stop, turn, rank, lap, lane)
  WHERE w.lap < 9 AND w.found < (SELECT wanted FROM t) AND w.step < 10000
-- lanes: the emitted lanes with their floors; n = number of lanes of the same rank.
), lanes AS MATERIALIZED (
  SELECT w.lane, w.rank, w.step, f.due_at, f.id, count(*) OVER (PARTITION BY w.rank)::int AS n
  FROM walk w LEFT JOIN floors f USING (lane) WHERE w.lane IS NOT NULL
-- picked: locks the jobs to claim, oldest due first. Per rank, pass 1 takes an even share (quota) of every lane, pass 2
-- fills up from lanes that have more; then the next rank follows. Rows locked by others are skipped.
), picked AS MATERIALIZED (
  SELECT k.at, k.contract, k.status, l.step FROM (
    SELECT *, ((SELECT wanted FROM t) + n - 1) / n AS quota FROM lanes CROSS JOIN (VALUES (1), (2)) v (pass)
    WHERE pass = 1 OR n > 1 ORDER BY rank, pass, step) l
  CROSS JOIN LATERAL (
    SELECT j.ctid AS at, j.contract, j.status FROM detent.jobs j WHERE j.ready AND j.lane = l.lane
      AND (j.due_at, j.id) >= (coalesce(l.due_at, -1), coalesce(l.id, '00000000-0000-0000-0000-000000000000'))
    ORDER BY j.due_at, j.id LIMIT CASE l.pass WHEN 1 THEN l.quota ELSE (SELECT wanted FROM t) END
    OFFSET CASE l.pass WHEN 1 THEN 0 ELSE l.quota END FOR UPDATE SKIP LOCKED) k
  LIMIT (SELECT wanted FROM t)
-- claimed: claimable -> leased. The condition on count(*) computes all of picked before the first row changes: OFFSET
-- in pass 2 does not count rows that this statement has already changed.
), claimed AS (
  UPDATE detent.jobs j SET status = x.target, phase = 'leased', ready = false, version = j.version + 1, token = :token::text,
    worker = :worker::text, lease_until = greatest((SELECT now FROM t), j.updated_at) + :lease::bigint,
    execution_no = j.execution_no + 1, updated_at = greatest((SELECT now FROM t), j.updated_at),
    started_at = coalesce(j.started_at, greatest((SELECT now FROM t), j.updated_at)), next_retry_at = NULL
  FROM picked p
  JOIN unnest(:claim_contracts::text[], :claim_sources::text[], :claim_events::text[], :claim_targets::text[])
    x (contract, source, event, target) ON x.contract = p.contract AND x.source = p.status
  WHERE j.ctid = p.at AND (SELECT count(*) FROM picked) > 0
  RETURNING j.id, j.contract, j.job_type, j.queue, j.tenant_id, j.payload, j.execution_no, j.retries, j.version,
    j.timeout_ms, j.trace_id, j.effect_root, j.idempotency_key, j.cancel_requested, j.lane, j.due_at, p.step, j.traceparent,
    j.parent_id, x.event, x.source, x.target, j.updated_at, j.worker
-- logged: one event per settled and per claimed job; seq is the new version of the row.
), logged AS (
  INSERT INTO detent.events (job_id, seq, event, source, target, at, actor, execution_no, retries, lane, xid)
  SELECT *, (SELECT pg_current_xact_id()::text::bigint) FROM (
    SELECT id, version, event, source, target, updated_at, worker, execution_no, retries, lane FROM settled
    UNION ALL
    SELECT id, version, event, source, target, updated_at, worker, execution_no, retries, lane FROM claimed) e
)
-- The head row: [5] ids of the settled jobs, or NULL if all were settled; [6] how many; [7] promoted jobs; [14] lane
-- version. Then one row per claimed job. Read by ClaimResult in claim.py.
SELECT NULL, NULL, NULL, NULL, NULL,
  CASE WHEN (SELECT count(*) FROM settled) < cardinality(:ids::text[])
    THEN (SELECT coalesce(string_agg(id::text, ','), '') FROM settled) END, (SELECT count(*)::int FROM settled),
  (SELECT count(*)::int FROM promoted), NULL, NULL, NULL, NULL, NULL, NULL, (SELECT version FROM t), NULL, NULL, NULL, NULL
UNION ALL
SELECT id::text, contract, job_type, queue, tenant_id, payload, execution_no, retries, version, timeout_ms, trace_id,
  effect_root, idempotency_key, cancel_requested, lane, due_at, step, traceparent, parent_id FROM claimed;
