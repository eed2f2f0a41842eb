-- A claim within limits takes two statements. settle_and_inspect settles, promotes and reads the lanes, the leased jobs
-- and the meters; claim_plan.py computes quotas per lane; claim_limited claims them if the meters still allow it.

-- name: inspect_rest
-- The second half of settle_and_inspect; the first half is settle_and_claim up to its CTE lanes. {logged} becomes its
-- CTE logged, for settled rows only. Indexes: jobs_ready (available), jobs_leased (holding), unique keys of meters.
-- Rows (first column): 0 head, 1 lane, 2 leased jobs of a lane, 3 meter; see Inspection.of in limited_claim.py.
{logged}
-- found: the lanes of the walk with tenant and limit key. available = claimable jobs, counted up to a bound. They are
-- not counted if all lanes have one rank: a repeated claim then divides what one lane lacks among the others.
), found AS MATERIALIZED (
  SELECT l.lane, l.step, p.tenant_id, p.limit_key, CASE WHEN l.ranks = 1 THEN :at_most::int ELSE (SELECT count(*) FROM (
    SELECT 1 FROM detent.jobs j WHERE j.ready AND j.lane = l.lane
      AND (j.due_at, j.id) >= (coalesce(l.due_at, -1), coalesce(l.id, '00000000-0000-0000-0000-000000000000'))
      AND (NOT :dated::boolean OR j.deadline_at IS NULL OR j.deadline_at > (SELECT now FROM t)) 
      LIMIT least(:at_most::int, 4 * (:at_most::int / l.lanes + 1))) a) END AS available
  FROM (SELECT *, (SELECT count(*)::int FROM lanes) AS lanes, (SELECT count(DISTINCT rank) FROM lanes) AS ranks FROM lanes) l
  CROSS JOIN LATERAL (SELECT tenant_id, limit_key FROM detent.lane_parties WHERE id = l.lane & 2147483647 OFFSET 0) p
-- holding: leased jobs per lane, if :counting. Jobs settled by this statement still look leased in its snapshot and are
-- left out.
), holding AS MATERIALIZED (
  SELECT j.lane, count(*) AS n FROM detent.jobs j WHERE :counting::boolean AND j.phase = 'leased'
    AND (j.id IN (SELECT id FROM settled)) IS NOT TRUE GROUP BY j.lane
)
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

-- name: add_meters
INSERT INTO detent.meters (limit_id, subject, touched_at) SELECT u.limit_id, u.subject, :now::bigint
FROM unnest(CAST(:limit_ids::text[] AS bigint[]), :subjects::text[]) u (limit_id, subject) ON CONFLICT DO NOTHING;

-- name: claim_limited
-- Claims :quotas jobs from :lanes and counts them on the meters. {claimed}, {logged} and {answer} are the CTEs claimed
-- and logged (claimed rows only) and the final SELECT of settle_and_claim; in the head row, [7] is the number of meters
-- that were used up. Indexes: primary key of meters (locked), jobs_ready (picked).

-- t: as in settle_and_claim; current = the caller's lane cache is up to date.
WITH t AS MATERIALIZED (
  SELECT {clock} AS now, value AS version, value = :version::bigint AS current FROM detent.lane_version
  WHERE NOT :relaxed::boolean OR set_config('synchronous_commit', 'off', true) IS NOT NULL
-- locked: the meters, locked in the order of their ids so that two statements cannot deadlock, and only then compared:
-- what other workers claimed since the plan (taken has grown by it) is subtracted from the room.
), locked AS MATERIALIZED (
  SELECT u.id, u.spent, u.rated, m.taken = u.seen AS unchanged, u.take <= u.room - (m.taken - u.seen) AS fits
  FROM unnest(CAST(:meters::text[] AS bigint[]), CAST(:seen::text[] AS bigint[]), CAST(:rooms::text[] AS bigint[]),
    CAST(:takes::text[] AS bigint[]), :spent::text[], CAST(:rated::text[] AS boolean[]))
    u (id, seen, room, take, spent, rated)
  CROSS JOIN LATERAL (SELECT taken FROM detent.meters WHERE id = u.id OFFSET 0 FOR UPDATE) m
-- pairs: which meter counts which lane. asked: the lanes whose meters all fit; if a meter has too little room left,
-- none of its lanes is claimed from, and the caller plans again.
), pairs AS MATERIALIZED (
  SELECT p.lane, p.meter, (p.meter IN (SELECT id FROM locked WHERE fits)) IS TRUE AS fits
  FROM unnest(CAST(:pair_lanes::text[] AS bigint[]), CAST(:pair_meters::text[] AS bigint[])) p (lane, meter)
), asked AS MATERIALIZED (
  SELECT a.lane, a.quota, a.step::int FROM unnest(CAST(:lanes::text[] AS bigint[]), CAST(:quotas::text[] AS bigint[]))
    WITH ORDINALITY a (lane, quota, step)
  WHERE (SELECT current FROM t) AND (a.lane IN (SELECT lane FROM pairs WHERE NOT fits)) IS NOT TRUE
-- picked: locks up to quota jobs per lane, without those past their deadline (:dated: deadlines are in use).
), picked AS MATERIALIZED (
  SELECT k.at, k.contract, k.status, a.step FROM asked a CROSS JOIN LATERAL (
    SELECT j.ctid AS at, j.contract, j.status FROM detent.jobs j WHERE j.ready AND j.lane = a.lane
      AND (NOT :dated::boolean OR j.deadline_at IS NULL OR j.deadline_at > (SELECT now FROM t))
    ORDER BY j.due_at, j.id LIMIT a.quota FOR UPDATE SKIP LOCKED) k{claimed}
-- counted, metered: adds the claimed jobs to their meters. spent is the history of a rate limit, "time:number " each;
-- the caller's compacted history replaces it unless another worker has changed the meter since.
), counted AS (
  SELECT p.meter, sum(c.n) AS n, max(c.at) AS at FROM (
    SELECT lane, count(*) AS n, max(updated_at) AS at FROM claimed GROUP BY lane) c
  JOIN pairs p ON p.lane = c.lane GROUP BY p.meter
), metered AS (
  UPDATE detent.meters m SET taken = m.taken + c.n, touched_at = (SELECT now FROM t),
    spent = CASE WHEN l.rated THEN CASE WHEN l.unchanged THEN l.spent ELSE m.spent END || c.at || ':' || c.n || ' ' ELSE '' END
  FROM counted c JOIN locked l ON l.id = c.meter WHERE m.id = c.meter{logged}
)
{answer};
