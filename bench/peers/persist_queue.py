"""persist-queue's SQLiteAckQueue. It has no worker, so the loop (get, handler, ack) is here; rows are kept."""

import shutil
import sqlite3
import time
from pathlib import Path
from typing import Any

import persistqueue

from .counting import handled, picked_up
from .protocol import URL, Peer

IDLE_SECONDS = 0.005
_LEFT = "SELECT count(*) FROM ack_queue_default WHERE status < 5"


def open_queue() -> Any:
    return persistqueue.SQLiteAckQueue(URL, multithreading=True, auto_commit=True)


class PersistQueuePeer(Peer):
    queue: Any = None

    def reset(self) -> None:
        if self.queue is not None:
            self.queue.close()
        shutil.rmtree(URL, ignore_errors=True)
        self.queue = open_queue()

    def enqueue(self, caller: int) -> None:
        self.queue.put("noop")

    def remaining(self) -> int:
        connection = sqlite3.connect(Path(URL) / "data.db", timeout=10)
        try:
            return int(connection.execute(_LEFT).fetchone()[0])
        finally:
            connection.close()

    def enqueue_stamped(self, sent: float) -> None:
        self.queue.put(repr(sent))

    def work(self) -> None:
        queue = open_queue()
        while True:
            try:
                item = queue.get(block=False)
            except persistqueue.Empty:
                time.sleep(IDLE_SECONDS)
                continue
            if item == "noop":
                handled()
            else:
                picked_up(float(item))
            queue.ack(item)


PEER = PersistQueuePeer
