"""Planted corruptions of families and questions."""

from .planting import broken

PARENT = "SELECT min(id) FROM jobs WHERE wait_kind = 'children'"
ASKING = "SELECT min(job_id) FROM approvals WHERE decision IS NULL AND job_id NOT IN (SELECT job_id FROM votes)"
APPROVED = "SELECT min(job_id) FROM approvals WHERE decision = 'approve' AND NOT expired"
REJECTED = "SELECT min(job_id) FROM approvals WHERE decision = 'reject' AND NOT expired"
EXPIRED = "SELECT min(job_id) FROM approvals WHERE expired"
GHOST = "'01900000-0000-7000-8000-000000000000'"

RELATIONS = (
    broken("parent forgotten", "parent-stranded", PARENT, "DELETE FROM awaited", "DELETE FROM family_news"),
    broken(
        "parent waits for a stranger", "awaited-adrift", PARENT, f"INSERT INTO awaited VALUES (:job, {GHOST}, 'end')"
    ),
    broken(
        "who does not wait is waited for",
        "awaited-adrift",
        "SELECT min(parent_id) FROM jobs WHERE parent_id IN (SELECT id FROM jobs WHERE phase = 'final')",
        "INSERT INTO awaited SELECT :job, id, 'end' FROM jobs WHERE parent_id = :job LIMIT 1",
    ),
    broken("question lost", "approval-missing", ASKING, "DELETE FROM approvals WHERE job_id = :job"),
    broken("votes lost", "approval-uncounted", APPROVED, "DELETE FROM votes WHERE job_id = :job"),
    broken("quorum raised", "approval-uncounted", APPROVED, "UPDATE approvals SET quorum = 9 WHERE job_id = :job"),
    broken("nobody rejected", "approval-uncounted", REJECTED, "UPDATE votes SET approved = 1 WHERE job_id = :job"),
    broken(
        "deadline that decides otherwise",
        "approval-uncounted",
        EXPIRED,
        "UPDATE approvals SET on_expiry = 'approve' WHERE job_id = :job",
    ),
    broken("vote on nothing", "approval-orphan", APPROVED, "UPDATE votes SET name = 'other' WHERE job_id = :job"),
    broken("question of nobody", "approval-orphan", None, f"UPDATE approvals SET job_id = {GHOST} || job_id"),
)
