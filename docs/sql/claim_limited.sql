-- Within limits, second half: claims the planned numbers if the meters still allow them.
-- Parts: part_now_limited, part_meters, part_pick_limited, part_claim, part_meter, part_log_claimed,
--   part_answer_claimed.
-- Filled in: {promoted} = (SELECT count(*)::int FROM locked WHERE NOT fits).
-- Parameters are sent by number: $1 version, $2 relaxed, $3 meters, $4 seen, $5 rooms, $6 takes, $7 spent, $8 rated, $9
--   pair_lanes, $10 pair_meters, $11 lanes, $12 quotas, $13 dated, $14 claim_sources, $15 claim_edges, $16
--   claim_targets, $17 token, $18 worker, $19 lease.

WITH RECURSIVE
-- current: the caller's lane cache is up to date.
t AS MATERIALIZED (
  SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now, value AS version, value = :version::bigint AS current FROM detent.lane_version
  WHERE NOT :relaxed::boolean OR set_config('synchronous_commit', 'off', true) IS NOT NULL
),
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
),
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
),
logged AS (
  INSERT INTO detent.events (job_id, seq, edge, at, actor, execution_no, retries, lane, xid)
  SELECT id, version, edge, updated_at, worker, execution_no, retries, lane, (SELECT pg_current_xact_id()::text::bigint)
  FROM claimed
)
-- The same for statements that settle nothing.
SELECT NULL AS id, (SELECT now FROM t) AS lane, NULL AS payload, 0 AS execution_no, (SELECT count(*)::int FROM locked WHERE NOT fits) AS retries, NULL::int AS version,
  (SELECT version FROM t) AS timeout_ms, NULL AS trace_id, NULL AS effect_root, NULL AS idempotency_key, NULL AS cancel_requested,
  (SELECT check_at FROM leased) AS due_at, NULL::int AS step, NULL AS traceparent, NULL AS parent_id, NULL AS token,
  NULL::int AS losses, (SELECT n FROM leased) AS claim
UNION ALL
SELECT id::text, lane, payload, execution_no, retries, version, timeout_ms, trace_id, effect_root, idempotency_key,
  cancel_requested, due_at, step, traceparent, parent_id, token, losses, NULL FROM claimed;
