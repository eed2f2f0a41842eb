"""A worker on Postgres has two cycles under way: it ends when idle, and every job runs once."""

import asyncio
from collections import Counter

import pytest

from detent import Context, Detent
from detent.handler.lease import Reading
from detent.worker.state import START, Batch, WorkerState
from support.servers.databases import Database

JOBS = 3_000


@pytest.mark.anyio
async def test_two_cycles_at_once_run_every_job_once_and_come_to_rest(database: Database) -> None:
    app = Detent(database.url)
    runs: Counter[int] = Counter()

    @app.job("count")
    async def count(ctx: Context, number: int) -> None:
        runs[number] += 1

    in_flight: list[int] = []

    class Watched(WorkerState):
        def next_batch(self, at: Reading = START) -> Batch | None:
            batch = super().next_batch(at)
            in_flight.append(len(self.in_flight))
            return batch

    async with app:
        await count.enqueue_many([{"number": number} for number in range(JOBS)])
        worker = await app.worker(slots=60, until_idle=True)
        worker.state = Watched(60, max_in_flight=worker.state.max_in_flight)
        assert await asyncio.wait_for(worker.run(handle_signals=False), 60) == 0
    assert runs == Counter(range(JOBS)) and max(in_flight) == 2
