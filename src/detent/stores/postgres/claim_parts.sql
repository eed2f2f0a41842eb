-- The parts of the claim statements. dialect.py composes each statement from a list of parts: CTEs, then a final SELECT.
-- The composed texts are in docs/sql.
--
-- Tables: jobs by primary key, queue (lane, due_at, id), timers (wakes, due_at, id), claims. Every join to jobs is a LATERAL
-- index probe or uses the ctid of a row locked before: a plan made while the tables were empty cannot become a scan.
-- OFFSET 0 keeps the planner from flattening a subquery.
-- Parameters: arrays are text[] and cast here, because asyncpg asks the server about other array types before their
-- first use. {clock}: the current time. Shifts and masks are filled in by dialect.py, see lanes.py:
-- a lane is rank << 55 | group << 31 | party. The lanes of suspects are above all others, see {last}.

-- name: list_lease
-- The columns that a claim sets, beside state and token. Times never go backwards within a job, hence greatest().
version = j.version + 1, execution_no = j.execution_no + 1,
    worker = :worker::int,
    lease_until = greatest((SELECT now FROM t), j.updated_at) + least(:lease::bigint, {longest_lease}),
    updated_at = greatest((SELECT now FROM t), j.updated_at),
    started_at = coalesce(j.started_at, greatest((SELECT now FROM t), j.updated_at)), next_retry_at = NULL

-- name: list_leased_columns
-- The columns of a claimed job.
j.id, j.lane, j.payload::text AS payload, j.execution_no, coalesce(j.retries, 0) AS retries, j.version, j.timeout_ms,
    j.trace_id, j.effect_root, j.idempotency_key, j.cancel_requested::text AS cancel_requested, j.due_at, j.traceparent,
    j.parent_id, j.token, coalesce(j.losses, 0) AS losses, j.updated_at, j.worker, j.lease_until

-- name: list_end
-- The columns that a success sets, beside state and result.
version = j.version + 1, updated_at = greatest((SELECT now FROM t), j.updated_at),
    finished_at = greatest((SELECT now FROM t), j.updated_at),
    worker = NULL, lease_until = NULL, due_at = NULL, error_code = NULL, error_message = NULL, cancel_requested = NULL

-- name: part_now
-- t: current time, lane version, allowed groups, paused parties. If the caller's lane cache is out of date, wanted is
-- 0 and nothing is claimed, so that a pause is effective from its commit on. A claim without successes commits with
-- synchronous_commit = off (:relaxed).
t AS MATERIALIZED (
  SELECT {clock} AS now, value AS version, CASE value WHEN :version::bigint THEN :wanted::int ELSE 0 END AS wanted,
    CAST(:groups::text[] AS bigint[]) AS groups, CAST(:paused_parties::text[] AS bigint[]) AS paused
  FROM detent.lane_version WHERE NOT :relaxed::boolean OR set_config('synchronous_commit', 'off', true) IS NOT NULL
)

-- name: part_now_lane
-- The same without what only the walk needs. This statement waits for locked jobs, but only for a moment: then it fails
-- and is repeated by the one that skips them. So a wait cannot become a deadlock either.
t AS MATERIALIZED (
  SELECT {clock} AS now, value AS version, CASE value WHEN :version::bigint THEN :wanted::int ELSE 0 END AS wanted
  FROM detent.lane_version WHERE set_config('lock_timeout', '{lock_ms}', true) IS NOT NULL
)

-- name: part_now_by_id
t AS MATERIALIZED (
  SELECT {clock} AS now
)

-- name: part_now_limited
-- current: the caller's lane cache is up to date.
t AS MATERIALIZED (
  SELECT {clock} AS now, value AS version, value = :version::bigint AS current FROM detent.lane_version
  WHERE NOT :relaxed::boolean OR set_config('synchronous_commit', 'off', true) IS NOT NULL
)

