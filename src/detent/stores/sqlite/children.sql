-- Children of jobs: queries that differ between SQLite and Postgres.

-- name: cancellable_children
-- Open children in these "contract status" pairs without a cancel request. Index: jobs_children.
SELECT {columns} FROM detent.job_list WHERE parent_id = :parent_id AND parent_id IS NOT NULL AND state & 3 <> 3
  AND cancel_requested IS NULL AND contract || ' ' || status IN (SELECT value FROM json_each(:where_to))
ORDER BY id LIMIT :limit;

-- name: awaiting_approval
-- Jobs that wait for an approval, oldest first. Index: jobs_asking.
SELECT {columns} FROM detent.job_list
WHERE state & 3 = 2 AND (wait_kind = 'approval' OR wait_kind IS NULL AND due_at IS NULL) AND {where}
ORDER BY id LIMIT :limit;

-- name: verify_asking
-- Jobs that wait for an approval without an open one. Index: jobs_asking.
SELECT j.id, j.wait_name FROM detent.job_list j LEFT JOIN detent.approvals a ON a.job_id = j.id AND a.name = j.wait_name
WHERE j.state & 3 = 2 AND (j.wait_kind = 'approval' OR j.wait_kind IS NULL AND j.due_at IS NULL)
  AND j.wait_kind = 'approval' AND (a.job_id IS NULL OR a.decision IS NOT NULL) ORDER BY j.id LIMIT :limit;
