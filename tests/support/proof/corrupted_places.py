"""Corruptions of the tables in which Postgres finds unfinished jobs, applied to a database of Postgres."""

import psycopg

from support.proof.planting import Corruption, corrupt

READY = "SELECT id FROM detent.queue ORDER BY id LIMIT 1"
LATER = "SELECT id FROM detent.timers WHERE NOT wakes ORDER BY id LIMIT 1"
SLEEPING = "SELECT id FROM detent.timers WHERE wakes ORDER BY id LIMIT 1"
LEASED = "SELECT id FROM detent.job_list WHERE phase = 'leased' ORDER BY id LIMIT 1"
FINISHED = "SELECT id FROM detent.job_list WHERE phase = 'final' ORDER BY id LIMIT 1"
MISSING_JOB = "SELECT '01900000-0000-7000-8000-000000000000'::uuid"
ASKING = (
    "SELECT w.id FROM detent.awaiting_approval w JOIN detent.jobs j USING (id) WHERE j.wait_kind {} ORDER BY 1 LIMIT 1"
)


def job(statement: str) -> str:
    return f"{statement} WHERE id = %(job)s"


PLACES = (
    corrupt("lost from the queue", "queue-missing", READY, job("DELETE FROM detent.queue")),
    corrupt("queued in another lane", "queue-missing", READY, job("UPDATE detent.queue SET lane = lane + 1")),
    corrupt("queued with another due time", "queue-missing", READY, job("UPDATE detent.queue SET due_at = due_at + 1")),
    corrupt("future job lost from timers", "queue-missing", LATER, job("DELETE FROM detent.timers")),
    corrupt(
        "future job in timers of blocked jobs", "queue-missing", LATER, job("UPDATE detent.timers SET wakes = true")
    ),
    corrupt("blocked job lost from timers", "timer-missing", SLEEPING, job("DELETE FROM detent.timers")),
    corrupt("wakes at another time", "timer-missing", SLEEPING, job("UPDATE detent.timers SET due_at = due_at + 1")),
    corrupt("claim lost", "claim-missing", LEASED, "DELETE FROM detent.claims WHERE %(job)s = ANY (ids)"),
    corrupt(
        "job lost from its claim", "claim-missing", LEASED, "UPDATE detent.claims SET ids = array_remove(ids, %(job)s)"
    ),
    corrupt(
        "claim checked after the lease",
        "claim-missing",
        LEASED,
        "UPDATE detent.claims SET check_at = (SELECT lease_until + 1 FROM detent.jobs WHERE id = %(job)s)"
        " WHERE %(job)s = ANY (ids)",
    ),
    corrupt(
        "requested approval not listed",
        "approval-unlisted",
        ASKING.format("= 'approval'"),
        job("DELETE FROM detent.awaiting_approval"),
    ),
    corrupt(
        "approval before the start not listed",
        "approval-unlisted",
        ASKING.format("IS NULL"),
        job("DELETE FROM detent.awaiting_approval"),
    ),
    corrupt("queued in a stray lane", "place-stray", READY, job("UPDATE detent.queue SET lane = lane + 1")),
    corrupt("queued with a stray due time", "place-stray", READY, job("UPDATE detent.queue SET due_at = due_at + 1")),
    corrupt(
        "leased job in the queue",
        "place-stray",
        LEASED,
        job("INSERT INTO detent.queue SELECT lane, due_at, id FROM detent.jobs"),
    ),
    corrupt("queued job does not exist", "place-stray", MISSING_JOB, "INSERT INTO detent.queue VALUES (1, 1, %(job)s)"),
    corrupt(
        "timed job does not exist", "place-stray", MISSING_JOB, "INSERT INTO detent.timers VALUES (false, 1, %(job)s)"
    ),
    corrupt("finished job in timers", "place-stray", FINISHED, "INSERT INTO detent.timers VALUES (true, 1, %(job)s)"),
    corrupt("future job woken", "place-stray", LATER, job("UPDATE detent.timers SET wakes = true")),
    corrupt("stray time to wake", "place-stray", SLEEPING, job("UPDATE detent.timers SET due_at = due_at + 1")),
    corrupt(
        "in queue and timers",
        "place-stray",
        READY,
        job("INSERT INTO detent.timers SELECT false, due_at, id FROM detent.queue"),
    ),
    corrupt(
        "approval of a running job listed",
        "place-stray",
        LEASED,
        "INSERT INTO detent.awaiting_approval VALUES (%(job)s)",
    ),
)


def plant_on_postgres(url: str, corruption: Corruption) -> str:
    """Apply a corruption with triggers off; returns the id of the corrupted job. Every statement must change a row."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        row = connection.execute(corruption.pick or "").fetchone()  # type: ignore[arg-type]
        assert row and row[0], f"no job to corrupt: {corruption.pick}"
        for statement in corruption.statements:
            cursor = connection.execute(statement, {"job": row[0]})  # type: ignore[arg-type]
            assert cursor.rowcount > 0, statement
        return str(row[0])