-- name: part_settle
-- held: the leased rows of the successes whose token matches and whose timeout has not passed, in the order of :ids
-- (sorted by the caller, so that two statements cannot deadlock). Rows locked by others are skipped; the caller gets them
-- back as unsettled.
-- Children are settled only with :family, when the caller also writes the event for their parents.
held AS MATERIALIZED (
  SELECT j.at, j.worker, x.edge, x.target, s.result
  FROM unnest(CAST(:ids::text[] AS uuid[]), :tokens::text[], :results::text[]) s (id, token, result)
  CROSS JOIN LATERAL (SELECT ctid AS at, state, token, worker, parent_id, {times_out_at} AS times_out_at FROM detent.jobs
    WHERE id = s.id OFFSET 0 FOR UPDATE SKIP LOCKED) j
  JOIN unnest(CAST(:end_sources::text[] AS int[]), CAST(:end_edges::text[] AS int[]), CAST(:end_targets::text[] AS int[]))
    x (source, edge, target) ON x.source = j.state
  WHERE j.token = s.token AND (j.parent_id IS NULL OR :family::boolean)
    AND (j.times_out_at < (SELECT now FROM t)) IS NOT TRUE
-- settled: leased -> final.
), settled AS (
  UPDATE detent.jobs j SET state = h.target, result = h.result, {end}
  FROM held h WHERE j.ctid = h.at
  RETURNING j.id, j.version, h.edge, j.updated_at, h.worker, j.execution_no, coalesce(j.retries, 0) AS retries, j.lane
)

-- name: part_settle_waiting
-- The same without locking the rows first, which halves what is written. The update waits for rows that are locked, and
-- changes those that still have the version that was read.
held AS MATERIALIZED (
  SELECT j.at, j.version, j.worker, x.edge, x.target, s.result
  FROM unnest(CAST(:ids::text[] AS uuid[]), :tokens::text[], :results::text[]) s (id, token, result)
  CROSS JOIN LATERAL (SELECT ctid AS at, version, state, token, worker, parent_id, {times_out_at} AS times_out_at
    FROM detent.jobs WHERE id = s.id OFFSET 0) j
  JOIN unnest(CAST(:end_sources::text[] AS int[]), CAST(:end_edges::text[] AS int[]), CAST(:end_targets::text[] AS int[]))
    x (source, edge, target) ON x.source = j.state
  WHERE j.token = s.token AND (j.parent_id IS NULL OR :family::boolean)
    AND (j.times_out_at < (SELECT now FROM t)) IS NOT TRUE
), settled AS (
  UPDATE detent.jobs j SET state = h.target, result = h.result, {end}
  FROM held h WHERE j.ctid = h.at AND j.version = h.version
  RETURNING j.id, j.version, h.edge, j.updated_at, h.worker, j.execution_no, coalesce(j.retries, 0) AS retries, j.lane
)

-- name: part_done
-- done: claims whose jobs are all settled. Those that a sweep has locked or replaced are left to it.
done AS (
  DELETE FROM detent.claims c USING (
    SELECT k.at FROM unnest(CAST(:done_times::text[] AS bigint[]), CAST(:done_numbers::text[] AS bigint[])) d (check_at, n)
    CROSS JOIN LATERAL (SELECT ctid AS at FROM detent.claims WHERE check_at = d.check_at AND n = d.n
      OFFSET 0 FOR UPDATE SKIP LOCKED) k) d WHERE c.ctid = d.at
)

-- name: part_promote
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
)

