"""The cost of durable steps: a step is one statement and one commit, a `once` two, a recorded step none."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from test_guard import SqliteTrace, _queries_of, database, trace, trips  # noqa: F401  (fixtures)

from detent.core.outcome import Snoozed
from detent.engine import Engine, Submission
from detent.handler.context import Context
from detent.stores.postgres.store import PostgresStore
from detent.stores.sqlite.store import SqliteStore
from support.servers.databases import Database

JOBS = 20
_SNOOZED = Snoozed(0)
SQLITE_RECORD = "BEGIN INSERT COMMIT"


async def claim_contexts(engine: Engine, number: int = 1) -> list[Context]:
    await engine.jobs.submit_many([Submission("noop")] * number)
    return [Context(claimed, engine) for claimed in await engine.claim(engine.claim_request("guard", number))]


async def settle_and_claim_again(engine: Engine, ctx: Context) -> Context:
    await engine.settle(ctx.job_id, ctx._claimed.token, _SNOOZED)
    (again,) = await engine.claim(engine.claim_request("guard", 1))
    return Context(again, engine)


def test_sqlite_statements(tmp_path: Path, trace: SqliteTrace) -> None:  # noqa: F811
    async def run() -> None:
        engine = Engine(SqliteStore(str(tmp_path / "jobs.db"), inline=True, synchronous="OFF"))
        await engine.open()
        (ctx,) = await claim_contexts(engine)
        for kind, statements in (("step", 1), ("once", 2)):
            trace.take()
            await getattr(ctx, kind)(kind, int)
            assert trace.take() == SQLITE_RECORD.split() * statements
        again = await settle_and_claim_again(engine, ctx)
        trace.take()
        await again.step("step", int)
        assert trace.take() == ["BEGIN", "SELECT", "COMMIT"], "one read returns all steps"
        await again.once("once", int)
        assert trace.take() == []
        await engine.close()

    asyncio.run(run())


def test_postgres_round_trips(database: Database, trips: list[str]) -> None:  # noqa: F811
    async def run() -> None:
        engine = Engine(PostgresStore(database.url))
        await engine.open()
        ctx, *others = await claim_contexts(engine, JOBS)
        await _queries_of(trips)  # discards the queries of the claim
        assert len(await _queries_of(trips, ctx.step("step", int))) == 1
        assert len(await _queries_of(trips, ctx.once("once", int))) == 2
        concurrent: Any = asyncio.gather(*(other.step("step", int) for other in others))
        assert len(await _queries_of(trips, concurrent)) <= 3, "concurrent steps are recorded in batches"
        again = await settle_and_claim_again(engine, ctx)
        await _queries_of(trips)
        queries = await _queries_of(trips, again.step("step", int))
        assert len([query for query in queries if "SELECT" in query]) == 1, queries
        assert await _queries_of(trips, again.once("once", int)) == []
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
