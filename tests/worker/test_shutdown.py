"""Irregular shutdowns: a cancelled run, an unreachable store, a claim in flight, a locked row."""

import asyncio
import time
from typing import Any

import pytest

from detent import Context, Detent
from detent.core.errors import StoreUnavailable
from detent.engine import BatchResult, Engine
from support.waiting import until, within
from support.worker.running import working

pytestmark = pytest.mark.anyio


def declare(app: Detent, running: list[str]) -> Any:
    @app.job("hold")
    async def hold(ctx: Context) -> None:
        running.append(ctx.job_id)
        await asyncio.sleep(60)

    return hold


async def test_a_run_that_is_cancelled_hands_its_jobs_back(app: Detent) -> None:
    """For example by a web server that cancels its tasks: no lease may be left to expire and be charged."""
    running: list[str] = []
    handles = [await declare(app, running).enqueue()]
    worker = await app.worker()
    task = asyncio.create_task(worker.run(handle_signals=False))
    await until(lambda: running)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await within(20, task)
    job = await handles[0].job()
    assert (job.status, job.failures) == ("queued", 0)
    assert await (await app.ready()).store.read(lambda tx: tx.workers.list_workers()) == []


async def test_a_claim_in_flight_when_the_run_is_cancelled_is_handed_back_too(
    app: Detent, monkeypatch: pytest.MonkeyPatch
) -> None:
    running: list[str] = []
    handle = await declare(app, running).enqueue()
    honest, claiming, go = Engine.settle_and_claim, asyncio.Event(), asyncio.Event()

    async def settle_and_claim(self: Engine, settled: Any, request: Any) -> Any:
        result = await honest(self, settled, request)
        if result.claimed:
            claiming.set()
            await go.wait()
        return result

    monkeypatch.setattr(Engine, "settle_and_claim", settle_and_claim)
    worker = await app.worker()
    task = asyncio.create_task(worker.run(handle_signals=False))
    await within(20, claiming.wait())
    task.cancel()
    await asyncio.sleep(0)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await within(20, task)
    job = await handle.job()
    assert (job.status, job.execution_no, job.failures) == ("queued", 1, 0) and not running


async def test_a_claim_in_flight_at_the_stop_is_not_started(app: Detent, monkeypatch: pytest.MonkeyPatch) -> None:
    running: list[str] = []
    handle = await declare(app, running).enqueue()
    honest = Engine.settle_and_claim
    worker = await app.worker(grace_seconds=60)

    async def settle_and_claim(self: Engine, settled: Any, request: Any) -> Any:
        result = await honest(self, settled, request)
        if result.claimed:
            worker.stop()
            worker.stop()
        return result

    monkeypatch.setattr(Engine, "settle_and_claim", settle_and_claim)
    assert await within(20, worker.run(handle_signals=False)) == 0
    assert (await handle.job()).status == "queued" and not running


async def test_an_unreachable_store_does_not_delay_a_stopping_worker(
    app: Detent, monkeypatch: pytest.MonkeyPatch
) -> None:
    running: list[str] = []
    handle = await declare(app, running).enqueue()
    worker = await app.worker(grace_seconds=0.1)
    task = asyncio.create_task(worker.run(handle_signals=False))
    await until(lambda: running)

    async def settle_and_claim(self: Engine, settled: Any, request: Any) -> Any:
        raise StoreUnavailable("gone")

    monkeypatch.setattr(Engine, "settle_and_claim", settle_and_claim)
    begun = time.monotonic()
    worker.stop()
    assert await within(30, task) == 1, "jobs were not handed back"
    assert time.monotonic() - begun < 15
    assert (await handle.job()).phase == "leased", "left to its lease"


async def test_a_settlement_skipped_because_of_a_row_lock_is_repeated(
    app: Detent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Postgres answers while another transaction locks the row; also while the worker stops."""

    @app.job("work")
    async def work() -> int:
        worker.stop()
        return 1

    honest, delays = Engine.settle_and_claim, 0

    async def settle_and_claim(self: Engine, settled: Any, request: Any) -> Any:
        nonlocal delays
        if settled and delays < 3:
            delays += 1
            return BatchResult(later=list(settled))
        return await honest(self, settled, request)

    monkeypatch.setattr(Engine, "settle_and_claim", settle_and_claim)
    handle = await work.enqueue()
    worker = await app.worker(grace_seconds=60)
    assert await within(20, worker.run(handle_signals=False)) == 0
    assert delays == 3 and (await handle.job()).status == "succeeded"


async def test_the_watch_survives_errors(app: Detent, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that no longer waits for notifications would run without claiming."""
    from detent.worker.worker import Worker

    @app.job("work")
    async def work() -> int:
        return 1

    honest, calls = Worker._seconds_until_due, 0

    async def seconds_until_due(self: Worker) -> float:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise OSError("the connection broke")
        return await honest(self)

    monkeypatch.setattr(Worker, "_seconds_until_due", seconds_until_due)
    async with working(app):
        await until(lambda: calls)
        assert await within(20, (await work.enqueue()).result()) == 1
