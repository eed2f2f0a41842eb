"""CPU time and transactions of an idle worker, without jobs and with many blocked jobs."""

import asyncio
import time
from pathlib import Path

import pytest

from detent import Context, Detent
from detent.engine import Submission
from detent.stores.sqlite.store import SqliteStore

from .conftest import working
from .waiting import until

pytestmark = pytest.mark.anyio
MEASURED_SECONDS = 1.5
WAITING = 10_000


async def idle_costs(app: Detent) -> tuple[float, int]:
    """(share of one core, transactions) of a worker that has no job to claim."""
    store = (await app.ready()).store
    assert isinstance(store, SqliteStore)
    async with working(app, slots=8) as worker:
        await until(lambda: worker._idle.is_set() and not worker.state.held)
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


async def test_ten_thousand_waiting_jobs_cost_nothing(app: Detent) -> None:
    """Signals, timers, approvals, a paused queue, an unknown job type: none of these jobs is read again and again."""

    @app.job("wait", queue="open")
    async def wait(ctx: Context, n: int) -> None:
        await ctx.wait_for("never")

    @app.job("paused", queue="paused")
    async def paused() -> None: ...

    before, few = await idle_costs(app)
    engine = await app.ready()
    await engine.pause("queue", "paused", actor="ann")
    kinds = [
        Submission("wait", queue="open", hold=True),
        Submission("wait", queue="open", delay=3_600),
        Submission("paused", queue="paused"),
        Submission("unknown"),
    ]
    for kind in kinds:
        await engine.submit_many([kind] * (WAITING // 5))
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
