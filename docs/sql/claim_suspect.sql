-- Claims a suspect: a job whose last executions were lost. Its worker runs it alone.
-- Parts: part_now, part_promote, part_walk, part_pick, part_claim, part_log_claimed, part_answer_claimed.
-- Filled in: {first} = 9187343239835811839::bigint; {last} = 9223372036854775807; {closed} = (nothing); {promoted} =
--   (SELECT count(*)::int FROM promoted); {version} = (SELECT version FROM t).
-- Parameters are sent by number: $1 version, $2 wanted, $3 groups, $4 paused_parties, $5 relaxed, $6 floor_lanes, $7
--   floor_dues, $8 floor_ids, $9 cursors, $10 claim_sources, $11 claim_edges, $12 claim_targets, $13 token, $14 worker,
--   $15 lease.

WITH RECURSIVE
-- t: current time, lane version, allowed groups, paused parties. If the caller's lane cache is out of date, wanted is
-- 0 and nothing is claimed, so that a pause is effective from its commit on. A claim without successes commits with
-- synchronous_commit = off (:relaxed).
t AS MATERIALIZED (
  SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now, value AS version, CASE value WHEN :version::bigint THEN :wanted::int ELSE 0 END AS wanted,
    CAST(:groups::text[] AS bigint[]) AS groups, CAST(:paused_parties::text[] AS bigint[]) AS paused
  FROM detent.lane_version WHERE NOT :relaxed::boolean OR set_config('synchronous_commit', 'off', true) IS NOT NULL
),
-- due, promoted: up to max(wanted, 200) future jobs whose time has come move to the queue. This statement cannot claim
-- them yet, so the caller repeats the claim. A job that another transaction has locked stays in timers.
due AS MATERIALIZED (
  SELECT t.at, j.lane, j.due_at, j.id FROM (
    SELECT ctid AS at, id FROM detent.timers WHERE NOT wakes AND due_at <= (SELECT now FROM t) ORDER BY due_at
    LIMIT (SELECT CASE WHEN wanted > 0 THEN greatest(wanted, 200) ELSE 0 END FROM t) FOR UPDATE SKIP LOCKED) t
  CROSS JOIN LATERAL (SELECT lane, due_at, id FROM detent.jobs WHERE id = t.id OFFSET 0 FOR UPDATE SKIP LOCKED) j
), promoted AS (
  INSERT INTO detent.queue (lane, due_at, id) SELECT lane, due_at, id FROM due ON CONFLICT DO NOTHING RETURNING 1
), untimed AS (
  DELETE FROM detent.timers x USING due d WHERE x.ctid = d.at
),
-- floors: (due_at, id) per lane below which a recent claim left nothing; probes start there instead of reading the dead
-- index entries of claimed jobs, which remain while an old snapshot exists.
floors AS MATERIALIZED (
  SELECT * FROM unnest(CAST(:floor_lanes::text[] AS bigint[]), CAST(:floor_dues::text[] AS bigint[]),
    CAST(:floor_ids::text[] AS uuid[])) f (lane, due_at, id)
-- walk: the lanes to claim from, at most :wanted, highest priority first; within a rank it starts after the lane that
-- was claimed from last (the cursor) and wraps around. One index probe per step. Each row is a state:
--
--   lap | searches lanes in (pos, stop]    | lane with queued jobs found         | nothing found
--   ----+----------------------------------+-------------------------------------+-----------------------
--    0  | from pos on: the next rank       | lap 1 of its rank, after the cursor | lap 9
--    1  | after the cursor to end of rank  | stay in lap 1, pos = that lane      | lap 2
--    2  | start of rank to the cursor      | stay in lap 2, pos = that lane      | lap 0, after this rank
--    9  | end of the walk                  |                                     |
--
-- turn = the cursor of the rank; lane = a lane to claim from, NULL for a step that emits none; found = lanes so far;
-- step = order of the steps, which is also the order of the claims.
--   f: the first lane in the range that has a floor. a: the first lane before f with queued jobs. b: the lane of f, if
--   there is no a and it has queued jobs from its floor on. h: a or b, with rank and group. k: the cursor of h's rank.
--   n: the next state, exactly one of these five:
--     1. lap 0 and a lane found: begin lap 1 of its rank.
--     2. laps 1, 2 and a lane of an allowed group found: emit it, unless its party is paused or {closed} holds.
--     3. laps 1, 2 and a lane of another group found: skip to the next allowed group of the rank.
--     4. no lane found, but there is an f: it has nothing above its floor, continue after it.
--     5. nothing found: next lap, as in the table.
), walk (pos, stop, turn, rank, lap, lane, found, step) AS (
  SELECT 9187343239835811839::bigint, 9223372036854775807, -1::bigint, 0::bigint, 0, NULL::bigint, 0, 0
  UNION ALL
  SELECT n.pos, n.stop, n.turn, n.rank, n.lap, n.lane, w.found + (n.lane IS NOT NULL)::int, w.step + 1
  FROM walk w
  LEFT JOIN LATERAL (SELECT * FROM floors f WHERE f.lane > w.pos AND f.lane <= w.stop ORDER BY lane LIMIT 1) f ON true
  LEFT JOIN LATERAL (SELECT q.lane FROM detent.queue q WHERE q.lane > w.pos
    AND q.lane <= coalesce(f.lane - 1, w.stop) ORDER BY q.lane LIMIT 1) a ON true
  LEFT JOIN LATERAL (SELECT q.lane FROM detent.queue q WHERE a.lane IS NULL AND q.lane = f.lane
    AND (q.due_at, q.id) >= (f.due_at, f.id) ORDER BY q.due_at, q.id LIMIT 1) b ON true
  CROSS JOIN LATERAL (SELECT coalesce(a.lane, b.lane) AS lane, coalesce(a.lane, b.lane) >> 55 AS rank,
    (coalesce(a.lane, b.lane) >> 31) & 16777215 AS grp OFFSET 0) h
  LEFT JOIN LATERAL (SELECT coalesce((SELECT max(c) FROM unnest(CAST(:cursors::text[] AS bigint[])) c
    WHERE c >> 55 = h.rank), (h.rank << 55) - 1) AS pos WHERE w.lap = 0 AND h.lane IS NOT NULL OFFSET 0) k ON true
  CROSS JOIN LATERAL (
    SELECT k.pos, (h.rank << 55) | 36028797018963967, k.pos, h.rank, 1, NULL::bigint
      WHERE h.lane IS NOT NULL AND w.lap = 0
    UNION ALL
    SELECT h.lane, w.stop, w.turn, w.rank, w.lap,
      CASE WHEN (h.lane & 2147483647) = ANY ((SELECT paused FROM t)::bigint[]) THEN NULL ELSE h.lane END
      WHERE h.lane IS NOT NULL AND w.lap > 0 AND h.grp = ANY ((SELECT groups FROM t)::bigint[])
    UNION ALL
    SELECT coalesce((((SELECT min(g) FROM unnest((SELECT groups FROM t)) g WHERE g > h.grp) << 31)
      | (w.rank << 55)) - 1, w.stop), w.stop, w.turn, w.rank, w.lap, NULL
      WHERE w.lap > 0 AND h.grp <> ALL ((SELECT groups FROM t)::bigint[])
    UNION ALL
    SELECT f.lane, w.stop, w.turn, w.rank, w.lap, NULL WHERE h.lane IS NULL AND f.lane IS NOT NULL
    UNION ALL
    SELECT CASE w.lap WHEN 1 THEN (w.rank << 55) - 1 ELSE (w.rank << 55) | 36028797018963967 END,
      CASE w.lap WHEN 1 THEN w.turn ELSE 9223372036854775807 END, w.turn, w.rank,
      CASE w.lap WHEN 0 THEN 9 WHEN 1 THEN 2 ELSE 0 END, NULL WHERE h.lane IS NULL AND f.lane IS NULL
  ) n (pos, stop, turn, rank, lap, lane)
  WHERE w.lap < 9 AND w.found < (SELECT wanted FROM t) AND w.step < 10000
-- lanes: the emitted lanes with their floors; n = number of lanes of the same rank.
), lanes AS MATERIALIZED (
  SELECT w.lane, w.rank, w.step, f.due_at, f.id, count(*) OVER (PARTITION BY w.rank)::int AS n
  FROM walk w LEFT JOIN floors f USING (lane) WHERE w.lane IS NOT NULL
),
-- picked: locks queue rows and their jobs, oldest due first. Per rank, pass 1 takes an even share (quota) of every lane,
-- pass 2 fills up from lanes that have more; then the next rank follows. Jobs are locked before their queue rows
-- everywhere else; here what others have locked is skipped and nothing waits, so that there is no deadlock.
picked AS MATERIALIZED (
  SELECT k.queued_at, k.at, k.state, l.step FROM (
    SELECT *, ((SELECT wanted FROM t) + n - 1) / n AS quota FROM lanes CROSS JOIN (VALUES (1), (2)) v (pass)
    WHERE pass = 1 OR n > 1 ORDER BY rank, pass, step) l
  CROSS JOIN LATERAL (
    SELECT q.at AS queued_at, j.at, j.state FROM (
      SELECT ctid AS at, id FROM detent.queue WHERE lane = l.lane
        AND (due_at, id) >= (coalesce(l.due_at, -1), coalesce(l.id, '00000000-0000-0000-0000-000000000000'))
      ORDER BY due_at, id FOR UPDATE SKIP LOCKED) q
    CROSS JOIN LATERAL (SELECT ctid AS at, state FROM detent.jobs WHERE id = q.id OFFSET 0 FOR UPDATE SKIP LOCKED) j
    LIMIT CASE l.pass WHEN 1 THEN l.quota ELSE (SELECT wanted FROM t) END
    OFFSET CASE l.pass WHEN 1 THEN 0 ELSE l.quota END) k
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
  UPDATE detent.jobs j SET state = m.target, token = :token::text,
-- The columns that a claim sets, beside state and token. Times never go backwards within a job, hence greatest().
version = j.version + 1, execution_no = j.execution_no + 1,
    worker = :worker::int,
    lease_until = greatest((SELECT now FROM t), j.updated_at) + least(:lease::bigint, timeout_ms * 1000 + 1000000),
    updated_at = greatest((SELECT now FROM t), j.updated_at),
    started_at = coalesce(j.started_at, greatest((SELECT now FROM t), j.updated_at)), next_retry_at = NULL
  FROM mine m WHERE j.ctid = m.at AND m.target IS NOT NULL AND (SELECT count(*) FROM mine) > 0
  RETURNING
-- The columns of a claimed job.
j.id, j.lane, j.payload::text AS payload, j.execution_no, coalesce(j.retries, 0) AS retries, j.version, j.timeout_ms,
    j.trace_id, j.effect_root, j.idempotency_key, j.cancel_requested::text AS cancel_requested, j.due_at, j.traceparent,
    j.parent_id, j.token, coalesce(j.losses, 0) AS losses, j.updated_at, j.worker, j.lease_until, m.step, m.edge, m.queued_at
-- taken: only of jobs that were claimed. One that was changed since the snapshot of this statement is not, and stays.
), taken AS (
  DELETE FROM detent.queue q USING (
    SELECT queued_at FROM claimed UNION ALL SELECT queued_at FROM mine WHERE target IS NULL) m WHERE q.ctid = m.queued_at
), leased AS (
  INSERT INTO detent.claims (check_at, ids) SELECT min(lease_until), array_agg(id) FROM claimed HAVING count(*) > 0
  RETURNING check_at, n
),
logged AS (
  INSERT INTO detent.events (job_id, seq, edge, at, actor, execution_no, retries, lane, xid)
  SELECT id, version, edge, updated_at, worker, execution_no, retries, lane, (SELECT pg_current_xact_id()::text::bigint)
  FROM claimed
)
-- The same for statements that settle nothing.
SELECT NULL AS id, (SELECT now FROM t) AS lane, NULL AS payload, 0 AS execution_no, (SELECT count(*)::int FROM promoted) AS retries, NULL::int AS version,
  (SELECT version FROM t) AS timeout_ms, NULL AS trace_id, NULL AS effect_root, NULL AS idempotency_key, NULL AS cancel_requested,
  (SELECT check_at FROM leased) AS due_at, NULL::int AS step, NULL AS traceparent, NULL AS parent_id, NULL AS token,
  NULL::int AS losses, (SELECT n FROM leased) AS claim
UNION ALL
SELECT id::text, lane, payload, execution_no, retries, version, timeout_ms, trace_id, effect_root, idempotency_key,
  cancel_requested, due_at, step, traceparent, parent_id, token, losses, NULL FROM claimed;