-- name: part_walk
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
  SELECT {first}, {last}, -1::bigint, 0::bigint, 0, NULL::bigint, 0, 0
  UNION ALL
  SELECT n.pos, n.stop, n.turn, n.rank, n.lap, n.lane, w.found + (n.lane IS NOT NULL)::int, w.step + 1
  FROM walk w
  LEFT JOIN LATERAL (SELECT * FROM floors f WHERE f.lane > w.pos AND f.lane <= w.stop ORDER BY lane LIMIT 1) f ON true
  LEFT JOIN LATERAL (SELECT q.lane FROM detent.queue q WHERE q.lane > w.pos
    AND q.lane <= coalesce(f.lane - 1, w.stop) ORDER BY q.lane LIMIT 1) a ON true
  LEFT JOIN LATERAL (SELECT q.lane FROM detent.queue q WHERE a.lane IS NULL AND q.lane = f.lane
    AND (q.due_at, q.id) >= (f.due_at, f.id) ORDER BY q.due_at, q.id LIMIT 1) b ON true
  CROSS JOIN LATERAL (SELECT coalesce(a.lane, b.lane) AS lane, coalesce(a.lane, b.lane) >> {rank_shift} AS rank,
    (coalesce(a.lane, b.lane) >> {party_bits}) & {group_mask} AS grp OFFSET 0) h
  LEFT JOIN LATERAL (SELECT coalesce((SELECT max(c) FROM unnest(CAST(:cursors::text[] AS bigint[])) c
    WHERE c >> {rank_shift} = h.rank), (h.rank << {rank_shift}) - 1) AS pos WHERE w.lap = 0 AND h.lane IS NOT NULL OFFSET 0) k ON true
  CROSS JOIN LATERAL (
    SELECT k.pos, (h.rank << {rank_shift}) | {cell_mask}, k.pos, h.rank, 1, NULL::bigint
      WHERE h.lane IS NOT NULL AND w.lap = 0
    UNION ALL
    SELECT h.lane, w.stop, w.turn, w.rank, w.lap,
      CASE WHEN (h.lane & {party_mask}) = ANY ((SELECT paused FROM t)::bigint[]){closed} THEN NULL ELSE h.lane END
      WHERE h.lane IS NOT NULL AND w.lap > 0 AND h.grp = ANY ((SELECT groups FROM t)::bigint[])
    UNION ALL
    SELECT coalesce((((SELECT min(g) FROM unnest((SELECT groups FROM t)) g WHERE g > h.grp) << {party_bits})
      | (w.rank << {rank_shift})) - 1, w.stop), w.stop, w.turn, w.rank, w.lap, NULL
      WHERE w.lap > 0 AND h.grp <> ALL ((SELECT groups FROM t)::bigint[])
    UNION ALL
    SELECT f.lane, w.stop, w.turn, w.rank, w.lap, NULL WHERE h.lane IS NULL AND f.lane IS NOT NULL
    UNION ALL
    SELECT CASE w.lap WHEN 1 THEN (w.rank << {rank_shift}) - 1 ELSE (w.rank << {rank_shift}) | {cell_mask} END,
      CASE w.lap WHEN 1 THEN w.turn ELSE {last} END, w.turn, w.rank,
      CASE w.lap WHEN 0 THEN 9 WHEN 1 THEN 2 ELSE 0 END, NULL WHERE h.lane IS NULL AND f.lane IS NULL
  ) n (pos, stop, turn, rank, lap, lane)
  WHERE w.lap < 9 AND w.found < (SELECT wanted FROM t) AND w.step < 10000
-- lanes: the emitted lanes with their floors; n = number of lanes of the same rank.
), lanes AS MATERIALIZED (
  SELECT w.lane, w.rank, w.step, f.due_at, f.id, count(*) OVER (PARTITION BY w.rank)::int AS n
  FROM walk w LEFT JOIN floors f USING (lane) WHERE w.lane IS NOT NULL
)

-- name: part_pick
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
)

