-- Postgres only: events with the time that each job spent in its previous status.

-- name: time_events
-- Indexes: events_xid; primary key of events for the previous event.
SELECT (e.lane >> {party_bits}) & {group_mask}, d.source, d.event, d.target, coalesce(b.event, ''), e.slot, e.number, e.spent
FROM (
  SELECT e.lane, e.edge, p.edge AS before_edge, e.at / :slot AS slot, count(*) AS number,
    coalesce(sum(e.at - p.at), 0)::bigint AS spent
  FROM detent.events e LEFT JOIN detent.events p ON p.job_id = e.job_id AND p.seq = e.seq - 1
  WHERE e.xid >= :position AND e.xid < :until GROUP BY 1, 2, 3, 4) e
JOIN detent.edges d ON d.id = e.edge LEFT JOIN detent.edges b ON b.id = e.before_edge;

-- name: add_series
INSERT INTO detent.series AS series (slot, submitted, succeeded, failed, retried, waits, waited, runs, ran)
SELECT (value ->> 0)::bigint, (value ->> 1)::bigint, (value ->> 2)::bigint, (value ->> 3)::bigint, (value ->> 4)::bigint,
  (value ->> 5)::bigint, (value ->> 6)::bigint, (value ->> 7)::bigint, (value ->> 8)::bigint
FROM json_array_elements(:rows::json)
ON CONFLICT (slot) DO UPDATE SET submitted = series.submitted + excluded.submitted,
  succeeded = series.succeeded + excluded.succeeded, failed = series.failed + excluded.failed,
  retried = series.retried + excluded.retried, waits = series.waits + excluded.waits,
  waited = series.waited + excluded.waited, runs = series.runs + excluded.runs, ran = series.ran + excluded.ran;
