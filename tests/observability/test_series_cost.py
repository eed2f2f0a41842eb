"""The cost of the time series: drains with and without a recorder in the same process, alternating in one run."""

import asyncio
import contextlib
import statistics
import time
from pathlib import Path

import pytest

from detent import Detent
from detent.engine.metrics.time_series import SeriesRecorder
from detent.observability.settings import Settings
from detent.web.http import state
from support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.drill]
JOBS, TYPES, ROUNDS = 20_000, 5, 9
LEAST_SHARE = 0.95


async def jobs_per_second(app: Detent, *, recorded: bool) -> float:
    """How fast one worker drains a backlog of jobs of several types and queues."""
    for job in app.jobs.values():
        await job.enqueue_many([{"n": n} for n in range(JOBS // TYPES)])
    worker = await app.worker(slots=100, config=Settings(alerts=False))
    await SeriesRecorder(app.engine).catch_up(10_000)
    recorder = asyncio.create_task(state.record(app.engine)) if recorded else None
    began = time.monotonic()
    task = asyncio.create_task(worker.run(handle_signals=False))
    await until(lambda: worker.done >= JOBS, 300)
    seconds = time.monotonic() - began
    worker.stop()
    assert await task == 0
    if recorder is not None:
        recorder.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await recorder
    return JOBS / seconds


async def test_percentiles_cost_less_than_a_twentieth_of_the_throughput(tmp_path: Path) -> None:
    app = Detent(f"sqlite:///{tmp_path / 'jobs.db'}")

    for number in range(TYPES):

        @app.job(f"noop-{number}", queue=f"q{number}")
        async def noop(n: int) -> None:
            return None

    rates: dict[bool, list[float]] = {False: [], True: []}
    async with app:
        for round_number in range(ROUNDS):
            for recorded in (False, True) if round_number % 2 else (True, False):
                rates[recorded].append(await jobs_per_second(app, recorded=recorded))
    shares = [with_it / without for with_it, without in zip(rates[True], rates[False], strict=True)]
    best = max(rates[True]) / max(rates[False])
    print({"median": round(statistics.median(shares), 3), "best": round(best, 3), "rates": rates})
    assert statistics.median(shares) >= LEAST_SHARE
