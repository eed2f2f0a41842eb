"""What durable steps cost, counted: a step is one statement and one commit, a `once` two, a remembered step nothing."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from servers.databases import Database
from test_guard import SqliteTrace, _sent, database, trace, trips  # noqa: F401  (fixtures)

from detent.core.outcome import Snoozed
from detent.engine import Engine, Submission
from detent.handler.context import Context
from detent.stores.postgres.store import PostgresStore
from detent.stores.sqlite.store import SqliteStore

JOBS = 20
_SNOOZED = Snoozed(0)
SQLITE_RECORD = "BEGIN INSERT COMMIT"


async def claimed(engine: Engine, number: int = 1) -> list[Context]:
    await engine.submit_many([Submission("noop")] * number)
    return [Context(one, engine) for one in await engine.claim(engine.claim_request("guard", number))]


async def lost_and_claimed_again(engine: Engine, ctx: Context) -> Context:
    await engine.settle(ctx.job_id, ctx._claimed.token, _SNOOZED)
    (again,) = await engine.claim(engine.claim_request("guard", 1))
    return Context(again, engine)


def test_sqlite_statements(tmp_path: Path, trace: SqliteTrace) -> None:  # noqa: F811
    async def run() -> None:
        engine = Engine(SqliteStore(str(tmp_path / "jobs.db"), inline=True, synchronous="OFF"))
        await engine.open()
        (ctx,) = await claimed(engine)
        for kind, statements in (("step", 1), ("once", 2)):
            trace.taken()
            await getattr(ctx, kind)(kind, int)
            assert trace.taken() == SQLITE_RECORD.split() * statements
        again = await lost_and_claimed_again(engine, ctx)
        trace.taken()
        await again.step("step", int)
        assert trace.taken() == ["BEGIN", "SELECT", "COMMIT"], "all steps in one read"
        await again.once("once", int)
        assert trace.taken() == []
        await engine.close()

    asyncio.run(run())


def test_postgres_round_trips(database: Database, trips: list[str]) -> None:  # noqa: F811
    async def run() -> None:
        engine = Engine(PostgresStore(database.url))
        await engine.open()
        ctx, *others = await claimed(engine, JOBS)
        await _sent(trips)  # word of the claim itself
        assert len(await _sent(trips, ctx.step("step", int))) == 1
        assert len(await _sent(trips, ctx.once("once", int))) == 2
        together: Any = asyncio.gather(*(one.step("step", int) for one in others))
        assert len(await _sent(trips, together)) <= 3, "steps of jobs that run together travel together"
        again = await lost_and_claimed_again(engine, ctx)
        await _sent(trips)
        queries = await _sent(trips, again.step("step", int))
        assert len([query for query in queries if "SELECT" in query]) == 1, queries
        assert await _sent(trips, again.once("once", int)) == []
        await engine.close()

    asyncio.run(run())
    assert database.sql("SELECT count(*) FROM steps") == [(JOBS + 1,)]


@pytest.mark.drill
def test_detent_is_twice_as_fast_as_dbos(tmp_path: Path) -> None:
    """Ten recorded steps a job on one Postgres; needs the peer: python -m bench --install dbos."""
    from bench.contestants import BY_NAME
    from bench.harness import compete
    from bench.measures import STEPS, Sizes
    from bench.services import Services

    services = Services()
    try:
        names = ("detent-postgres", "raw-postgres", "dbos")
        readings = compete([BY_NAME[name] for name in names], ["steps"], Sizes(4_000), 3, tmp_path, services)
    finally:
        services.close()
    reached = readings.ratio(STEPS, "detent-postgres", "dbos")
    assert reached is not None and reached >= 2, readings.missing or reached
