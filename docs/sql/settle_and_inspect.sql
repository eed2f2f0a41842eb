-- Within limits, first half: records successes and reads lanes, leased jobs and meters.
-- Parts: part_now, part_settle, part_done, part_promote, part_walk, part_log_settled, part_inspect,
--   part_answer_inspection.
-- Filled in: {first} = :first::bigint; {last} = :last::bigint; {closed} = OR (h.lane & {cell_mask}) = ANY
--   (CAST(:closed::text[] AS bigint[])).
-- Parameters are sent by number: $1 version, $2 wanted, $3 groups, $4 paused_parties, $5 relaxed, $6 ids, $7 tokens, $8
--   results, $9 end_sources, $10 end_edges, $11 end_targets, $12 family, $13 done_times, $14 done_numbers, $15
--   floor_lanes, $16 floor_dues, $17 floor_ids, $18 first, $19 last, $20 cursors, $21 closed, $22 at_most, $23 dated,
--   $24 counting.

WITH RECURSIVE
-- t: current time, lane version, allowed groups, paused parties. If the caller's lane cache is out of date, wanted is
-- 0 and nothing is claimed, so that a pause is effective from its commit on. A claim without successes commits with
-- synchronous_commit = off (:relaxed).
t AS MATERIALIZED (
  SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now, value AS version, CASE value WHEN :version::bigint THEN :wanted::int ELSE 0 END AS wanted,
    CAST(:groups::text[] AS bigint[]) AS groups, CAST(:paused_parties::text[] AS bigint[]) AS paused
  FROM detent.lane_version WHERE NOT :relaxed::boolean OR set_config('synchronous_commit', 'off', true) IS NOT NULL
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
  SELECT :first::bigint, :last::bigint, -1::bigint, 0::bigint, 0, NULL::bigint, 0, 0
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
      CASE WHEN (h.lane & 2147483647) = ANY ((SELECT paused FROM t)::bigint[])
        OR (h.lane & 36028797018963967) = ANY (CAST(:closed::text[] AS bigint[])) THEN NULL ELSE h.lane END
      WHERE h.lane IS NOT NULL AND w.lap > 0 AND h.grp = ANY ((SELECT groups FROM t)::bigint[])
    UNION ALL
    SELECT coalesce((((SELECT min(g) FROM unnest((SELECT groups FROM t)) g WHERE g > h.grp) << 31)
      | (w.rank << 55)) - 1, w.stop), w.stop, w.turn, w.rank, w.lap, NULL
      WHERE w.lap > 0 AND h.grp <> ALL ((SELECT groups FROM t)::bigint[])
    UNION ALL
    SELECT f.lane, w.stop, w.turn, w.rank, w.lap, NULL WHERE h.lane IS NULL AND f.lane IS NOT NULL
    UNION ALL
    SELECT CASE w.lap WHEN 1 THEN (w.rank << 55) - 1 ELSE (w.rank << 55) | 36028797018963967 END,
      CASE w.lap WHEN 1 THEN w.turn ELSE :last::bigint END, w.turn, w.rank,
      CASE w.lap WHEN 0 THEN 9 WHEN 1 THEN 2 ELSE 0 END, NULL WHERE h.lane IS NULL AND f.lane IS NULL
  ) n (pos, stop, turn, rank, lap, lane)
  WHERE w.lap < 9 AND w.found < (SELECT wanted FROM t) AND w.step < 10000
