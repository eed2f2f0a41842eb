"""saq on Redis: concurrency 100, uvloop; results are kept for a while."""

import logging
from typing import Any

from saq import Queue, Worker

from .counting import handled, picked_up
from .protocol import URL, Peer

CONCURRENCY = 100


async def noop(ctx: Any) -> None:
    handled()


async def stamp(ctx: Any, *, sent: float) -> None:
    picked_up(sent)


class SaqPeer(Peer):
    async def open(self) -> None:
        self.queue: Any = Queue.from_url(URL)
        await self.queue.connect()

    async def reset(self) -> None:
        await self.queue.redis.flushall()

    async def enqueue(self, caller: int) -> None:
        await self.queue.enqueue("noop")

    async def remaining(self) -> int:
        return int(await self.queue.count("queued") + await self.queue.count("active"))

    async def enqueue_stamped(self, sent: float) -> None:
        await self.queue.enqueue("stamp", sent=sent)

    async def work(self) -> None:
        logging.basicConfig(level=logging.ERROR)
        queue: Any = Queue.from_url(URL, max_concurrent_ops=2 * CONCURRENCY)
        await queue.connect()
        await Worker(queue, functions=[noop, stamp], concurrency=CONCURRENCY).start()


PEER = SaqPeer
