-- A claim under limits takes two statements: `look` settles and reads what counts, `take_planned` claims what was planned.

-- name: look_rest
-- Stands behind the first half of the cycle (settle, promote, walk). Rows: 0 the head, 1 lanes, 2 held, 3 meters.
-- Lanes of one rank are not counted: what one of them lacks is shared out again.
{logged}
), found AS MATERIALIZED (
  SELECT l.lane, l.step, p.tenant_id, p.limit_key, CASE WHEN l.ranks = 1 THEN :at_most::int ELSE (SELECT count(*) FROM (
    SELECT 1 FROM jobs j WHERE j.ready AND j.lane = l.lane
      AND (j.due_at, j.id) >= (coalesce(l.due_at, -1), coalesce(l.id, '00000000-0000-0000-0000-000000000000'))
      AND (NOT :dated::boolean OR j.deadline_at IS NULL OR j.deadline_at > (SELECT now FROM t)) 
      LIMIT least(:at_most::int, 4 * (:at_most::int / l.lanes + 1))) a) END AS available
  FROM (SELECT *, (SELECT count(*)::int FROM lanes) AS lanes, (SELECT count(DISTINCT rank) FROM lanes) AS ranks FROM lanes) l
  CROSS JOIN LATERAL (SELECT tenant_id, limit_key FROM lane_parties WHERE id = l.lane & 2147483647 OFFSET 0) p
), holding AS MATERIALIZED (  -- what this very statement settles is held no longer, though it still looks so
  SELECT j.lane, count(*) AS n FROM jobs j WHERE :counting::boolean AND j.phase = 'leased'
    AND (j.id IN (SELECT id FROM settled)) IS NOT TRUE GROUP BY j.lane
)
SELECT 0 AS row, (SELECT now FROM t) AS a, (SELECT version FROM t) AS b, (SELECT count(*) FROM promoted) AS c,
  CASE WHEN (SELECT count(*) FROM settled) < cardinality(:ids::text[])
    THEN (SELECT coalesce(string_agg(id::text, ','), '') FROM settled) END AS d, NULL AS e
UNION ALL
SELECT 1, lane, step, available, tenant_id, limit_key FROM found
UNION ALL
SELECT 2, h.lane, NULL, h.n, p.tenant_id, p.limit_key FROM holding h
CROSS JOIN LATERAL (SELECT tenant_id, limit_key FROM lane_parties WHERE id = h.lane & 2147483647 OFFSET 0) p
UNION ALL
SELECT 3, m.id, m.taken, m.limit_id, m.subject, m.spent FROM limits l
CROSS JOIN LATERAL (SELECT * FROM meters WHERE limit_id = l.id AND subject = '' OFFSET 0) m WHERE l.per = ''
UNION ALL
SELECT 3, m.id, m.taken, m.limit_id, m.subject, m.spent FROM limits l CROSS JOIN found f
CROSS JOIN LATERAL (SELECT queue, job_type FROM lane_groups WHERE id = (f.lane >> 31) & 16777215 OFFSET 0) g
CROSS JOIN LATERAL (SELECT * FROM meters WHERE limit_id = l.id AND subject = CASE l.per WHEN 'queue' THEN g.queue
  WHEN 'job_type' THEN g.job_type WHEN 'tenant_id' THEN f.tenant_id ELSE f.tenant_id || chr(31) || f.limit_key END
  OFFSET 0) m WHERE l.per <> '';

-- name: add_meters
INSERT INTO meters (limit_id, subject, touched_at) SELECT u.limit_id, u.subject, :now::bigint
FROM unnest(CAST(:limit_ids::text[] AS bigint[]), :subjects::text[]) u (limit_id, subject) ON CONFLICT DO NOTHING;

-- name: claim_limited
-- Meters are locked in the order of their ids and only then compared: what others took since we looked (taken has
-- grown by it) comes off the room. A meter that has become too small gives up all of its lanes; they are planned anew
-- (the head tells how many meters that were).
WITH t AS MATERIALIZED (
  SELECT {clock} AS now, value AS version, value = :version::bigint AS current FROM lane_version
  WHERE NOT :relaxed::boolean OR set_config('synchronous_commit', 'off', true) IS NOT NULL
), locked AS MATERIALIZED (
  SELECT u.id, u.spent, u.rated, m.taken = u.seen AS unchanged, u.take <= u.room - (m.taken - u.seen) AS fits
  FROM unnest(CAST(:meters::text[] AS bigint[]), CAST(:seen::text[] AS bigint[]), CAST(:rooms::text[] AS bigint[]),
    CAST(:takes::text[] AS bigint[]), :spent::text[], CAST(:rated::text[] AS boolean[]))
    u (id, seen, room, take, spent, rated)
  CROSS JOIN LATERAL (SELECT taken FROM meters WHERE id = u.id OFFSET 0 FOR UPDATE) m
), pairs AS MATERIALIZED (
  SELECT p.lane, p.meter, (p.meter IN (SELECT id FROM locked WHERE fits)) IS TRUE AS fits
  FROM unnest(CAST(:pair_lanes::text[] AS bigint[]), CAST(:pair_meters::text[] AS bigint[])) p (lane, meter)
), asked AS MATERIALIZED (
  SELECT a.lane, a.quota, a.step::int FROM unnest(CAST(:lanes::text[] AS bigint[]), CAST(:quotas::text[] AS bigint[]))
    WITH ORDINALITY a (lane, quota, step)
  WHERE (SELECT current FROM t) AND (a.lane IN (SELECT lane FROM pairs WHERE NOT fits)) IS NOT TRUE
), picked AS MATERIALIZED (
  SELECT k.at, k.contract, k.status, a.step FROM asked a CROSS JOIN LATERAL (
    SELECT j.ctid AS at, j.contract, j.status FROM jobs j WHERE j.ready AND j.lane = a.lane
      AND (NOT :dated::boolean OR j.deadline_at IS NULL OR j.deadline_at > (SELECT now FROM t))
    ORDER BY j.due_at, j.id LIMIT a.quota FOR UPDATE SKIP LOCKED) k{claimed}
), counted AS (
  SELECT p.meter, sum(c.n) AS n, max(c.at) AS at FROM (
    SELECT lane, count(*) AS n, max(updated_at) AS at FROM claimed GROUP BY lane) c
  JOIN pairs p ON p.lane = c.lane GROUP BY p.meter
), metered AS (
  UPDATE meters m SET taken = m.taken + c.n, touched_at = (SELECT now FROM t),
    spent = CASE WHEN l.rated THEN CASE WHEN l.unchanged THEN l.spent ELSE m.spent END || c.at || ':' || c.n || ' ' ELSE '' END
  FROM counted c JOIN locked l ON l.id = c.meter WHERE m.id = c.meter{logged}
)
{answer};
