"""Detent on SQLite: the public API, a real worker, durable commits."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from detent import Context, Detent

from .harness import Readings

NAME = "detent"
INCLUDES = "full history kept, fsync on every commit, one handler call per job, leases and fencing"


def make_app(path: Path) -> Detent:
    app = Detent(f"sqlite:///{path}")

    @app.job("noop")
    async def noop(ctx: Context) -> None: ...

    @app.job("stamp")
    async def stamp(ctx: Context, sent: float) -> float:
        return time.time() - sent

    return app


async def fill(app: Detent, jobs: int) -> float:
    started = time.perf_counter()
    for _ in range(0, jobs, 1_000):
        await app.jobs["noop"].enqueue_many([{}] * 1_000)
    return jobs / (time.perf_counter() - started)


async def drain(path: Path, jobs: int, slots: int, readings: Readings) -> None:
    app = make_app(path)
    async with app:
        worker = await app.worker(slots=slots, until_idle=True)
        started = time.perf_counter()
        await worker.run()
        spent = time.perf_counter() - started
        assert worker.done == jobs, (worker.done, jobs)
        readings.add("drain", NAME, jobs / spent)


async def enqueue(path: Path, seconds: float, callers: int, readings: Readings) -> None:
    app = make_app(path)
    noop = app.jobs["noop"]
    async with app:
        await noop.enqueue()
        end = time.perf_counter() + seconds

        async def caller() -> int:
            count = 0
            while time.perf_counter() < end:
                await noop.enqueue()
                count += 1
            return count

        started = time.perf_counter()
        total = sum(await asyncio.gather(*(caller() for _ in range(callers))))
        measure = "enqueue one by one" if callers == 1 else f"enqueue by {callers} callers"
        readings.add(measure, NAME, total / (time.perf_counter() - started))


async def pickup(path: Path, jobs: int, readings: Readings, *, same_process: bool) -> None:
    """Handler start minus the instant before the enqueue call, an idle worker, one job at a time."""
    app = make_app(path)
    async with app:
        stamp = app.jobs["stamp"]
        worker, process = None, None
        if same_process:
            task = asyncio.create_task((worker := await app.worker(slots=8)).run(handle_signals=False))
        else:
            command = [sys.executable, "-m", "bench.sqlite_worker", str(path)]
            process = subprocess.Popen(command, env=dict(os.environ))
        delays = []
        for number in range(jobs + 5):
            handle = await stamp.enqueue(sent=time.time())
            delay = await handle.result(30)
            if number >= 5:
                delays.append(delay * 1_000)
            await asyncio.sleep(0.02)
        if worker is not None:
            worker.stop()
            await task
        if process is not None:
            process.terminate()
            process.wait()
    delays.sort()
    where = "same process" if same_process else "other process"
    readings.add(f"pickup p50, {where}", NAME, delays[len(delays) // 2], "ms")
    readings.add(f"pickup p99, {where}", NAME, delays[int(len(delays) * 0.99) - 1], "ms")
