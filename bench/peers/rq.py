"""rq on Redis: the SimpleWorker, which does not fork for each job; results are kept for a while."""

import redis
from rq import Queue

from .counting import handled, picked_up
from .protocol import URL, Peer, exec_beside


class OnRq(Peer):
    bulk = True

    def open(self) -> None:
        self.aside = redis.Redis.from_url(URL)
        self.queue = Queue("q", connection=self.aside)

    def reset(self) -> None:
        self.aside.flushall()

    def one(self, caller: int) -> None:
        self.queue.enqueue(handled)

    def many(self, jobs: int) -> None:
        self.queue.enqueue_many([Queue.prepare_data(handled) for _ in range(jobs)])

    def left(self) -> int:
        return int(self.aside.llen("rq:queue:q")) + int(self.aside.zcard("rq:wip:q"))

    def stamp(self, sent: float) -> None:
        self.queue.enqueue(picked_up, sent)

    def work(self) -> None:
        exec_beside("rq", "worker", "-u", URL, "--quiet", "-w", "rq.worker.SimpleWorker", "q")


PEER = OnRq