-- name: part_claim_lane
-- picked: locks queue rows of one lane that the caller knows, from its floor on.
picked AS MATERIALIZED (
  SELECT ctid AS queued_at, id FROM detent.queue
  WHERE lane = :lane::bigint AND (due_at, id) >= (:floor_due::bigint, CAST(:floor_id::text AS uuid))
  ORDER BY due_at, id LIMIT {wanted} FOR UPDATE SKIP LOCKED
-- claimed: claimable -> leased. A job that is not claimable any more stays in the queue: then this claim brings less than
-- it wanted, and the next one is made by the statement that removes such rows.
), claimed AS (
  UPDATE detent.jobs j SET state = x.target, token = :token::text, {lease}
  FROM unnest(CAST(:claim_sources::text[] AS int[]), CAST(:claim_edges::text[] AS int[]),
    CAST(:claim_targets::text[] AS int[])) x (source, edge, target)
  WHERE j.id = ANY (ARRAY(SELECT id FROM picked)) AND x.source = j.state
  RETURNING {leased_columns}, 0 AS step, x.edge
), taken AS (
  DELETE FROM detent.queue WHERE ctid = ANY (ARRAY(
    SELECT queued_at FROM picked WHERE (id IN (SELECT id FROM claimed)) IS TRUE))
), leased AS (
  INSERT INTO detent.claims (check_at, ids) SELECT min(lease_until), array_agg(id) FROM claimed HAVING count(*) > 0
  RETURNING check_at, n
)

-- name: part_meters
-- locked: the meters, locked in the order of their ids so that two statements cannot deadlock, and only then compared:
-- what other workers claimed since the plan (taken has grown by it) is subtracted from the room.
locked AS MATERIALIZED (
  SELECT u.id, u.spent, u.rated, m.taken = u.seen AS unchanged, u.take <= u.room - (m.taken - u.seen) AS fits
  FROM unnest(CAST(:meters::text[] AS bigint[]), CAST(:seen::text[] AS bigint[]), CAST(:rooms::text[] AS bigint[]),
    CAST(:takes::text[] AS bigint[]), :spent::text[], CAST(:rated::text[] AS boolean[]))
    u (id, seen, room, take, spent, rated)
  CROSS JOIN LATERAL (SELECT taken FROM detent.meters WHERE id = u.id OFFSET 0 FOR UPDATE) m
-- pairs: which meter counts which lane.
), pairs AS MATERIALIZED (
  SELECT p.lane, p.meter, (p.meter IN (SELECT id FROM locked WHERE fits)) IS TRUE AS fits
  FROM unnest(CAST(:pair_lanes::text[] AS bigint[]), CAST(:pair_meters::text[] AS bigint[])) p (lane, meter)
)

-- name: part_pick_limited
-- asked: the lanes whose meters all fit; if a meter has too little room left, none of its lanes is claimed from, and the
-- caller plans again.
asked AS MATERIALIZED (
  SELECT a.lane, a.quota, a.step::int FROM unnest(CAST(:lanes::text[] AS bigint[]), CAST(:quotas::text[] AS bigint[]))
    WITH ORDINALITY a (lane, quota, step)
  WHERE (SELECT current FROM t) AND (a.lane IN (SELECT lane FROM pairs WHERE NOT fits)) IS NOT TRUE
-- picked: locks up to quota jobs per lane, without jobs past their deadline (:dated: deadlines are in use).
), picked AS MATERIALIZED (
  SELECT k.queued_at, k.at, k.state, a.step FROM asked a CROSS JOIN LATERAL (
    SELECT q.at AS queued_at, j.at, j.state FROM (
      SELECT ctid AS at, id FROM detent.queue WHERE lane = a.lane ORDER BY due_at, id FOR UPDATE SKIP LOCKED) q
    CROSS JOIN LATERAL (SELECT ctid AS at, state, deadline_at FROM detent.jobs
      WHERE id = q.id OFFSET 0 FOR UPDATE SKIP LOCKED) j
    WHERE NOT :dated::boolean OR (j.deadline_at <= (SELECT now FROM t)) IS NOT TRUE LIMIT a.quota) k
)

-- name: part_claim
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
  UPDATE detent.jobs j SET state = m.target, token = :token::text, {lease}
  FROM mine m WHERE j.ctid = m.at AND m.target IS NOT NULL AND (SELECT count(*) FROM mine) > 0
  RETURNING {leased_columns}, m.step, m.edge, m.queued_at
