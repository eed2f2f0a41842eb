-- Children of jobs and approvals: queries that are the same in SQLite and Postgres.

-- name: add_ended_child
INSERT INTO detent.child_events (parent_id, child_id, failed) VALUES (:parent_id, :child_id, :failed);

-- name: add_child_cancel
-- A cancelled job with open children: a row without child_id requests that they are cancelled. Index: jobs_children.
INSERT INTO detent.child_events (parent_id, child_id, failed) SELECT CAST(:parent_id AS text), NULL, true
WHERE EXISTS (SELECT 1 FROM detent.job_list WHERE parent_id = CAST(:parent_id AS text) AND phase <> 'final');

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

-- name: awaits_children
SELECT wakes_on FROM detent.awaited WHERE parent_id = :parent_id LIMIT 1;

-- name: drop_awaited
DELETE FROM detent.awaited WHERE parent_id = :parent_id;

-- name: children
-- Pages by id. Index: jobs_children.
SELECT {columns} FROM detent.job_list WHERE parent_id = :parent_id AND parent_id IS NOT NULL AND {where} ORDER BY id LIMIT :limit;

-- name: count_children
SELECT job_type, contract, status, phase, count(*) FROM detent.job_list WHERE parent_id = :parent_id AND parent_id IS NOT NULL
GROUP BY job_type, contract, status, phase ORDER BY job_type, contract, status;

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
SELECT person, approved, reason, roles, at FROM detent.votes WHERE job_id = :job_id AND name = :name ORDER BY at, person;

-- name: put_vote
INSERT INTO detent.votes (job_id, name, person, approved, reason, roles, at)
VALUES (:job_id, :name, :person, :approved, :reason, :roles, :at)
ON CONFLICT (job_id, name, person) DO UPDATE SET approved = excluded.approved, reason = excluded.reason,
  roles = excluded.roles, at = excluded.at;

-- name: drop_votes
DELETE FROM detent.votes WHERE job_id = :job_id AND name = :name;

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