-- lanes: the emitted lanes with their floors; n = number of lanes of the same rank.
), lanes AS MATERIALIZED (
  SELECT w.lane, w.rank, w.step, f.due_at, f.id, count(*) OVER (PARTITION BY w.rank)::int AS n
  FROM walk w LEFT JOIN floors f USING (lane) WHERE w.lane IS NOT NULL
),
logged AS (
  INSERT INTO detent.events (job_id, seq, edge, at, actor, execution_no, retries, lane, xid)
  SELECT id, version, edge, updated_at, worker, execution_no, retries, lane, (SELECT pg_current_xact_id()::text::bigint)
  FROM settled
),
-- found: the lanes of the walk with tenant and limit key. available = queued jobs, counted up to a bound. They are
-- not counted if all lanes have one rank: a repeated claim then divides what one lane lacks among the others.
found AS MATERIALIZED (
  SELECT l.lane, l.step, p.tenant_id, p.limit_key, CASE WHEN l.ranks = 1 THEN :at_most::int ELSE (SELECT count(*) FROM (
    SELECT 1 FROM detent.queue q WHERE q.lane = l.lane
      AND (q.due_at, q.id) >= (coalesce(l.due_at, -1), coalesce(l.id, '00000000-0000-0000-0000-000000000000'))
      AND (NOT :dated::boolean OR (
        (SELECT j.deadline_at FROM detent.jobs j WHERE j.id = q.id) <= (SELECT now FROM t)) IS NOT TRUE)
      LIMIT least(:at_most::int, 4 * (:at_most::int / l.lanes + 1))) a) END AS available
  FROM (SELECT *, (SELECT count(*)::int FROM lanes) AS lanes, (SELECT count(DISTINCT rank) FROM lanes) AS ranks FROM lanes) l
  CROSS JOIN LATERAL (SELECT tenant_id, limit_key FROM detent.lane_parties WHERE id = l.lane & 2147483647 OFFSET 0) p
-- holding: leased jobs per lane, if :counting. Jobs settled by this statement still look leased in its snapshot and are
-- left out.
), holding AS MATERIALIZED (
  SELECT j.lane, count(*) AS n FROM (
    SELECT DISTINCT u.id FROM detent.claims c CROSS JOIN LATERAL unnest(c.ids) u (id) WHERE :counting::boolean) u
  CROSS JOIN LATERAL (SELECT id, lane, state FROM detent.jobs WHERE id = u.id OFFSET 0) j
  WHERE j.state & 3 = 1 AND (j.id IN (SELECT id FROM settled)) IS NOT TRUE GROUP BY j.lane
)
-- Rows (first column): 0 head, 1 lane, 2 leased jobs of a lane, 3 meter; see Inspection.of in limited_claim.py.
SELECT 0 AS row, (SELECT now FROM t) AS a, (SELECT version FROM t) AS b, (SELECT count(*) FROM promoted) AS c,
  CASE WHEN (SELECT count(*) FROM settled) < cardinality(:ids::text[])
    THEN (SELECT coalesce(string_agg(id::text, ','), '') FROM settled) END AS d, NULL AS e
UNION ALL
SELECT 1, lane, step, available, tenant_id, limit_key FROM found
UNION ALL
SELECT 2, h.lane, NULL, h.n, p.tenant_id, p.limit_key FROM holding h
CROSS JOIN LATERAL (SELECT tenant_id, limit_key FROM detent.lane_parties WHERE id = h.lane & 2147483647 OFFSET 0) p
UNION ALL
SELECT 3, m.id, m.taken, m.limit_id, m.subject, m.spent FROM detent.limits l
CROSS JOIN LATERAL (SELECT * FROM detent.meters WHERE limit_id = l.id AND subject = '' OFFSET 0) m WHERE l.per = ''
UNION ALL
SELECT 3, m.id, m.taken, m.limit_id, m.subject, m.spent FROM detent.limits l CROSS JOIN found f
CROSS JOIN LATERAL (SELECT queue, job_type FROM detent.lane_groups WHERE id = (f.lane >> 31) & 16777215 OFFSET 0) g
CROSS JOIN LATERAL (SELECT * FROM detent.meters WHERE limit_id = l.id AND subject = CASE l.per WHEN 'queue' THEN g.queue
  WHEN 'job_type' THEN g.job_type WHEN 'tenant_id' THEN f.tenant_id ELSE f.tenant_id || chr(31) || f.limit_key END
  OFFSET 0) m WHERE l.per <> '';
