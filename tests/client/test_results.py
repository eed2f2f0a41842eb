"""handle.result(): one watch and one query for all waiters, woken by notification when a job ends."""

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import detent
from detent import Detent, JobFailed
from detent.core.access import Scope
from detent.core.errors import InvalidInput, NotFound, StoreUnavailable
from detent.core.outcome import Succeeded
from detent.engine import Engine
from detent.engine.execution.settle import Settlement
from detent.engine.reads import awaited_results as results
from detent.engine.reads.awaited_results import Results
from detent.stores.postgres.store import PostgresStore
from support.servers.databases import house, newest
from support.waiting import until, within

pytestmark = pytest.mark.anyio
CALLERS = 50


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'jobs.db'}"
        return
    database = house(newest()).database()
    yield database.url
    database.release()


@pytest.fixture
async def app(url: str) -> AsyncIterator[Detent]:
    app = Detent(url)

    @app.job("mail")
    async def mail(n: int) -> int:
        return n

    async with app:
        yield app


@pytest.fixture
async def other(app: Detent) -> AsyncIterator[Engine]:
    """As another process would see the database."""
    engine = app.make_engine()
    await engine.open()
    yield engine
    await engine.close()


@pytest.fixture
def no_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost notification would let a waiter wait for ever."""
    monkeypatch.setattr(results, "_POLL_SECONDS", 3_600.0)
    monkeypatch.setattr(results, "_FIRST_POLL_SECONDS", 3_600.0)


async def waiting(app: Detent, number: int = 1) -> list[Any]:
    """Callers that await results of new jobs and have read their jobs once."""
    handles = await app.jobs["mail"].enqueue_many([{"n": n} for n in range(number)])
    tasks = [asyncio.create_task(handle.result()) for handle in handles]
    engine = await app.ready()
    await until(lambda: len(engine.results._waiting) == number and engine.results._follower is not None)
    return tasks


async def knows_of_waiters(engine: Engine) -> None:
    """Wait until this process, which listens, has been told that results are awaited."""
    if isinstance(store := engine.store, PostgresStore):
        store.watch()
        await until(lambda: store._ends._awaited_until > 0)


async def test_ends_in_another_process_are_notified(app: Detent, other: Engine, no_polls: None) -> None:
    tasks = await waiting(app, 3)
    await knows_of_waiters(other)
    for job in await other.claim(other.claim_request("w1", 3)):
        await other.settle(job.id, job.token, Succeeded("7"))
    assert await within(20, asyncio.gather(*tasks)) == [7, 7, 7]


async def test_a_plain_batch_of_successes_is_notified(app: Detent, other: Engine, no_polls: None) -> None:
    tasks = await waiting(app, 3)
    await knows_of_waiters(other)
    claimed = await other.claim(other.claim_request("w1", 3))
    done = [Settlement(job.id, job.token, job.contract, Succeeded("7")) for job in claimed]
    await other.settle_and_claim(done, None)
    assert await within(20, asyncio.gather(*tasks)) == [7, 7, 7]


async def test_a_process_that_does_not_listen_notifies(app: Detent, other: Engine, no_polls: None) -> None:
    """A cancel by the command line, for example."""
    (task,) = await waiting(app)
    (job_id,) = (await app.ready()).results._waiting
    await other.jobs.cancel(job_id, Scope("ann", "no need"))
    with pytest.raises(JobFailed) as failed:
        await within(20, task)
    assert failed.value.status == "cancelled"


async def test_a_lost_notification_costs_one_poll(app: Detent, other: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    if isinstance(store := other.store, PostgresStore):
        monkeypatch.setattr(store._ends, "notify", lambda *, unless_known: None)
    (task,) = await waiting(app)
    (job,) = await other.claim(other.claim_request("w1", 1))
    await other.settle(job.id, job.token, Succeeded("7"))
    assert await within(20, task) == 7


async def test_waiters_share_reads(app: Detent, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    read = Results._read

    async def counted(self: Results, ids: Any) -> Any:
        sizes.append(len(ids))
        return await read(self, ids)

    monkeypatch.setattr(Results, "_read", counted)
    tasks = await waiting(app, CALLERS)
    await until(lambda: CALLERS in sizes)
    assert len(sizes) <= 6, "not one for each of them"
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert not (await app.ready()).results._waiting


async def test_an_outage_does_not_end_the_wait(app: Detent, monkeypatch: pytest.MonkeyPatch) -> None:
    (task,) = await waiting(app)
    deliver, failures = Results._deliver, 0

    async def fails_twice(self: Results, ids: list[str]) -> bool:
        nonlocal failures
        failures += 1
        if failures <= 2:
            raise (StoreUnavailable("down"), OSError("broken"))[failures - 1]
        return await deliver(self, ids)

    monkeypatch.setattr(results, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(Results, "_deliver", fails_twice)
    engine = await app.ready()
    (job,) = await engine.claim(engine.claim_request("w1", 1))
    await engine.settle(job.id, job.token, Succeeded("7"))
    assert await within(20, task) == 7 and failures > 2


async def test_a_job_that_does_not_exist(app: Detent) -> None:
    engine = await app.ready()
    handle = await app.jobs["mail"].enqueue(n=1)
    with pytest.raises(TimeoutError, match="is queued after 0 s"):
        await handle.result(timeout=0)
    with pytest.raises(NotFound):
        await engine.results.wait("00000000-0000-7000-8000-000000000000")


async def test_closing_the_app_ends_the_wait(app: Detent) -> None:
    (task,) = await waiting(app)
    await app.close()
    with pytest.raises(InvalidInput) as closed:
        await within(20, task)
    assert closed.value.code == "APP_CLOSED"


SCRIPT = """
import asyncio
from detent import Detent

app = Detent()


@app.job("mail")
async def mail(n: int) -> None:
    await asyncio.sleep(n * 0.05)
"""


@pytest.mark.drill
async def test_fifty_callers_on_postgres(tmp_path: Path) -> None:
    """At most 20 transactions a second while they wait; results within 50 ms p50 after the settlement."""
    database = house(newest()).database()
    app = Detent(database.url)

    @app.job("mail")
    async def mail(n: int) -> None: ...

    async with app:
        server = await asyncpg.connect(database.url)

        async def transactions() -> int:
            """Sessions report their numbers once a second."""
            await asyncio.sleep(1.2)
            query = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
            return int(await server.fetchval(query))

        handles = await mail.enqueue_many([{"n": n} for n in range(CALLERS)])
        delays = []

        async def await_result(handle: Any) -> None:
            await handle.result()
            received = time.time()
            delays.append(received - ((await handle.job()).finished_at or 0) / 1_000_000)

        callers = [asyncio.create_task(await_result(handle)) for handle in handles]
        before, begun = await transactions(), time.monotonic()
        await asyncio.sleep(4)
        rate = (await transactions() - before) / (time.monotonic() - begun)
        assert rate <= 20, f"{rate:.1f} transactions a second"
        script = tmp_path / "worker.py"
        script.write_text(SCRIPT)
        environment = os.environ | {"DETENT_URL": database.url, "PYTHONPATH": str(Path(detent.__file__).parents[1])}
        worker = subprocess.Popen([sys.executable, "-m", "detent", "worker", str(script)], env=environment)
        try:
            await within(60, asyncio.gather(*callers))
        finally:
            worker.terminate()
            worker.wait()
        await server.close()
    database.release()
    print(f"{rate:.1f} transactions a second, results after {statistics.median(delays) * 1_000:.1f} ms (p50)")
    assert statistics.median(delays) <= 0.05
