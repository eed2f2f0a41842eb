"""Word of new work: by notification at once, by polling if that is lost; a deaf or cut listener comes back."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from detent import Context, Detent
from detent.engine import Engine, Submission
from detent.stores.postgres import notifications
from detent.stores.postgres.store import PostgresStore
from support.acts import submit
from support.servers.databases import Database

pytestmark = pytest.mark.anyio
SOON = 20.0
"""Seconds a loaded machine may take for what takes milliseconds."""


@pytest.fixture
async def other(database: Database) -> AsyncIterator[Engine]:
    """As another process would see it."""
    engine = Engine(PostgresStore(database.url))
    await engine.open()
    yield engine
    await engine.close()


def postgres(engine: Engine) -> PostgresStore:
    assert isinstance(engine.store, PostgresStore)
    return engine.store


async def until(holds: Callable[[], Any], watch: Any = None) -> None:
    """Until this holds; looked at again whenever something was committed, or each hundredth of a second."""
    async with asyncio.timeout(SOON):
        while not holds():
            await (watch.changed(0.01) if watch else asyncio.sleep(0.01))


async def listening(engine: Engine, times: int = 1) -> Any:
    watch = postgres(engine).watch()
    await until(lambda: (ear := postgres(engine)._listener) is not None and ear.connections >= times)
    while await watch.changed(0):
        pass
    return watch


async def test_a_submit_of_another_process_is_heard(engine: Engine, other: Engine) -> None:
    watch = await listening(engine)
    await submit(other)
    assert await watch.changed(SOON), "only polling would have found it"


async def test_a_submit_inside_a_transaction_is_heard(engine: Engine, other: Engine) -> None:
    watch = await listening(engine)
    await submit(other, "p3c", idempotency_key="k")
    assert await watch.changed(SOON)


async def test_a_job_that_is_not_due_rings_nobody(engine: Engine, other: Engine) -> None:
    watch = await listening(engine)
    await submit(other, delay=3600)
    await other.claim(other.claim_request("w1", 1))
    await submit(other)
    assert await watch.changed(SOON), "the second one rings"
    assert not await watch.changed(0), "and only that one"


async def test_each_listener_hears_for_itself(engine: Engine, other: Engine) -> None:
    one, two = await listening(engine), await listening(engine)
    await submit(other)
    assert await one.changed(SOON)
    assert await two.changed(0), "what one has heard is still news for the other"
    assert not await two.changed(0)


async def test_many_submits_ring_a_few_times(
    engine: Engine, other: Engine, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    rings = 0
    aside = postgres(other)._side_connection
    run = aside.run

    async def counted(act: Any) -> Any:
        nonlocal rings
        rings += 1
        return await run(act)

    await submit(other)
    watch = await listening(engine)
    monkeypatch.setattr(aside, "run", counted)
    await asyncio.gather(*(other.jobs.submit(Submission("mail")) for _ in range(200)))
    assert await watch.changed(SOON)
    assert 1 <= rings < 150, f"{rings} notifications for 200 submits"


async def test_a_cut_listener_listens_again(engine: Engine, other: Engine, database: Database) -> None:
    watch = await listening(engine)
    cut = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
      WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '%pg_notify%'"""
    assert database.sql(cut)
    await listening(engine, times=2)
    assert await watch.changed(0), "what came while it was deaf is looked for"
    await submit(other)
    assert await watch.changed(SOON)


async def test_a_deaf_listener_is_replaced(engine: Engine, other: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection lives, but nothing comes through: as behind a proxy that swallows notifications."""
    monkeypatch.setattr(notifications, "_TEST_TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(notifications, "_TEST_INTERVAL_SECONDS", 0.05)
    deaf = [True]
    hear = notifications.Listener._on_notification

    def swallow(ear: Any, *news: Any) -> None:
        if not deaf[0]:
            hear(ear, *news)

    monkeypatch.setattr(notifications.Listener, "_on_notification", swallow)
    watch = postgres(engine).watch()
    await until(lambda: (ear := postgres(engine)._listener) is not None and ear.connections >= 3)
    deaf[0] = False
    before = postgres(engine)._listener.connections  # type: ignore[union-attr]
    await listening(engine, times=before)
    await submit(other)
    assert await watch.changed(SOON)


async def test_without_any_notification_polling_finds_the_job(
    database: Database, other: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications.Listener, "_on_notification", lambda *_: None)
    app, ran = Detent(database.url), asyncio.Event()

    @app.job("mail")
    async def mail(ctx: Context) -> None:
        ran.set()

    worker = await app.worker(slots=2)
    work = asyncio.create_task(worker.run(handle_signals=False))
    await until(lambda: postgres(worker.engine)._waiters)
    await submit(other)
    assert not ran.is_set(), "nobody told it"
    await asyncio.wait_for(ran.wait(), SOON)
    worker.stop()
    await work
    await app.close()


async def test_closing_leaves_no_connection_behind(database: Database, other: Engine) -> None:
    await submit(other)
    await other.claim(other.claim_request("w1", 1))
    await listening(other)
    await other.close()
    rest = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    await until(lambda: database.sql(rest) == [(0,)])