-- taken: only of jobs that were claimed. One that was changed since the snapshot of this statement is not, and stays.
), taken AS (
  DELETE FROM detent.queue q USING (
    SELECT queued_at FROM claimed UNION ALL SELECT queued_at FROM mine WHERE target IS NULL) m WHERE q.ctid = m.queued_at
), leased AS (
  INSERT INTO detent.claims (check_at, ids) SELECT min(lease_until), array_agg(id) FROM claimed HAVING count(*) > 0
  RETURNING check_at, n
)

-- name: part_claim_by_id
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
  UPDATE detent.jobs j SET state = n.target, token = n.token, {lease}
  FROM named n WHERE j.ctid = n.at
  RETURNING {leased_columns}, 0 AS step, n.edge
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
)

-- name: part_meter
-- counted, metered: adds the claimed jobs to their meters. spent is the history of a rate limit, "time:number " each;
-- the caller's compacted history replaces it unless another worker has changed the meter since.
counted AS (
  SELECT p.meter, sum(c.n) AS n, max(c.at) AS at FROM (
    SELECT lane, count(*) AS n, max(updated_at) AS at FROM claimed GROUP BY lane) c
  JOIN pairs p ON p.lane = c.lane GROUP BY p.meter
), metered AS (
  UPDATE detent.meters m SET taken = m.taken + c.n, touched_at = (SELECT now FROM t),
    spent = CASE WHEN l.rated THEN CASE WHEN l.unchanged THEN l.spent ELSE m.spent END || c.at || ':' || c.n || ' ' ELSE '' END
  FROM counted c JOIN locked l ON l.id = c.meter WHERE m.id = c.meter
)

-- name: part_log_both
-- logged: one event per settled and per claimed job; seq is the new version of the row.
logged AS (
  INSERT INTO detent.events (job_id, seq, edge, at, actor, execution_no, retries, lane, xid)
  SELECT *, (SELECT pg_current_xact_id()::text::bigint) FROM (
    SELECT id, version, edge, updated_at, worker, execution_no, retries, lane FROM settled
    UNION ALL
    SELECT id, version, edge, updated_at, worker, execution_no, retries, lane FROM claimed) e
)

-- name: part_log_settled
logged AS (
  INSERT INTO detent.events (job_id, seq, edge, at, actor, execution_no, retries, lane, xid)
  SELECT id, version, edge, updated_at, worker, execution_no, retries, lane, (SELECT pg_current_xact_id()::text::bigint)
  FROM settled
)

-- name: part_log_claimed
logged AS (
  INSERT INTO detent.events (job_id, seq, edge, at, actor, execution_no, retries, lane, xid)
  SELECT id, version, edge, updated_at, worker, execution_no, retries, lane, (SELECT pg_current_xact_id()::text::bigint)
  FROM claimed
)

-- name: part_inspect
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
  CROSS JOIN LATERAL (SELECT tenant_id, limit_key FROM detent.lane_parties WHERE id = l.lane & {party_mask} OFFSET 0) p
-- holding: leased jobs per lane, if :counting. Jobs settled by this statement still look leased in its snapshot and are
-- left out.
), holding AS MATERIALIZED (
  SELECT j.lane, count(*) AS n FROM (
    SELECT DISTINCT u.id FROM detent.claims c CROSS JOIN LATERAL unnest(c.ids) u (id) WHERE :counting::boolean) u
  CROSS JOIN LATERAL (SELECT id, lane, state FROM detent.jobs WHERE id = u.id OFFSET 0) j
  WHERE j.state & 3 = 1 AND (j.id IN (SELECT id FROM settled)) IS NOT TRUE GROUP BY j.lane
)

