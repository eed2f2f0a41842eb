-- Time series: queries that are the same in SQLite and Postgres.

-- name: series
-- Sums per :width slots. Index: primary key.
SELECT slot / :width, sum(submitted), sum(succeeded), sum(failed), sum(retried), sum(waits), sum(waited), sum(runs), sum(ran)
FROM detent.series WHERE slot >= :first AND slot < :last GROUP BY slot / :width ORDER BY 1;

-- name: drop_series
DELETE FROM detent.series WHERE slot < :before;
