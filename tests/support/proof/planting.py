"""Helpers to corrupt a SQLite database: the definition of a corruption, SQL snippets for it, and `plant`."""

from typing import NamedTuple

import apsw


class Corruption(NamedTuple):
    name: str
    rule: str
    """The rule of `verify` that must report it."""
    pick: str | None
    """A query for the id of the job to corrupt, which is :job in the statements; None if it is not a single job."""
    statements: tuple[str, ...]


def corrupt(name: str, rule: str, pick: str | None, *statements: str) -> Corruption:
    return Corruption(name, rule, pick, statements)


def job(contract: str, status: str, more: str = "true") -> str:
    return (
        f"SELECT id FROM detent_jobs WHERE contract = '{contract}' AND status = '{status}' AND {more} ORDER"
        f" BY id LIMIT 1"
    )


def row(assignments: str) -> str:
    return f"UPDATE detent_jobs SET {assignments} WHERE id = :job"


def event(assignments: str, seq: str = "(SELECT version FROM detent_jobs WHERE id = :job)") -> str:
    return f"UPDATE detent_events SET {assignments} WHERE job_id = :job AND seq = {seq}"


def also_logged(name: str, source: str, target: str, **columns: str) -> tuple[str, str]:
    """Statements that append an event to the log and increment the row's version."""
    values = {"at": "updated_at", "execution_no": "execution_no", "retries": "retries", "data": "NULL"} | columns
    return (
        "INSERT INTO detent_events (job_id, seq, event, source, target, at, execution_no, retries, data)"
        f" SELECT id, version + 1, '{name}', '{source}', '{target}', {', '.join(values.values())}"
        " FROM detent_jobs WHERE id = :job",
        row("version = version + 1"),
    )


def owned(space: str, owner: str) -> str:
    return f"INSERT INTO detent_keys (space, key, job_id, created_at) VALUES ('{space}', 'free', {owner}, 1)"


def plant(path: str, corruption: Corruption) -> str | None:
    """Apply a corruption with triggers dropped and CHECK constraints off; returns the id of the corrupted job."""
    connection = apsw.Connection(path)
    try:
        for trigger in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {trigger[0]}")
        connection.execute("PRAGMA ignore_check_constraints = ON")
        victim = None
        if corruption.pick:
            rows = connection.execute(corruption.pick).fetchall()
            assert rows and rows[0][0], f"no job to corrupt: {corruption.pick}"
            victim = rows[0][0]
        for statement in corruption.statements:
            connection.execute(statement, {"job": victim})
        return victim
    finally:
        connection.close()
