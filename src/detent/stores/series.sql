-- Time series: queries that are the same in SQLite and Postgres.

-- name: series
-- Sums per :width slots. Index: primary key.
SELECT slot / :width, sum(submitted), sum(succeeded), sum(failed), sum(retried), sum(waits), sum(waited), sum(runs), sum(ran)
FROM detent.series WHERE slot >= :first AND slot < :last GROUP BY slot / :width ORDER BY 1;

-- name: drop_series
DELETE FROM detent.series WHERE slot < :before;

-- name: time_events
-- A part of the log with the time that each job spent in its previous status. Indexes: events_xid, in SQLite the rowid;
-- unique (job_id, seq) for the previous event.
SELECT (k.lane >> {party_bits}) & {group_mask}, d.source, d.event, d.target, coalesce(b.event, ''), k.slot, k.number, k.spent
FROM (
  SELECT e.lane AS lane, e.edge AS edge, p.edge AS before_edge, e.at / :slot AS slot, count(*) AS number,
    CAST(coalesce(sum(e.at - p.at), 0) AS bigint) AS spent
  FROM detent.events e LEFT JOIN detent.events p ON p.job_id = e.job_id AND p.seq = e.seq - 1
  WHERE {after:e} :position AND {until:e} :until GROUP BY 1, 2, 3, 4) k
JOIN detent.edges d ON d.id = k.edge LEFT JOIN detent.edges b ON b.id = k.before_edge;

-- name: add_series
INSERT INTO detent.series AS series (slot, submitted, succeeded, failed, retried, waits, waited, runs, ran)
SELECT CAST(value ->> 0 AS bigint), CAST(value ->> 1 AS bigint), CAST(value ->> 2 AS bigint), CAST(value ->> 3 AS bigint),
  CAST(value ->> 4 AS bigint), CAST(value ->> 5 AS bigint), CAST(value ->> 6 AS bigint), CAST(value ->> 7 AS bigint),
  CAST(value ->> 8 AS bigint) FROM {rows:rows} WHERE true
ON CONFLICT (slot) DO UPDATE SET submitted = series.submitted + excluded.submitted,
  succeeded = series.succeeded + excluded.succeeded, failed = series.failed + excluded.failed,
  retried = series.retried + excluded.retried, waits = series.waits + excluded.waits,
  waited = series.waited + excluded.waited, runs = series.runs + excluded.runs, ran = series.ran + excluded.ran;
