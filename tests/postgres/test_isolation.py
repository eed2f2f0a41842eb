"""Servers whose default is another isolation level: Detent works in READ COMMITTED on every connection it opens."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from typing import Any

import asyncpg
import psycopg
import pytest
from external_transaction.callers import WithAsyncpg

from detent import Detent
from detent.client.connect import store_from
from detent.client.external_transaction import NoTransaction
from detent.core.access import Scope
from detent.core.errors import QuotaExceeded
from detent.core.job import Wait
from detent.core.outcome import Waits
from detent.engine import Engine, Settlement, Submission
from detent.engine.jobs import signal_job
from detent.engine.submit.prepare import prepare, submit_within_quotas
from detent.proof.verify.verify import verify
from detent.stores.postgres.store import PostgresStore
from support.acts import claim_one, running, submit
from support.servers.bouncer import ABSENT, bouncing, installed
from support.servers.databases import SEARCH_DETENT, Database, migrated
from support.servers.postgres import VOLATILE
from support.servers.postgres import running as running_server

from .test_held_rows import one_waits_for_the_other

pytestmark = pytest.mark.anyio
LEVELS = ("read committed", "repeatable read", "serializable")


@pytest.fixture(params=LEVELS[1:])
def strict_database(database: Database, request: pytest.FixtureRequest) -> Iterator[Database]:
    """A database with another default isolation level."""
    name = database.sql("SELECT current_database()")[0][0]
    database.sql(f"ALTER DATABASE {name} SET default_transaction_isolation = '{request.param}'")
    yield database
    database.sql(f"ALTER DATABASE {name} RESET default_transaction_isolation")


@pytest.fixture(params=[False, True], ids=["direct", "without session settings"])
async def strict_engine(strict_database: Database, request: pytest.FixtureRequest) -> AsyncIterator[Engine]:
    engine = Engine(PostgresStore(strict_database.url, bouncer=request.param))
    await engine.open()
    yield engine
    await engine.close()


async def test_a_wait_that_waits_for_the_signal_finds_it(strict_engine: Engine, strict_database: Database) -> None:
    held = await running(strict_engine)

    async def signal(tx: Any) -> Any:
        return await signal_job(strict_engine, tx, held.id, "answer", Scope("ann"), {"n": 1})

    wait = strict_engine.settle(held.id, held.token, Waits(Wait("answer")))
    (_, first), job = await one_waits_for_the_other(strict_database, strict_engine, signal, wait)
    assert first and job.phase == "claimable", f"it sleeps for ever in {job.status}"


async def test_a_tenant_quota_is_exact(strict_engine: Engine, strict_database: Database) -> None:
    await strict_engine.limits.set_quota("small", Scope("ann"), max_backlog=1)
    prepared = prepare(strict_engine, Submission("mail", tenant_id="small"), strict_engine.store.now())

    async def first(tx: Any) -> Any:
        return await submit_within_quotas(tx, [prepared])

    async def second() -> bool:
        try:
            await submit(strict_engine, tenant_id="small")
        except QuotaExceeded:
            return True
        return False

    _, refused = await one_waits_for_the_other(strict_database, strict_engine, first, second())
    assert refused
    assert strict_database.sql("SELECT count(*) FROM jobs") == [(1,)]


async def test_every_own_connection_is_read_committed(strict_database: Database) -> None:
    """Statements outside a transaction take the default of their connection."""
    store = PostgresStore(strict_database.url)
    engine = Engine(store)
    await engine.open()
    levels = set()
    try:
        await submit(engine)
        await claim_one(engine)
        await store._notifier._side_connection.run(lambda connection: connection.execute("SELECT 1"))
        own = [*store._claim_connections, store._insert_batcher._connection, store._side_connection._connection]
        levels |= {await connection.fetchval("SHOW transaction_isolation") for connection in own}
        async with store._acquired() as connection:
            levels.add(await connection.fetchval("SHOW transaction_isolation"))
        transaction = await store.begin()
        levels.add(await transaction.connection.fetchval("SHOW transaction_isolation"))
        await transaction.rollback()
    finally:
        await engine.close()
    assert len(own) == 3 and levels == {"read committed"}


async def test_a_quota_in_a_callers_snapshot_is_refused(database: Database) -> None:
    """The quota is counted after its row was locked; an older snapshot does not contain the jobs of others."""
    app, caller = Detent(database.url), WithAsyncpg()

    @app.job("mail")
    async def mail() -> None: ...

    async with app:
        await app.engine.limits.set_quota("small", Scope("ann"), max_backlog=1)
        await caller.open(database.url)
        try:
            await caller.begin("repeatable read")
            with pytest.raises(NoTransaction) as refused:
                await caller.enqueue(mail.using(tenant="small"))
            assert refused.value.code == "ISOLATION_UNSUPPORTED" and "READ COMMITTED" in str(refused.value)
            await caller.rollback()
            await caller.begin()
            await caller.enqueue(mail.using(tenant="small"))
            await caller.commit()
        finally:
            await caller.close()
    assert database.sql("SELECT count(*) FROM jobs") == [(1,)]


async def test_an_insert_is_repeated_after_a_conflict(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    from detent.stores.postgres import batcher

    insert, attempts = batcher.insert, 0

    async def conflict_once(*arguments: Any, **options: Any) -> set[str]:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise asyncpg.DeadlockDetectedError("deadlock detected")
        return await insert(*arguments, **options)

    monkeypatch.setattr(batcher, "insert", conflict_once)
    assert await submit(engine) and attempts == 2


async def signal_at_the_moment_of_waiting(engine: Engine, number: int) -> None:
    """Settle waits and send their signals at the same time."""

    async def wait(settlements: list[Settlement]) -> None:
        while settlements:
            settlements = (await engine.settle_and_claim(settlements, None)).later

    await engine.jobs.submit_many([Submission("mail") for _ in range(number)])
    for _ in range(0, number, 50):
        claimed = await engine.claim(engine.claim_request("w1", 50, 3_600.0))
        waits = [Settlement(job.id, job.token, job.contract, Waits(Wait("go"))) for job in claimed]
        signals = (engine.jobs.signal(job.id, "go", Scope("ann")) for job in claimed)
        await asyncio.gather(wait(waits[:25]), *signals, wait(waits[25:]))


@pytest.mark.drill
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("bouncer", [False, True], ids=["direct", "bouncer"])
async def test_five_thousand_signals_at_the_moment_of_waiting(level: str, bouncer: bool) -> None:
    if bouncer and not installed():
        pytest.skip(ABSENT)
    settings = {**VOLATILE, "default_transaction_isolation": level}
    with ExitStack() as stack:
        server = stack.enter_context(running_server(settings=settings))
        await migrated(server.url())
        url = stack.enter_context(bouncing(server, "postgres", size=12)) if bouncer else server.url()
        engine = Engine(store_from(url))
        await engine.open()
        try:
            await signal_at_the_moment_of_waiting(engine, 5_000)
            with psycopg.connect(server.url(), options=SEARCH_DETENT) as connection:
                phases = dict(
                    connection.execute("SELECT phase, count(*) FROM detent.job_list GROUP BY phase").fetchall()
                )
                signals = connection.execute("SELECT count(*) FROM signals").fetchone()
            assert (phases, signals) == ({"claimable": 5_000}, (5_000,))
            assert (await verify(engine.store)).ok
        finally:
            await engine.close()
