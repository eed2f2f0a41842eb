"""The cost of the time series: drains with and without a recorder in the same process, alternating in one run."""

import asyncio
import contextlib
import statistics
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from detent import Detent
from detent.engine.metrics.time_series import SeriesRecorder
from detent.observability.settings import Settings
from detent.web.http import state
from support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.drill]
JOBS, TYPES, ROUNDS = 160_000, 5, 9
"""So many that a drain takes several times as long as a server waits between two looks at the log."""
LEAST_SHARE = 0.95
LEAST_CPU_SHARE = 0.9
"""The recorder runs in the same process, on a thread of its own: some of its CPU time costs no throughput."""


class Drain(NamedTuple):
    """How long one worker took for a backlog of jobs of several types and queues, and the CPU time of the process."""

    seconds: float
    cpu_seconds: float


async def drain(app: Detent, *, recorded: bool) -> Drain:
    for job in app.jobs.values():
        await job.enqueue_many([{"n": n} for n in range(JOBS // TYPES)])
    worker = await app.worker(slots=100, config=Settings(alerts=False))
    await SeriesRecorder(app.engine).catch_up(10_000)
    recorder = asyncio.create_task(state.record(app.engine)) if recorded else None
    began, cpu_began = time.monotonic(), time.process_time()
    task = asyncio.create_task(worker.run(handle_signals=False))
    await until(lambda: worker.done >= JOBS, 300)
    took = Drain(time.monotonic() - began, time.process_time() - cpu_began)
    worker.stop()
    assert await task == 0
    if recorder is not None:
        recorder.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await recorder
    return took


async def test_percentiles_cost_less_than_a_twentieth_of_the_throughput(tmp_path: Path) -> None:
    app = Detent(f"sqlite:///{tmp_path / 'jobs.db'}")

    for number in range(TYPES):

        @app.job(f"noop-{number}", queue=f"q{number}")
        async def noop(n: int) -> None:
            return None

    drains: dict[bool, list[Drain]] = {False: [], True: []}
    async with app:
        for round_number in range(ROUNDS):
            for recorded in (False, True) if round_number % 2 else (True, False):
                drains[recorded].append(await drain(app, recorded=recorded))
    shares = {
        name: [getattr(without, name) / getattr(with_it, name) for with_it, without in pairs]
        for pairs in [list(zip(drains[True], drains[False], strict=True))]
        for name in Drain._fields
    }
    medians = {name: round(statistics.median(values), 3) for name, values in shares.items()}
    print({"medians": medians, "jobs per second": round(JOBS / min(drain.seconds for drain in drains[True])), **shares})
    assert medians["seconds"] >= LEAST_SHARE, "throughput with the recorder, of that without"
    assert medians["cpu_seconds"] >= LEAST_CPU_SHARE, "other load of the machine does not change it"
