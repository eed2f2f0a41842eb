"""`detent bench`: enqueues no-op jobs, runs them in a worker of this process, and times both."""

import asyncio
import tempfile
from collections.abc import Awaitable
from dataclasses import asdict, dataclass
from statistics import quantiles
from typing import Annotated

from detent.cli.diagnose.database import describe
from detent.cli.options import AsJson, Url, option
from detent.cli.output import print_line, print_list
from detent.client.app import Detent
from detent.client.connect import shown_url
from detent.handler.context import Context
from detent.system.clock import SystemClock
from detent.system.ids import RandomIds

QUEUE = "detent-bench"
SLOTS = 500
BULK_SIZE = 1_000
SINGLES = 200
CALLERS = 16
PICKUPS = 50
MEASURES = {
    "enqueue one by one": "jobs/s, one caller, one commit per job",
    "enqueue by 16 callers": "jobs/s, each caller waits for its commit",
    "enqueue in bulk": f"jobs/s, {BULK_SIZE:,} jobs per call",
    "drain": f"jobs/s, one worker in this process, {SLOTS} slots",
    "pickup p50": "ms from enqueue to the start of the handler, idle worker",
    "pickup p99": "ms, 99th percentile of the same",
}

Jobs = Annotated[int, option("How many jobs to enqueue in bulk and drain.", min=1, max=1_000_000)]
ListMeasures = Annotated[bool, option("List the measures and exit.", name="--list")]


def bench(url: Url = None, jobs: Jobs = 10_000, listed: ListMeasures = False, as_json: AsJson = False) -> None:
    """Measure enqueueing, draining and pickup latency on a temporary SQLite file, or on the database of --url."""
    if listed:
        print_list(as_json, {"measures": MEASURES}, ("measure", "meaning"), MEASURES.items())
        return
    if url is None:
        with tempfile.TemporaryDirectory(prefix="detent-bench-") as folder:
            database = f"sqlite:///{folder}/bench.db"
            readings = asyncio.run(BenchRun(database, jobs).run(may_migrate=True))
            location, durable = "a temporary SQLite file", describe(database).durability
    else:
        readings = asyncio.run(BenchRun(url, jobs).run())
        location, durable = shown_url(url), describe(url).durability
    if not as_json:
        print_line(f"on {location} ({durable}), {jobs:,} jobs")
    views = [asdict(reading) for reading in readings]
    view = {"where": location, "durability": durable, "jobs": jobs, "readings": views}
    numbers = (f"{r.value:,.0f}" if r.value >= 100 else f"{r.value:.3g}" for r in readings)
    rows = ([r.measure, number, r.unit] for r, number in zip(readings, numbers, strict=True))
    print_list(as_json, view, ("measure", ">value", "unit"), rows)
    if url is not None and not as_json:
        print_line("The finished jobs stay in the database until a retention rule deletes them.")


@dataclass(frozen=True, slots=True)
class Reading:
    measure: str
    value: float
    unit: str


class BenchRun:
    """One run. Its jobs have their own queue and a type that no other worker handles."""

    def __init__(self, url: str | None, jobs: int) -> None:
        self._clock = SystemClock()
        self._jobs = jobs
        self._app = Detent(url)
        self._started_at: dict[str, float] = {}
        self._all_started = asyncio.Event()
        self._expected = 0
        self._queue = f"{QUEUE}-{RandomIds().token()[:8]}"
        self._noop = self._app.job("detent.bench", queue=self._queue)(self._handle)

    async def _handle(self, ctx: Context) -> None:
        self._started_at[ctx.job_id] = self._clock.monotonic()
        if len(self._started_at) >= self._expected:
            self._all_started.set()

    async def run(self, *, may_migrate: bool = False) -> list[Reading]:
        """Measure everything; the finished jobs stay in the database."""
        if may_migrate:
            engine = self._app.make_engine(may_migrate=True)
            await engine.open()
            await engine.close()
        async with self._app:
            return [*await self._enqueue(), *await self._work()]

    async def _enqueue(self) -> list[Reading]:
        singles = min(SINGLES, self._jobs)
        return [
            Reading("enqueue one by one", await self._rate(self._call(1, singles), singles), "jobs/s"),
            Reading("enqueue by 16 callers", await self._rate(self._call(CALLERS, singles), singles), "jobs/s"),
            Reading("enqueue in bulk", await self._rate(self._call_in_bulk(), self._jobs), "jobs/s"),
        ]

    async def _call(self, callers: int, number: int) -> None:
        left = iter(range(number))

        async def caller() -> None:
            for _ in left:
                await self._noop.enqueue()

        await asyncio.gather(*(caller() for _ in range(callers)))

    async def _call_in_bulk(self) -> None:
        for start in range(0, self._jobs, BULK_SIZE):
            await self._noop.enqueue_many([{}] * min(BULK_SIZE, self._jobs - start))

    async def _rate(self, calls: Awaitable[None], number: int) -> float:
        start = self._clock.monotonic()
        await calls
        return number / (self._clock.monotonic() - start)

    async def _work(self) -> list[Reading]:
        number = self._expected = self._jobs + 2 * min(SINGLES, self._jobs)
        worker = await self._app.worker(slots=SLOTS, queues=frozenset({self._queue}), until_idle=True)
        await worker.run(handle_signals=False)
        first = min(self._started_at.values())
        drained = Reading("drain", number / (self._clock.monotonic() - first), "jobs/s")
        worker = await self._app.worker(slots=SLOTS, queues=frozenset({self._queue}))
        running = asyncio.create_task(worker.run(handle_signals=False))
        try:
            waits = sorted([await self._pickup_seconds() for _ in range(PICKUPS + 1)][1:])
        finally:
            worker.stop()
            await running
        points = quantiles(waits, n=100, method="inclusive")
        return [
            drained,
            Reading("pickup p50", points[49] * 1_000, "ms"),
            Reading("pickup p99", points[98] * 1_000, "ms"),
        ]

    async def _pickup_seconds(self) -> float:
        self._started_at.clear()
        self._expected = 1
        self._all_started.clear()
        sent = self._clock.monotonic()
        handle = await self._noop.enqueue()
        async with asyncio.timeout(60):
            await self._all_started.wait()
            await handle.result()
        return next(iter(self._started_at.values())) - sent
