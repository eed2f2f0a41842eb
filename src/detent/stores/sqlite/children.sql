-- Children of jobs: queries that differ between SQLite and Postgres.

-- name: add_succeeded_children
-- Plain successes of child jobs, run after they were settled in the same transaction.
INSERT INTO detent.child_events (parent_id, child_id, failed)
SELECT j.parent_id, i.value, false FROM json_each(:ids) i
CROSS JOIN detent.jobs j ON j.id = i.value
WHERE j.parent_id IS NOT NULL;

-- name: await_children
-- Only children that have not ended.
INSERT INTO detent.awaited (parent_id, child_id, wakes_on)
SELECT j.parent_id, i.value, CAST(:wakes_on AS text) FROM json_each(:ids) i
CROSS JOIN detent.jobs j ON j.id = i.value
WHERE j.parent_id = :parent_id AND j.state & 3 <> 3;

-- name: any_failed
-- True if one of these jobs has ended in a status that is not a success.
SELECT 1 FROM json_each(:ids) i
CROSS JOIN detent.job_list j ON j.id = i.value
WHERE j.state & 3 = 3 AND j.contract || ' ' || j.status NOT IN (SELECT value FROM json_each(:good)) LIMIT 1;

-- name: stop_awaiting
DELETE FROM detent.awaited WHERE parent_id = :parent_id AND child_id IN (SELECT value FROM json_each(:ids))
RETURNING child_id, wakes_on;

-- name: parents_ready
-- The parents that can be processed now: all or enough of their awaited children have ended, or their children must be
-- cancelled. Awaited children are checked from the newest on, because they are claimed and mostly end oldest first.
SELECT p.value FROM json_each(:parents) p
WHERE EXISTS (SELECT 1 FROM detent.child_events n WHERE n.parent_id = p.value AND n.child_id IS NULL)
  OR EXISTS (SELECT 1 FROM detent.awaited a WHERE a.parent_id = p.value) AND (
    (SELECT a.child_id FROM detent.awaited a WHERE a.parent_id = p.value AND NOT EXISTS (
      SELECT 1 FROM detent.child_events n WHERE n.parent_id = a.parent_id AND n.child_id = a.child_id)
      ORDER BY a.child_id DESC LIMIT 1) IS NULL
    OR EXISTS (SELECT 1 FROM detent.child_events n JOIN detent.awaited a ON a.parent_id = n.parent_id AND a.child_id = n.child_id
      WHERE n.parent_id = p.value AND n.failed = 1 AND a.wakes_on = 'failure')
    OR (SELECT a.wakes_on FROM detent.awaited a WHERE a.parent_id = p.value LIMIT 1) = 'any' AND EXISTS (
      SELECT 1 FROM detent.child_events n JOIN detent.awaited a ON a.parent_id = n.parent_id AND a.child_id = n.child_id
      WHERE n.parent_id = p.value));

-- name: child_states
-- Status and result of these children.
SELECT i.value, j.parent_id, j.job_type, j.contract, j.status, j.phase, j.result, j.error_code, j.error_message
FROM json_each(:ids) i
CROSS JOIN detent.job_list j ON j.id = i.value;

-- name: cancellable_children
-- Open children in these "contract status" pairs without a cancel request. Index: jobs_children.
SELECT {columns} FROM detent.job_list WHERE parent_id = :parent_id AND parent_id IS NOT NULL AND state & 3 <> 3
  AND cancel_requested IS NULL AND contract || ' ' || status IN (SELECT value FROM json_each(:where_to))
ORDER BY id LIMIT :limit;

-- name: cancellable_children_left
SELECT 1 FROM detent.job_list WHERE parent_id = :parent_id AND parent_id IS NOT NULL AND state & 3 <> 3
  AND cancel_requested IS NULL AND contract || ' ' || status IN (SELECT value FROM json_each(:where_to)) LIMIT 1;

-- name: prune_approvals
DELETE FROM detent.approvals WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: prune_votes
DELETE FROM detent.votes WHERE job_id IN (SELECT value FROM json_each(:ids));

-- name: prune_family_news
DELETE FROM detent.child_events WHERE parent_id IN (SELECT value FROM json_each(:ids));

-- name: verify_stranded
-- Parents that wait although no awaited child is open and no child event is left to process.
SELECT j.id, j.wait_name FROM detent.jobs j WHERE j.state & 3 = 2 AND j.wait_kind = 'children'
  AND NOT EXISTS (SELECT 1 FROM detent.awaited a JOIN detent.jobs c ON c.id = a.child_id WHERE a.parent_id = j.id AND c.state & 3 <> 3)
  AND NOT EXISTS (SELECT 1 FROM detent.child_events n WHERE n.parent_id = j.id) ORDER BY j.id LIMIT :limit;

-- name: verify_adrift
-- Awaited children whose parent does not wait, or that belong to another parent.
SELECT a.parent_id, a.child_id FROM detent.awaited a LEFT JOIN detent.jobs p ON p.id = a.parent_id LEFT JOIN detent.jobs c ON c.id = a.child_id
WHERE p.wait_kind IS NULL OR p.wait_kind <> 'children' OR c.parent_id IS NULL OR c.parent_id <> a.parent_id
ORDER BY a.parent_id, a.child_id LIMIT :limit;

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