-- name: part_answer
-- The head row: lane = the server's time; settled = ids of the settled jobs, or NULL if all were settled; number = how many; promoted; version =
-- lane version; check_at, claim = the row of table claims. Then one row per claimed job.
SELECT NULL AS id, (SELECT now FROM t) AS lane, CASE WHEN (SELECT count(*) FROM settled) < cardinality(:ids::text[])
    THEN (SELECT coalesce(string_agg(id::text, ','), '') FROM settled) END AS payload,
  (SELECT count(*)::int FROM settled) AS execution_no, {promoted} AS retries, NULL::int AS version,
  {version} AS timeout_ms, NULL AS trace_id, NULL AS effect_root, NULL AS idempotency_key, NULL AS cancel_requested,
  (SELECT check_at FROM leased) AS due_at, NULL::int AS step, NULL AS traceparent, NULL AS parent_id, NULL AS token,
  NULL::int AS losses, (SELECT n FROM leased) AS claim
UNION ALL
SELECT id::text, lane, payload, execution_no, retries, version, timeout_ms, trace_id, effect_root, idempotency_key,
  cancel_requested, due_at, step, traceparent, parent_id, token, losses, NULL FROM claimed

-- name: part_answer_claimed
-- The same for statements that settle nothing.
SELECT NULL AS id, (SELECT now FROM t) AS lane, NULL AS payload, 0 AS execution_no, {promoted} AS retries, NULL::int AS version,
  (SELECT version FROM t) AS timeout_ms, NULL AS trace_id, NULL AS effect_root, NULL AS idempotency_key, NULL AS cancel_requested,
  (SELECT check_at FROM leased) AS due_at, NULL::int AS step, NULL AS traceparent, NULL AS parent_id, NULL AS token,
  NULL::int AS losses, (SELECT n FROM leased) AS claim
UNION ALL
SELECT id::text, lane, payload, execution_no, retries, version, timeout_ms, trace_id, effect_root, idempotency_key,
  cancel_requested, due_at, step, traceparent, parent_id, token, losses, NULL FROM claimed

-- name: part_answer_inspection
-- Rows (first column): 0 head, 1 lane, 2 leased jobs of a lane, 3 meter; see Inspection.of in limited_claim.py.
SELECT 0 AS row, (SELECT now FROM t) AS a, (SELECT version FROM t) AS b, (SELECT count(*) FROM promoted) AS c,
  CASE WHEN (SELECT count(*) FROM settled) < cardinality(:ids::text[])
    THEN (SELECT coalesce(string_agg(id::text, ','), '') FROM settled) END AS d, NULL AS e
UNION ALL
SELECT 1, lane, step, available, tenant_id, limit_key FROM found
UNION ALL
SELECT 2, h.lane, NULL, h.n, p.tenant_id, p.limit_key FROM holding h
CROSS JOIN LATERAL (SELECT tenant_id, limit_key FROM detent.lane_parties WHERE id = h.lane & {party_mask} OFFSET 0) p
UNION ALL
SELECT 3, m.id, m.taken, m.limit_id, m.subject, m.spent FROM detent.limits l
CROSS JOIN LATERAL (SELECT * FROM detent.meters WHERE limit_id = l.id AND subject = '' OFFSET 0) m WHERE l.per = ''
UNION ALL
SELECT 3, m.id, m.taken, m.limit_id, m.subject, m.spent FROM detent.limits l CROSS JOIN found f
CROSS JOIN LATERAL (SELECT queue, job_type FROM detent.lane_groups WHERE id = (f.lane >> {party_bits}) & {group_mask} OFFSET 0) g
CROSS JOIN LATERAL (SELECT * FROM detent.meters WHERE limit_id = l.id AND subject = CASE l.per WHEN 'queue' THEN g.queue
  WHEN 'job_type' THEN g.job_type WHEN 'tenant_id' THEN f.tenant_id ELSE f.tenant_id || chr(31) || f.limit_key END
  OFFSET 0) m WHERE l.per <> ''

-- name: add_meters
INSERT INTO detent.meters (limit_id, subject, touched_at) SELECT u.limit_id, u.subject, :now::bigint
FROM unnest(CAST(:limit_ids::text[] AS bigint[]), :subjects::text[]) u (limit_id, subject) ON CONFLICT DO NOTHING;
