"""CPU time and transactions of an idle worker, without jobs and with many blocked jobs."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from detent import Context, Detent
from detent.core.access import Scope
from detent.engine import Submission
from detent.ports.store import Watch
from detent.stores.sqlite.store import SqliteStore
from support.waiting import until, within
from support.worker.running import working

pytestmark = pytest.mark.anyio
MEASURED_SECONDS = 1.5
WAITING = 10_000


async def test_idle_is_set_while_the_worker_has_nothing_to_do(app: Detent) -> None:
    go = asyncio.Event()

    @app.job("work")
    async def work(n: int) -> None:
        await go.wait()

    handles = await work.enqueue_many([{"n": n} for n in range(5)])
    async with working(app, slots=2) as worker:
        assert not worker.idle.is_set(), "it has not claimed yet"
        await until(lambda: len(worker.state.held) == 2)
        assert not worker.idle.is_set(), "it holds two jobs"
        go.set()
        await within(10, worker.idle.wait())
        assert [await handle.status() for handle in handles] == ["succeeded"] * 5
        assert worker.state.idle
        go.clear()
        last = await work.enqueue(n=5)
        await until(lambda: worker.state.held and not worker.state.wants_jobs)
        with pytest.raises(TimeoutError):  # it waits for notifications, because a slot is free, but it holds a job
            await within(0.2, worker.idle.wait())
        go.set()
        await within(10, last.result())
        await within(10, worker.idle.wait())


async def test_a_job_enqueued_at_an_idle_worker_starts_by_notification(app: Detent) -> None:
    @app.job("work")
    async def work() -> float:
        return time.monotonic()

    async with working(app) as worker:
        for _ in range(20):
            await within(10, worker.idle.wait())
            assert worker.state.idle
            before = time.monotonic()
            assert await within(10, (await work.enqueue()).result()) - before < 0.5, "the next poll would be later"


async def test_a_worker_whose_first_watch_fails_asks_for_another(app: Detent, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.job("work")
    async def work() -> str:
        return "done"

    store = app.engine.store
    watch, calls = store.watch, 0

    def fails_once(**options: Any) -> Watch:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise OSError("no notifications now")
        return watch(**options)

    monkeypatch.setattr(store, "watch", fails_once)
    async with working(app) as worker:
        await within(10, worker.idle.wait())
        assert calls == 2
        assert await within(10, (await work.enqueue()).result()) == "done"


async def idle_costs(app: Detent) -> tuple[float, int]:
    """(share of one core, transactions) of a worker that has no job to claim."""
    store = (await app.ready()).store
    assert isinstance(store, SqliteStore)
    async with working(app, slots=8) as worker:
        await within(10, worker.idle.wait())
        cpu, commits = time.process_time(), store.commits
        await asyncio.sleep(MEASURED_SECONDS)  # the measured duration, not a wait for a condition
        return (time.process_time() - cpu) / MEASURED_SECONDS, store.commits - commits


async def test_an_idle_worker_costs_next_to_nothing(app: Detent) -> None:
    @app.job("work")
    async def work() -> None: ...

    share, commits = await idle_costs(app)
    print(f"\nidle worker: {share:.1%} of a core, {commits / MEASURED_SECONDS:.0f} transactions a second")
    assert share < 0.15
    assert commits / MEASURED_SECONDS < 20


async def test_an_idle_worker_on_a_database_in_memory(tmp_path: Path) -> None:
    """Without a file there is no data_version to watch; the worker's own reads must not wake it."""
    async with Detent("sqlite:///:memory:") as app:

        @app.job("work")
        async def work() -> None: ...

        share, commits = await idle_costs(app)
    assert share < 0.15 and commits / MEASURED_SECONDS < 20


@pytest.mark.long
async def test_ten_thousand_waiting_jobs_cost_nothing(app: Detent) -> None:
    """Signals, timers, approvals, a paused queue, an unknown job type: none of these jobs is read again and again."""

    @app.job("wait", queue="open")
    async def wait(ctx: Context, n: int) -> None:
        await ctx.wait_for("never")

    @app.job("paused", queue="paused")
    async def paused() -> None: ...

    before, few = await idle_costs(app)
    engine = await app.ready()
    await engine.limits.pause("queue", "paused", Scope("ann"))
    kinds = [
        Submission("wait", queue="open", hold=True),
        Submission("wait", queue="open", delay=3_600),
        Submission("paused", queue="paused"),
        Submission("unknown"),
    ]
    for kind in kinds:
        await engine.jobs.submit_many([kind] * (WAITING // 5))
    await wait.enqueue_many([{"n": n} for n in range(WAITING // 5)])
    async with working(app):
        await until(lambda: _all_parked(app))
    after, many = await idle_costs(app)
    print(f"\nidle: {before:.1%} of a core, {few} transactions; with {WAITING} waiting {after:.1%}, {many}")
    assert many <= few + 5
    assert after < before * 2 + 0.05


async def _all_parked(app: Detent) -> bool:
    counts = await (await app.ready()).store.read(lambda tx: tx.stats.counts())
    return sum(n for _, _, phase, n in counts if phase == "blocked") >= 3 * WAITING // 5
