"""celery on Redis: prefork of two, prefetch 128 each, results ignored; nothing kept."""

import redis
from celery import Celery

from .counting import handled, picked_up
from .protocol import URL, Peer, exec_beside

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


class OnCelery(Peer):
    def open(self) -> None:
        self.aside = redis.Redis.from_url(URL)

    def reset(self) -> None:
        self.aside.flushall()

    def one(self, caller: int) -> None:
        noop.delay()

    def left(self) -> int:
        return int(self.aside.llen("celery"))

    def stamp(self, sent: float) -> None:
        stamp.delay(sent)

    def work(self) -> None:
        quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "ERROR")
        exec_beside("celery", "-A", "bench.peers.celery", "worker", "-P", "prefork", "-c", "2", *quiet)


PEER = OnCelery
