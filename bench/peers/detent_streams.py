"""Detent over Redis Streams, log on Postgres: jobs are enqueued, published, then drained by a worker process."""

import asyncio
from contextlib import suppress
from typing import Any

import asyncpg
import redis.asyncio as redis

from detent import Context, Detent
from detent.client.stream_app import orchestrator, stream_settings
from detent.streams.orchestrator import Orchestrator

from .counting import handled, picked_up
from .protocol import PART, URL, Peer

DATABASE, _, REDIS = URL.partition(" ")
SLOTS = {"drain": 300, "pickup": 64}
_LEFT = "SELECT (SELECT count(*) FROM detent.queue) + (SELECT count(*) FROM detent.lease_list)"
_TRUNCATE = (
    "SET search_path = detent; TRUNCATE jobs, events, notes, keys, workers, outbox, stream_epochs,"
    " queue, timers, claims, deadlines, awaiting_approval"
)


def make_app() -> Detent:
    app = Detent(DATABASE)

    @app.job("noop", contract="streams")
    async def noop(ctx: Context) -> None:
        handled()

    @app.job("stamp", contract="streams")
    async def stamp(ctx: Context, sent: float) -> None:
        picked_up(sent)

    return app


class DetentOnStreams(Peer):
    """The client also runs the orchestrator, so that every measure includes the publishing; a bulk call returns after
    its tasks are on the stream."""

    bulk = True

    async def open(self) -> None:
        self.app = make_app()
        engine = self.app.make_engine(may_migrate=True)
        await engine.open()
        await engine.close()
        await self.app.open()
        self.side_connection: Any = await asyncpg.connect(DATABASE)
        self.redis: Any = redis.Redis.from_url(REDIS)
        self.orchestrator: Orchestrator = await orchestrator(self.app, stream_settings(REDIS))
        self.running: asyncio.Task[None] | None = None
        self.filled = 0

    async def reset(self) -> None:
        await self.side_connection.execute(_TRUNCATE)
        await self.redis.flushdb()
        await self.orchestrator.check_epoch()
        self.filled = 0
        if self.running is None:
            self.running = asyncio.create_task(self.orchestrator.run())

    async def enqueue(self, caller: int) -> None:
        await self.app.jobs["noop"].enqueue()

    async def enqueue_batch(self, jobs: int) -> None:
        await self.app.jobs["noop"].enqueue_many([{}] * jobs)
        self.filled += jobs
        while await self.redis.xlen(self.orchestrator.transport.settings.task_stream) < self.filled:  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    async def enqueue_stamped(self, sent: float) -> None:
        await self.app.jobs["stamp"].enqueue(sent=sent)

    async def remaining(self) -> int:
        return int(await self.side_connection.fetchval(_LEFT))

    async def close(self) -> None:
        if self.running is not None:
            self.running.cancel()
        with suppress(Exception):
            await self.side_connection.close()
        await self.redis.aclose()
        await self.app.close()

    async def work(self) -> None:
        await make_app().run_worker(slots=SLOTS[PART], transport="redis", settings=stream_settings(REDIS))


PEER = DetentOnStreams
