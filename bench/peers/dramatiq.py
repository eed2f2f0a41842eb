"""dramatiq on Redis: one process of eight threads; nothing kept."""

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker

from .counting import handled, picked_up
from .protocol import URL, Peer, exec_program

broker = RedisBroker(url=URL)
dramatiq.set_broker(broker)


@dramatiq.actor(queue_name="q")
def noop() -> None:
    handled()


@dramatiq.actor(queue_name="q")
def stamp(sent: float) -> None:
    picked_up(sent)


class DramatiqPeer(Peer):
    def open(self) -> None:
        self.side_connection = redis.Redis.from_url(URL)

    def reset(self) -> None:
        self.side_connection.flushall()

    def enqueue(self, caller: int) -> None:
        noop.send()

    def remaining(self) -> int:
        return int(self.side_connection.hlen("dramatiq:q.msgs"))

    def enqueue_stamped(self, sent: float) -> None:
        stamp.send(sent)

    def work(self) -> None:
        exec_program("dramatiq", "bench.peers.dramatiq", "-p", "1", "-t", "8")


PEER = DramatiqPeer
