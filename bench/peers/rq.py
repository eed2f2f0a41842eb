"""rq on Redis: SimpleWorker, which does not fork per job; results are kept for a while."""

import redis
from rq import Queue

from .counting import handled, picked_up
from .protocol import URL, Peer, exec_program


class RqPeer(Peer):
    bulk = True

    def open(self) -> None:
        self.side_connection = redis.Redis.from_url(URL)
        self.queue = Queue("q", connection=self.side_connection)

    def reset(self) -> None:
        self.side_connection.flushall()

    def enqueue(self, caller: int) -> None:
        self.queue.enqueue(handled)

    def enqueue_batch(self, jobs: int) -> None:
        self.queue.enqueue_many([Queue.prepare_data(handled) for _ in range(jobs)])

    def remaining(self) -> int:
        return int(self.side_connection.llen("rq:queue:q")) + int(self.side_connection.zcard("rq:wip:q"))

    def enqueue_stamped(self, sent: float) -> None:
        self.queue.enqueue(picked_up, sent)

    def work(self) -> None:
        exec_program("rq", "worker", "-u", URL, "--quiet", "-w", "rq.worker.SimpleWorker", "q")


PEER = RqPeer
