"""Somebody locks the table jobs for longer than a lease, as a migration of the application may do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from detent import Context, Detent
from detent.core.errors import StoreUnavailable
from detent.engine import Engine
from detent.stores.postgres.store import PostgresStore
from detent.system.clock import SystemClock
from detent.worker.reclaim_grace import ReclaimGrace
from detent.worker.sweeper import Sweeper
from support.acts import submit
from support.servers.databases import Database
from support.waiting import until

from .test_held_rows import WAITERS

pytestmark = pytest.mark.anyio
CLOCK = SystemClock()
LEASE_SECONDS = 1.0


@asynccontextmanager
async def locked_table(database: Database, seconds: float) -> AsyncIterator[None]:
    """ACCESS EXCLUSIVE on jobs, for so long after the block has ended."""
    async with await psycopg.AsyncConnection.connect(database.url) as connection:
        await connection.execute("LOCK TABLE detent.jobs IN ACCESS EXCLUSIVE MODE")
        began = CLOCK.monotonic()
        yield
        await until(lambda: CLOCK.monotonic() > began + seconds)
        await connection.rollback()


async def no_lease_is_lost(database: Database, seconds: float, contract: str) -> None:
    app, go, running = Detent(database.url), asyncio.Event(), 0

    @app.job("long", contract=contract)
    async def long(ctx: Context) -> int:
        nonlocal running
        running += 1
        await go.wait()
        return 1

    async with app:
        handles = await long.enqueue_many([{} for _ in range(5)])
        workers = [await app.worker(slots=8, lease_seconds=LEASE_SECONDS) for _ in range(2)]
        runs = [asyncio.create_task(worker.run(handle_signals=False)) for worker in workers]
        await until(lambda: running == 5)
        async with locked_table(database, seconds):
            pass
        beaten = "SELECT count(*) FROM jobs WHERE lease_until > extract(epoch FROM clock_timestamp()) * 1e6"
        await until(lambda: database.sql(beaten) == [(5,)])
        go.set()
        assert [await handle.result(30) for handle in handles] == [1] * 5
        for worker in workers:
            worker.stop()
        await asyncio.gather(*runs)
    assert database.sql("SELECT max(execution_no), sum(interruptions), sum(failures) FROM jobs") == [(1, 0, 0)]


async def test_a_sweep_that_waited_for_the_lock_leaves_the_leases_to_their_heartbeats(
    engine: Engine, database: Database
) -> None:
    """The lease ran out while the sweep waited, and no heartbeat could get through; the next sweep waits one lease."""
    await submit(engine)
    (held,) = await engine.claim(engine.claim_request("w1", 1, 0.3))
    sweeper = Sweeper(engine, CLOCK, ReclaimGrace(0.3))
    async with locked_table(database, 0.4):
        sweep = asyncio.create_task(sweeper.sweep())
        await until(lambda: database.sql(WAITERS) == [(1,)])
    await sweep
    assert sweeper.expired == 0 and not sweeper.reclaim_grace.over(CLOCK.monotonic())
    await engine.extend({held.id: held.token}, 30)
    await until(lambda: sweeper.reclaim_grace.over(CLOCK.monotonic()))
    await sweeper.sweep()
    assert sweeper.expired == 0 and (await engine.jobs.get(held.id)).token == held.token


async def test_a_lease_is_compared_with_the_start_of_the_sweep(engine: Engine, database: Database) -> None:
    await submit(engine)
    (held,) = await engine.claim(engine.claim_request("w1", 1, 0.2))
    async with locked_table(database, 0.3):
        expire = asyncio.create_task(engine.expire())
        await until(lambda: database.sql(WAITERS) == [(1,)])
    assert await expire == [], "it was alive when the sweep began"
    assert [job.id for job in await engine.expire()] == [held.id]


@pytest.mark.drill
@pytest.mark.parametrize("contract", ["standard", "p3c", "gate-b2"])
@pytest.mark.parametrize("seconds", [1.2, 1.6, 2.5, 4.5, 9.0])
async def test_locks_of_any_length_lose_no_lease(database: Database, seconds: float, contract: str) -> None:
    await no_lease_is_lost(database, seconds, contract)


async def test_a_locked_table_is_named_and_keeps_no_connection_waiting(database: Database) -> None:
    """The server ends the wait; connections are used again instead of piling up behind the lock."""
    engine = Engine(PostgresStore(database.url, command_seconds=0.4))
    await engine.open()
    await submit(engine)
    backends = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query ~ 'jobs'"
    before = database.sql(backends)
    try:
        async with locked_table(database, 0):
            for _ in range(3):
                with pytest.raises(StoreUnavailable, match="stays locked"):
                    await engine.claim(engine.claim_request("w1", 1))
                with pytest.raises(StoreUnavailable, match="stays locked"):
                    await engine.expire()
            assert database.sql(backends)[0][0] <= before[0][0] + 3
        assert len(await engine.claim(engine.claim_request("w1", 1))) == 1
    finally:
        await engine.close()
