-- Children of jobs and approvals: queries that are the same in SQLite and Postgres.

-- name: child_page
-- Children by id, without payloads. Index: jobs_children.
SELECT id, tenant_id, queue, job_type, contract, status, phase, error_code, execution_no, worker, created_at, started_at,
  finished_at FROM detent.job_list
WHERE parent_id = :parent_id AND parent_id IS NOT NULL AND {where} ORDER BY id LIMIT :limit;

-- name: add_ended_child
INSERT INTO detent.child_events (parent_id, child_id, failed) VALUES (:parent_id, :child_id, :failed);

-- name: add_child_cancel
-- A cancelled job with open children: a row without child_id requests that they are cancelled. Index: jobs_children.
INSERT INTO detent.child_events (parent_id, child_id, failed) SELECT CAST(:parent_id AS text), NULL, true
WHERE EXISTS (SELECT 1 FROM detent.job_list WHERE parent_id = CAST(:parent_id AS text) AND phase <> 'final');

-- name: add_succeeded_children
-- Plain successes of child jobs, run after they were settled in the same transaction.
INSERT INTO detent.child_events (parent_id, child_id, failed)
SELECT j.parent_id, i.value, false FROM {texts:ids} i {join_job:i.value} WHERE j.parent_id IS NOT NULL;

-- name: parents_with_ended_children
SELECT parent_id FROM detent.child_events GROUP BY parent_id ORDER BY min(n) LIMIT :limit;

-- name: take_ended_children
DELETE FROM detent.child_events WHERE parent_id = :parent_id AND child_id IS NOT NULL RETURNING child_id, failed;

-- name: has_children_to_cancel
SELECT 1 FROM detent.child_events WHERE parent_id = :parent_id AND child_id IS NULL LIMIT 1;

-- name: drop_child_cancel
DELETE FROM detent.child_events WHERE parent_id = :parent_id AND child_id IS NULL;

-- name: drop_ended_children
DELETE FROM detent.child_events WHERE parent_id = :parent_id;

-- name: await_children
-- Only children that have not ended.
INSERT INTO detent.awaited (parent_id, child_id, wakes_on)
SELECT j.parent_id, i.value, CAST(:wakes_on AS text) FROM {texts:ids} i {join_job:i.value}
WHERE j.parent_id = :parent_id AND j.phase <> 'final';

-- name: awaits_children
SELECT wakes_on FROM detent.awaited WHERE parent_id = :parent_id LIMIT 1;

-- name: stop_awaiting
DELETE FROM detent.awaited WHERE parent_id = :parent_id AND child_id IN (SELECT value FROM {texts:ids})
RETURNING child_id, wakes_on;

-- name: drop_awaited
DELETE FROM detent.awaited WHERE parent_id = :parent_id;

-- name: any_failed
-- True if one of these jobs has ended in a status that is not a success.
SELECT 1 FROM {texts:ids} i {join_job:i.value}
WHERE j.phase = 'final' AND j.contract || ' ' || j.status NOT IN (SELECT value FROM {texts:good}) LIMIT 1;

-- name: parents_ready
-- The parents that can be processed now: all or enough of their awaited children have ended, or their children must be
-- cancelled. Awaited children are checked from the newest on, because they are claimed and mostly end oldest first.
SELECT p.value FROM {texts:parents} p
WHERE EXISTS (SELECT 1 FROM detent.child_events n WHERE n.parent_id = p.value AND n.child_id IS NULL)
  OR EXISTS (SELECT 1 FROM detent.awaited a WHERE a.parent_id = p.value) AND (
    (SELECT a.child_id FROM detent.awaited a WHERE a.parent_id = p.value AND NOT EXISTS (
      SELECT 1 FROM detent.child_events n WHERE n.parent_id = a.parent_id AND n.child_id = a.child_id)
      ORDER BY a.child_id DESC LIMIT 1) IS NULL
    OR EXISTS (SELECT 1 FROM detent.child_events n JOIN detent.awaited a ON a.parent_id = n.parent_id AND a.child_id = n.child_id
      WHERE n.parent_id = p.value AND n.failed AND a.wakes_on = 'failure')
    OR (SELECT a.wakes_on FROM detent.awaited a WHERE a.parent_id = p.value LIMIT 1) = 'any' AND EXISTS (
      SELECT 1 FROM detent.child_events n JOIN detent.awaited a ON a.parent_id = n.parent_id AND a.child_id = n.child_id
      WHERE n.parent_id = p.value));

-- name: child_states
-- Status and result of these children.
SELECT i.value, j.parent_id, j.job_type, j.contract, j.status, j.phase, j.result, j.error_code, j.error_message
FROM {texts:ids} i {join_job:i.value};

-- name: cancellable_children_left
SELECT 1 FROM detent.job_list WHERE parent_id = :parent_id AND parent_id IS NOT NULL AND phase <> 'final'
  AND cancel_requested IS NULL AND contract || ' ' || status IN (SELECT value FROM {texts:where_to}) LIMIT 1;

-- name: children
-- Pages by id. Index: jobs_children.
SELECT {columns} FROM detent.job_list WHERE parent_id = :parent_id AND parent_id IS NOT NULL AND {where} ORDER BY id LIMIT :limit;

