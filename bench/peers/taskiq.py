"""taskiq on Redis streams: 100 tasks at once, 100 messages a read, acknowledged; no result backend."""

import redis
from taskiq_redis import RedisStreamBroker

from .counting import handled, picked_up
from .protocol import URL, Peer, exec_beside

broker = RedisStreamBroker(URL, consumer_id="0", xread_count=100)


@broker.task(task_name="noop")
async def noop() -> None:
    handled()


@broker.task(task_name="stamp")
async def stamp(sent: float) -> None:
    picked_up(sent)


class OnTaskiq(Peer):
    async def open(self) -> None:
        self.aside = redis.Redis.from_url(URL)
        self.aside.flushall()
        await broker.startup()

    def reset(self) -> None:
        self.aside.flushall()
        self.aside.xgroup_create("taskiq", "taskiq", "0", mkstream=True)

    async def one(self, caller: int) -> None:
        await noop.kiq()

    def left(self) -> int:
        """Called when every handler was: what was read and not acknowledged."""
        return int(self.aside.xpending("taskiq", "taskiq")["pending"])

    async def stamp(self, sent: float) -> None:
        await stamp.kiq(sent)

    def work(self) -> None:
        words = ("--workers", "1", "--max-async-tasks", "100", "--log-level", "ERROR")
        exec_beside("taskiq", "worker", "bench.peers.taskiq:broker", *words)


PEER = OnTaskiq
