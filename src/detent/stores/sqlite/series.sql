-- SQLite only: events with the time that each job spent in its previous status.

-- name: time_events
-- Indexes: rowid of events; unique (job_id, seq) for the previous event.
SELECT k.lane_group, d.source, d.event, d.target, coalesce(b.event, ''), k.slot, k.number, k.spent
FROM (
  SELECT e.lane >> 31 & 16777215 AS lane_group, e.edge AS edge, p.edge AS before_edge, e.at / :slot AS slot,
    count(*) AS number, coalesce(sum(e.at - p.at), 0) AS spent
  FROM detent.events e LEFT JOIN detent.events p ON p.job_id = e.job_id AND p.seq = e.seq - 1
  WHERE e.n > :position AND e.n <= :until GROUP BY 1, 2, 3, 4) k
JOIN detent.edges d ON d.id = k.edge LEFT JOIN detent.edges b ON b.id = k.before_edge;

-- name: add_series
INSERT INTO detent.series (slot, submitted, succeeded, failed, retried, waits, waited, runs, ran)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6, value ->> 7, value ->> 8
FROM json_each(:rows) WHERE true
ON CONFLICT (slot) DO UPDATE SET submitted = submitted + excluded.submitted, succeeded = succeeded + excluded.succeeded,
  failed = failed + excluded.failed, retried = retried + excluded.retried, waits = waits + excluded.waits,
  waited = waited + excluded.waited, runs = runs + excluded.runs, ran = ran + excluded.ran;