-- name: count_children
SELECT tenant_id, queue, job_type, contract, status, phase, count(*) FROM detent.job_list
WHERE parent_id = :parent_id AND parent_id IS NOT NULL
GROUP BY tenant_id, queue, job_type, contract, status, phase ORDER BY job_type, contract, status, queue, tenant_id;

-- name: approval
SELECT job_id, name, summary, about, digest, roles, quorum, on_expiry, asked_at, deadline, decision, decided_at, expired
FROM detent.approvals WHERE job_id = :job_id AND name = :name;

-- name: approvals_of
SELECT job_id, name, summary, about, digest, roles, quorum, on_expiry, asked_at, deadline, decision, decided_at, expired
FROM detent.approvals WHERE job_id = :job_id ORDER BY asked_at, name;

-- name: put_approval
INSERT INTO detent.approvals (job_id, name, summary, about, digest, roles, quorum, on_expiry, asked_at, deadline, expired)
VALUES (:job_id, :name, :summary, :about, :digest, :roles, :quorum, :on_expiry, :asked_at, :deadline, false)
ON CONFLICT (job_id, name) DO UPDATE SET summary = excluded.summary, about = excluded.about, digest = excluded.digest,
  roles = excluded.roles, quorum = excluded.quorum, on_expiry = excluded.on_expiry, asked_at = excluded.asked_at,
  deadline = excluded.deadline;

-- name: decide_approval
UPDATE detent.approvals SET decision = :decision, decided_at = :at, expired = :expired
WHERE job_id = :job_id AND name = :name AND decision IS NULL;

-- name: votes
SELECT person, approved, reason, roles, at, shared_with FROM detent.votes WHERE job_id = :job_id AND name = :name ORDER BY at, person;

-- name: put_vote
INSERT INTO detent.votes (job_id, name, person, approved, reason, roles, at, shared_with)
VALUES (:job_id, :name, :person, :approved, :reason, :roles, :at, :shared_with)
ON CONFLICT (job_id, name, person) DO UPDATE SET approved = excluded.approved, reason = excluded.reason,
  roles = excluded.roles, at = excluded.at, shared_with = excluded.shared_with;

-- name: drop_votes
DELETE FROM detent.votes WHERE job_id = :job_id AND name = :name;

-- name: prune_approvals
DELETE FROM detent.approvals WHERE job_id IN (SELECT {uuid:value} FROM {texts:ids});

-- name: prune_votes
DELETE FROM detent.votes WHERE job_id IN (SELECT {uuid:value} FROM {texts:ids});

-- name: prune_family_news
DELETE FROM detent.child_events WHERE parent_id IN (SELECT value FROM {texts:ids});

-- name: verify_stranded
-- Parents that wait although no awaited child is open and no child event is left to process.
SELECT j.id, j.wait_name FROM detent.job_list j WHERE j.phase = 'blocked' AND j.wait_kind = 'children'
  AND NOT EXISTS (SELECT 1 FROM detent.awaited a JOIN detent.job_list c ON c.id = {uuid:a.child_id}
    WHERE a.parent_id = CAST(j.id AS text) AND c.phase <> 'final')
  AND NOT EXISTS (SELECT 1 FROM detent.child_events n WHERE n.parent_id = CAST(j.id AS text)) ORDER BY j.id LIMIT :limit;

-- name: verify_adrift
-- Awaited children whose parent does not wait, or that belong to another parent.
SELECT a.parent_id, a.child_id FROM detent.awaited a LEFT JOIN detent.job_list p ON p.id = {uuid:a.parent_id}
LEFT JOIN detent.job_list c ON c.id = {uuid:a.child_id}
WHERE p.wait_kind IS NULL OR p.wait_kind <> 'children' OR c.parent_id IS NULL OR c.parent_id <> a.parent_id
ORDER BY a.parent_id, a.child_id LIMIT :limit;

-- name: verify_family_news
-- Child events that are not processed yet.
SELECT n.parent_id, n.child_id FROM detent.child_events n WHERE {where} ORDER BY n.n LIMIT :limit;

-- name: verify_awaited
SELECT a.parent_id, a.child_id FROM detent.awaited a WHERE {where} ORDER BY a.parent_id, a.child_id LIMIT :limit;

-- name: verify_questions
-- Every approval with its counted votes and its job.
SELECT a.job_id, a.name, a.quorum, a.decision, a.expired, a.on_expiry, count(CASE WHEN v.approved THEN 1 END),
  count(CASE WHEN NOT v.approved THEN 1 END), j.id
FROM detent.approvals a LEFT JOIN detent.votes v ON v.job_id = a.job_id AND v.name = a.name LEFT JOIN detent.job_list j ON j.id = a.job_id
WHERE {where} GROUP BY a.job_id, a.name, a.quorum, a.decision, a.expired, a.on_expiry, j.id
ORDER BY a.job_id, a.name LIMIT :limit;

-- name: verify_votes
SELECT v.job_id, v.name, v.person FROM detent.votes v LEFT JOIN detent.approvals a ON a.job_id = v.job_id AND a.name = v.name
WHERE a.job_id IS NULL ORDER BY v.job_id, v.name, v.person LIMIT :limit;
