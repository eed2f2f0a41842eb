"""dramatiq on Redis: one process of eight threads; nothing kept."""

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker

from .counting import handled, picked_up
from .protocol import URL, Peer, exec_beside

broker = RedisBroker(url=URL)
dramatiq.set_broker(broker)


@dramatiq.actor(queue_name="q")
def noop() -> None:
    handled()


@dramatiq.actor(queue_name="q")
def stamp(sent: float) -> None:
    picked_up(sent)


class OnDramatiq(Peer):
    def open(self) -> None:
        self.aside = redis.Redis.from_url(URL)

    def reset(self) -> None:
        self.aside.flushall()

    def one(self, caller: int) -> None:
        noop.send()

    def left(self) -> int:
        return int(self.aside.hlen("dramatiq:q.msgs"))

    def stamp(self, sent: float) -> None:
        stamp.send(sent)

    def work(self) -> None:
        exec_beside("dramatiq", "bench.peers.dramatiq", "-p", "1", "-t", "8")


PEER = OnDramatiq
