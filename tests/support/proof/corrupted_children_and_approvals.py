"""Corruptions of parents and children, approvals and votes."""

from support.proof.planting import corrupt

PARENT = "SELECT min(id) FROM detent_job_list WHERE wait_kind = 'children'"
WAITING = (
    "SELECT min(job_id) FROM detent_approvals WHERE decision IS NULL AND job_id NOT IN (SELECT job_id"
    " FROM detent_votes)"
)
APPROVED = "SELECT min(job_id) FROM detent_approvals WHERE decision = 'approve' AND NOT expired"
REJECTED = "SELECT min(job_id) FROM detent_approvals WHERE decision = 'reject' AND NOT expired"
EXPIRED = "SELECT min(job_id) FROM detent_approvals WHERE expired"
MISSING_JOB = "'01900000-0000-7000-8000-000000000000'"

CHILDREN_AND_APPROVALS = (
    corrupt(
        "no awaited children",
        "parent-stranded",
        PARENT,
        "DELETE FROM detent_awaited",
        "DELETE FROM detent_child_events",
    ),
    corrupt(
        "awaited child of another job",
        "awaited-adrift",
        PARENT,
        f"INSERT INTO detent_awaited VALUES (:job, {MISSING_JOB}, 'end')",
    ),
    corrupt(
        "awaited children of a finished job",
        "awaited-adrift",
        "SELECT min(parent_id) FROM detent_job_list"
        " WHERE parent_id IN (SELECT id FROM detent_job_list WHERE phase = 'final')",
        "INSERT INTO detent_awaited SELECT :job, id, 'end' FROM detent_job_list WHERE parent_id = :job LIMIT 1",
    ),
    corrupt("approval request lost", "approval-missing", WAITING, "DELETE FROM detent_approvals WHERE job_id = :job"),
    corrupt("votes lost", "approval-uncounted", APPROVED, "DELETE FROM detent_votes WHERE job_id = :job"),
    corrupt(
        "quorum raised", "approval-uncounted", APPROVED, "UPDATE detent_approvals SET quorum = 9 WHERE job_id = :job"
    ),
    corrupt(
        "rejection changed to approval",
        "approval-uncounted",
        REJECTED,
        "UPDATE detent_votes SET approved = 1 WHERE job_id = :job",
    ),
    corrupt(
        "rejection without a decision",
        "approval-uncounted",
        REJECTED,
        "UPDATE detent_approvals SET decision = NULL, decided_at = NULL WHERE job_id = :job",
    ),
    corrupt(
        "decision differs from on_expiry",
        "approval-uncounted",
        EXPIRED,
        "UPDATE detent_approvals SET on_expiry = 'approve' WHERE job_id = :job",
    ),
    corrupt(
        "vote without an approval request",
        "approval-orphan",
        APPROVED,
        "UPDATE detent_votes SET name = 'other' WHERE job_id = :job",
    ),
    corrupt(
        "approval request of a missing job",
        "approval-orphan",
        None,
        f"UPDATE detent_approvals SET job_id = {MISSING_JOB} || job_id",
    ),
)
