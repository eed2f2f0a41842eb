"""Many rows made by the server itself: finished jobs with their logs, or claimable ones, copied from one real job."""

from detent.engine import Engine
from detent.stores.rows import JOB_COLUMNS
from support.acts import submit
from support.servers.databases import Database

_ID = "('01900000-0000-7000-8000-' || lpad(g::text, 12, '0'))::uuid"


async def finished(engine: Engine, database: Database, count: int) -> None:
    """This many jobs that ended well, three events each, and the tables vacuumed as a server does by itself."""
    await _copies(engine, database, count, done=True)
    database.sql("VACUUM (ANALYZE) jobs")
    database.sql("VACUUM (ANALYZE) events")


async def claimable(engine: Engine, database: Database, count: int) -> None:
    await _copies(engine, database, count, done=False)
    database.sql("VACUUM (ANALYZE) jobs")


async def _copies(engine: Engine, database: Database, count: int, *, done: bool) -> None:
    from detent.core.outcome import Succeeded

    job = await submit(engine)
    if done:
        (held,) = await engine.claim(engine.claim_request("w1", 1))
        await engine.settle(job.id, held.token, Succeeded())
    same = ", ".join([*JOB_COLUMNS[1:], "lane"])
    events = "seq, event, source, target, at, actor, execution_no, retries, data, xid"
    numbers = f"generate_series(1, {count}) g"
    database.sql(f"INSERT INTO jobs (id, {same}) SELECT {_ID}, {same} FROM jobs, {numbers} WHERE id = '{job.id}'")
    database.sql(
        f"INSERT INTO events (job_id, {events}) SELECT {_ID}, {events} FROM events, {numbers} WHERE job_id = '{job.id}'"
    )
