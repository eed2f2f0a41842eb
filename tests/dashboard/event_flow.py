"""A process that keeps a steady flow of events: jobs are submitted and run through the engine, at a fixed rate.

Run as `python -m dashboard.event_flow URL EVENTS_PER_SECOND`. Prints the id of a job that logs and reports progress
until the process ends, then one line of JSON per second. Ends with SIGTERM.
"""

import asyncio
import json
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dashboard.site import child_environment, stop_process
from detent import Context, Detent
from detent.observability.settings import Settings
from detent.worker.worker import Worker

EVENTS_PER_JOB = 3
"""Submitted, claimed, succeeded."""
QUEUES, TICKS_PER_SECOND, LINES_PER_SECOND = 10, 10, 20
log = logging.getLogger("flow")


@contextmanager
def event_flow(folder: Path, url: str, events_per_second: float) -> Iterator["Flow"]:
    """Run the process while the context is open."""
    path = folder / "flow.log"
    with path.open("w") as output:
        command = [sys.executable, "-m", "dashboard.event_flow", url, str(events_per_second)]
        process = subprocess.Popen(
            command, cwd=folder, env=child_environment(), stdout=output, stderr=output, text=True
        )
    try:
        yield Flow(path)
    finally:
        stop_process(process)


class Flow:
    def __init__(self, path: Path) -> None:
        self._path = path

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._path.read_text().splitlines() if line.startswith("{")]

    def chatty_job(self) -> str:
        """The id of the job that logs and reports progress; waits until the process runs."""
        deadline = time.monotonic() + 60
        while not self.lines():
            assert time.monotonic() < deadline, self._path.read_text()
            time.sleep(0.1)
        return str(self.lines()[0]["chatty_job"])

    def rates(self) -> list[int]:
        return [line["events_per_second"] for line in self.lines()[1:]]


async def main(url: str, events_per_second: float) -> None:
    app = Detent(url)
    stopped = asyncio.Event()

    @app.job("flow", queue="flow-0")
    async def flow(ctx: Context, n: int) -> None:
        return None

    @app.job("chatty", queue="flow-chatty", capture_logs=True)
    async def chatty(ctx: Context) -> None:
        for n in range(1_000_000_000):
            log.warning("line %d of a job that writes many of them", n)
            if n % LINES_PER_SECOND == 0:
                await ctx.progress(n % 1_000 / 1_000, f"{n} lines")
            with suppress(TimeoutError):
                async with asyncio.timeout(1 / LINES_PER_SECOND):
                    await stopped.wait()
                    return

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with app:
        queues = ["flow-chatty", *(f"flow-{n}" for n in range(QUEUES))]
        worker = await app.worker(slots=200, queues=queues, config=Settings(alerts=False))
        task = asyncio.create_task(worker.run(handle_signals=False))
        print(json.dumps({"chatty_job": (await chatty.enqueue()).id}), flush=True)
        await _submit(flow, worker, events_per_second, stopped)
        worker.stop()
        await task


async def _submit(flow: Any, worker: Worker, events_per_second: float, stopped: asyncio.Event) -> None:
    """Submit jobs at the rate, in ten batches per second; a worker that is too slow gets no more."""
    began = reported_at = time.monotonic()
    submitted = ticks = last_events = 0
    while not stopped.is_set():
        wanted = int((time.monotonic() - began) * events_per_second / EVENTS_PER_JOB) - submitted
        number = min(wanted, int(events_per_second))
        if number > 0 and submitted - worker.done < events_per_second:
            await flow.using(queue=f"flow-{ticks % QUEUES}").enqueue_many([{"n": n} for n in range(number)])
            submitted += number
        ticks += 1
        now = time.monotonic()
        if now - reported_at >= 1:
            events = submitted + (EVENTS_PER_JOB - 1) * worker.done
            rate = round((events - last_events) / (now - reported_at))
            print(json.dumps({"events_per_second": rate, "backlog": submitted - worker.done}), flush=True)
            reported_at, last_events = now, events
        with suppress(TimeoutError):
            async with asyncio.timeout(1 / TICKS_PER_SECOND):
                await stopped.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
