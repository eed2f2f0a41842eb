"""Many rows made by the server itself: finished jobs with their logs, or claimable ones, copied from one real job."""

from detent.engine import Engine
from support.acts import submit
from support.servers.databases import Database

_ID = "('01900000-0000-7000-8000-' || lpad(g::text, 12, '0'))::uuid"


async def finished(engine: Engine, database: Database, count: int) -> None:
    """This many jobs that ended well, three events each, and the tables vacuumed as a server does by itself."""
    await _copies(engine, database, count, done=True)
    _vacuum(database)


async def claimable(engine: Engine, database: Database, count: int) -> None:
    await _copies(engine, database, count, done=False)
    _vacuum(database)


def forget(database: Database) -> None:
    """Empty the tables that were filled: quicker than deleting so many rows."""
    database.sql("TRUNCATE detent.jobs, detent.events, detent.queue")


async def _copies(engine: Engine, database: Database, count: int, *, done: bool) -> None:
    from detent.core.outcome import Succeeded

    job = await submit(engine)
    if done:
        (held,) = await engine.claim(engine.claim_request("w1", 1))
        await engine.settle(job.id, held.token, Succeeded())
    for table, key in (("jobs", "id"), ("events", "job_id"), ("queue", "id")):
        same = ", ".join(name for name in _columns(database, table) if name != key)
        database.sql(
            f"INSERT INTO detent.{table} ({key}, {same}) SELECT {_ID}, {same}"
            f" FROM detent.{table}, generate_series(1, {count}) g WHERE {key} = '{job.id}'"
        )


def _columns(database: Database, table: str) -> list[str]:
    found = "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
    return [row[0] for row in database.sql(found, f"detent.{table}")]


def _vacuum(database: Database) -> None:
    for table in ("jobs", "events", "queue"):
        database.sql(f"VACUUM (ANALYZE) detent.{table}")
