"""taskiq on Redis streams: 100 tasks at once, 100 messages per read, acknowledged; no result backend."""

import redis
from taskiq_redis import RedisStreamBroker

from .counting import handled, picked_up
from .protocol import URL, Peer, exec_program

broker = RedisStreamBroker(URL, consumer_id="0", xread_count=100)


@broker.task(task_name="noop")
async def noop() -> None:
    handled()


@broker.task(task_name="stamp")
async def stamp(sent: float) -> None:
    picked_up(sent)


class TaskiqPeer(Peer):
    async def open(self) -> None:
        self.side_connection = redis.Redis.from_url(URL)
        self.side_connection.flushall()
        await broker.startup()

    def reset(self) -> None:
        self.side_connection.flushall()
        self.side_connection.xgroup_create("taskiq", "taskiq", "0", mkstream=True)

    async def enqueue(self, caller: int) -> None:
        await noop.kiq()

    def remaining(self) -> int:
        """Messages read and not acknowledged; the harness calls this after every handler has run."""
        return int(self.side_connection.xpending("taskiq", "taskiq")["pending"])

    async def enqueue_stamped(self, sent: float) -> None:
        await stamp.kiq(sent)

    def work(self) -> None:
        words = ("--workers", "1", "--max-async-tasks", "100", "--log-level", "ERROR")
        exec_program("taskiq", "worker", "bench.peers.taskiq:broker", *words)


PEER = TaskiqPeer
