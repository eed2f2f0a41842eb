-- Children of jobs: queries that differ between SQLite and Postgres.

-- name: cancellable_children
-- Open children in these "contract status" pairs without a cancel request. Index: jobs_children.
SELECT {raw_columns} FROM detent.jobs WHERE parent_id = :parent_id AND parent_id IS NOT NULL AND state & 3 <> 3
  AND cancel_requested IS NULL AND state IN (SELECT id FROM detent.states
    WHERE contract || ' ' || status IN (SELECT value FROM json_array_elements_text(:where_to::json)))
ORDER BY id LIMIT :limit FOR UPDATE SKIP LOCKED;

-- name: awaiting_approval
-- Jobs that wait for an approval, oldest first. A plain join may walk all jobs beside them.
SELECT {columns} FROM (SELECT j.* FROM detent.awaiting_approval w {join_job:w.id}) AS looked WHERE {where} ORDER BY id LIMIT :limit;

-- name: verify_asking
-- Jobs that wait for an approval without an open one.
SELECT j.id, j.wait_name FROM detent.awaiting_approval w JOIN detent.jobs j ON j.id = w.id
LEFT JOIN detent.approvals a ON a.job_id = j.id AND a.name = j.wait_name
WHERE j.wait_kind = 'approval' AND (a.job_id IS NULL OR a.decision IS NOT NULL) ORDER BY j.id LIMIT :limit;
