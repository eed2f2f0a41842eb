"""Corruptions of parents and children, approvals and votes."""

from support.proof.planting import corrupt

PARENT = "SELECT min(id) FROM jobs WHERE wait_kind = 'children'"
WAITING = "SELECT min(job_id) FROM approvals WHERE decision IS NULL AND job_id NOT IN (SELECT job_id FROM votes)"
APPROVED = "SELECT min(job_id) FROM approvals WHERE decision = 'approve' AND NOT expired"
REJECTED = "SELECT min(job_id) FROM approvals WHERE decision = 'reject' AND NOT expired"
EXPIRED = "SELECT min(job_id) FROM approvals WHERE expired"
MISSING_JOB = "'01900000-0000-7000-8000-000000000000'"

CHILDREN_AND_APPROVALS = (
    corrupt("no awaited children", "parent-stranded", PARENT, "DELETE FROM awaited", "DELETE FROM family_news"),
    corrupt(
        "awaited child of another job",
        "awaited-adrift",
        PARENT,
        f"INSERT INTO awaited VALUES (:job, {MISSING_JOB}, 'end')",
    ),
    corrupt(
        "awaited children of a finished job",
        "awaited-adrift",
        "SELECT min(parent_id) FROM jobs WHERE parent_id IN (SELECT id FROM jobs WHERE phase = 'final')",
        "INSERT INTO awaited SELECT :job, id, 'end' FROM jobs WHERE parent_id = :job LIMIT 1",
    ),
    corrupt("approval request lost", "approval-missing", WAITING, "DELETE FROM approvals WHERE job_id = :job"),
    corrupt("votes lost", "approval-uncounted", APPROVED, "DELETE FROM votes WHERE job_id = :job"),
    corrupt("quorum raised", "approval-uncounted", APPROVED, "UPDATE approvals SET quorum = 9 WHERE job_id = :job"),
    corrupt(
        "rejection changed to approval",
        "approval-uncounted",
        REJECTED,
        "UPDATE votes SET approved = 1 WHERE job_id = :job",
    ),
    corrupt(
        "decision differs from on_expiry",
        "approval-uncounted",
        EXPIRED,
        "UPDATE approvals SET on_expiry = 'approve' WHERE job_id = :job",
    ),
    corrupt(
        "vote without an approval request",
        "approval-orphan",
        APPROVED,
        "UPDATE votes SET name = 'other' WHERE job_id = :job",
    ),
    corrupt(
        "approval request of a missing job",
        "approval-orphan",
        None,
        f"UPDATE approvals SET job_id = {MISSING_JOB} || job_id",
    ),
)
