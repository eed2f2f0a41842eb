-- Time series: queries that are the same in SQLite and Postgres.

-- name: series_of
-- The slots of one subject. Index: primary key.
SELECT s.name, r.slot, r.submitted, r.succeeded, r.failed, r.retried, r.waited, r.ran, r.waits, r.runs
FROM detent.series_subjects s
{probe} detent.series r ON r.width = :width AND r.subject = s.id AND r.slot >= :first AND r.slot < :last
WHERE s.kind = :kind AND s.name = :name;

-- name: series_by
-- The slots of every subject of a kind. Index: primary key, one range per subject.
SELECT s.name, r.slot, r.submitted, r.succeeded, r.failed, r.retried, r.waited, r.ran, r.waits, r.runs
FROM detent.series_subjects s
{probe} detent.series r ON r.width = :width AND r.subject = s.id AND r.slot >= :first AND r.slot < :last
WHERE s.kind = :kind;

-- name: find_series_subjects
SELECT s.id, s.kind, s.name FROM {rows:rows} k
{probe} detent.series_subjects s ON s.kind = k.value ->> 0 AND s.name = k.value ->> 1;

-- name: count_series_subjects
SELECT kind, count(*) FROM detent.series_subjects GROUP BY kind;

-- name: add_series_subjects
INSERT INTO detent.series_subjects (kind, name) SELECT value ->> 0, value ->> 1 FROM {rows:rows} WHERE true
ON CONFLICT (kind, name) DO NOTHING;

-- name: series_slots
-- The stored slots among these. Index: primary key.
SELECT r.width, r.subject, r.slot, r.submitted, r.succeeded, r.failed, r.retried, r.waited, r.ran, r.waits, r.runs
FROM {rows:rows} k
{probe} detent.series r ON r.width = CAST(k.value ->> 0 AS bigint) AND r.subject = CAST(k.value ->> 1 AS bigint)
  AND r.slot = CAST(k.value ->> 2 AS bigint);

-- name: put_series
INSERT INTO detent.series AS series (width, subject, slot, submitted, succeeded, failed, retried, waited, ran, waits, runs)
SELECT CAST(value ->> 0 AS bigint), CAST(value ->> 1 AS bigint), CAST(value ->> 2 AS bigint), CAST(value ->> 3 AS bigint),
  CAST(value ->> 4 AS bigint), CAST(value ->> 5 AS bigint), CAST(value ->> 6 AS bigint), CAST(value ->> 7 AS bigint),
  CAST(value ->> 8 AS bigint), value ->> 9, value ->> 10 FROM {rows:rows} WHERE true
ON CONFLICT (width, subject, slot) DO UPDATE SET submitted = excluded.submitted, succeeded = excluded.succeeded,
  failed = excluded.failed, retried = excluded.retried, waited = excluded.waited, ran = excluded.ran, waits = excluded.waits,
  runs = excluded.runs;

-- name: drop_series
-- Index: primary key, one range per subject.
DELETE FROM detent.series WHERE width = :width AND subject IN (SELECT id FROM detent.series_subjects) AND slot < :before;

-- name: drop_series_subjects
-- Subjects without a slot.
DELETE FROM detent.series_subjects AS s WHERE NOT EXISTS (
  SELECT 1 FROM detent.series r WHERE r.width IN (0, 10, 60, 300, 900, 7200, 86400) AND r.subject = s.id);

-- name: time_events
-- A part of the log with the time that each job spent in its previous status, since it was due there, as a bucket of
-- engine/metrics/buckets.py. Indexes: events_xid, in SQLite the rowid; unique (job_id, seq) for the previous event.
SELECT (k.lane >> {party_bits}) & {group_mask}, coalesce(y.tenant_id, ''), d.source, d.event, d.target, k.slot, k.bucket, k.number, k.spent
FROM (
  SELECT lane, edge, slot, CASE WHEN spent < 100 THEN 0
      ELSE CAST(floor(ln(CAST(spent AS double precision) / 100) * 5.7707801635558535) AS bigint) + 1 END AS bucket,
    count(*) AS number, CAST(coalesce(sum(spent), 0) AS bigint) AS spent
  FROM (
    SELECT e.lane, e.edge, e.at / :slot AS slot,
      e.at - CASE WHEN {due_in:p.data} > p.at THEN {due_in:p.data} ELSE p.at END AS spent
    FROM detent.events e LEFT JOIN detent.events p ON p.job_id = e.job_id AND p.seq = e.seq - 1
    WHERE {after:e} :position AND {until:e} :until) t
  GROUP BY 1, 2, 3, 4) k
JOIN detent.edges d ON d.id = k.edge LEFT JOIN detent.lane_parties y ON y.id = k.lane & {party_mask};
