"""pgqueuer: batch 1,000, uvloop, one asyncpg connection; finished jobs leave one log row."""

from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

from .counting import handled, picked_up
from .protocol import PART, URL, Peer

BATCH_SIZE = {"drain": 1_000, "pickup": 100}


class PgqueuerPeer(Peer):
    bulk = True

    async def open(self) -> None:
        self.side_connection: Any = await asyncpg.connect(URL)
        pool = [await asyncpg.connect(URL) for _ in range(16)]
        self.queries = [Queries(AsyncpgDriver(connection)) for connection in pool]
        await self.queries[0].install()

    async def reset(self) -> None:
        await self.side_connection.execute("TRUNCATE pgqueuer, pgqueuer_log")

    async def enqueue(self, caller: int) -> None:
        await self.queries[caller].enqueue("noop", b"", 0)

    async def enqueue_batch(self, jobs: int) -> None:
        await self.queries[0].enqueue(["noop"] * jobs, [b""] * jobs, [0] * jobs)

    async def remaining(self) -> int:
        return int(await self.side_connection.fetchval("SELECT count(*) FROM pgqueuer"))

    async def enqueue_stamped(self, sent: float) -> None:
        await self.queries[0].enqueue("stamp", repr(sent).encode(), 0)

    async def work(self) -> None:
        worker = PgQueuer(AsyncpgDriver(await asyncpg.connect(URL)))

        @worker.entrypoint("noop")
        async def noop(job: Any) -> None:
            handled()

        @worker.entrypoint("stamp")
        async def stamp(job: Any) -> None:
            picked_up(float(job.payload))

        await worker.run(batch_size=BATCH_SIZE[PART])


PEER = PgqueuerPeer
