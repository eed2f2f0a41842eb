"""celery on Redis: prefork of two, prefetch 128 each, results ignored; nothing kept."""

import redis
from celery import Celery

from .counting import handled, picked_up
from .protocol import URL, Peer, exec_program

app = Celery("bench.peers.celery", broker=URL)
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=128,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)


@app.task(name="noop")
def noop() -> None:
    handled()


@app.task(name="stamp")
def stamp(sent: float) -> None:
    picked_up(sent)


class CeleryPeer(Peer):
    def open(self) -> None:
        self.side_connection = redis.Redis.from_url(URL)

    def reset(self) -> None:
        self.side_connection.flushall()

    def enqueue(self, caller: int) -> None:
        noop.delay()

    def remaining(self) -> int:
        return int(self.side_connection.llen("celery"))

    def enqueue_stamped(self, sent: float) -> None:
        stamp.delay(sent)

    def work(self) -> None:
        quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "ERROR")
        exec_program("celery", "-A", "bench.peers.celery", "worker", "-P", "prefork", "-c", "2", *quiet)


PEER = CeleryPeer
