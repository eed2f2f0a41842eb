"""arq on Redis: 100 jobs at once, polled every 10 ms; results are kept for an hour."""

from typing import Any, ClassVar

from arq import create_pool
from arq.connections import RedisSettings

from .counting import handled, picked_up
from .protocol import URL, Peer, exec_program

SETTINGS = RedisSettings.from_dsn(URL)


async def noop(ctx: Any) -> None:
    handled()


async def stamp(ctx: Any, sent: float) -> None:
    picked_up(sent)


class WorkerSettings:
    """Read by the `arq` command."""

    functions: ClassVar = [noop, stamp]
    redis_settings = SETTINGS
    max_jobs = 100
    poll_delay = 0.01


class ArqPeer(Peer):
    async def open(self) -> None:
        self.pool: Any = await create_pool(SETTINGS)

    async def reset(self) -> None:
        await self.pool.flushall()

    async def enqueue(self, caller: int) -> None:
        await self.pool.enqueue_job("noop")

    async def remaining(self) -> int:
        return int(await self.pool.zcard("arq:queue"))

    async def enqueue_stamped(self, sent: float) -> None:
        await self.pool.enqueue_job("stamp", sent)

    def work(self) -> None:
        exec_program("arq", "bench.peers.arq.WorkerSettings")


PEER = ArqPeer
