"""persist-queue's SQLiteAckQueue: a library without a worker, so the loop is ours: get, handler, ack; rows are kept."""

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


def opened() -> Any:
    return persistqueue.SQLiteAckQueue(URL, multithreading=True, auto_commit=True)


class OnPersistQueue(Peer):
    queue: Any = None

    def reset(self) -> None:
        if self.queue is not None:
            self.queue.close()
        shutil.rmtree(URL, ignore_errors=True)
        self.queue = opened()

    def one(self, caller: int) -> None:
        self.queue.put("noop")

    def left(self) -> int:
        connection = sqlite3.connect(Path(URL) / "data.db", timeout=10)
        try:
            return int(connection.execute(_LEFT).fetchone()[0])
        finally:
            connection.close()

    def stamp(self, sent: float) -> None:
        self.queue.put(repr(sent))

    def work(self) -> None:
        queue = opened()
        while True:
            try:
                told = queue.get(block=False)
            except persistqueue.Empty:
                time.sleep(IDLE_SECONDS)
                continue
            if told == "noop":
                handled()
            else:
                picked_up(float(told))
            queue.ack(told)


PEER = OnPersistQueue
