"""A minimal SQLite queue as a baseline: a small row and three events per job, one transaction to settle and claim."""

import json
import time
from pathlib import Path

import apsw

from .counting import handled
from .protocol import URL, Peer, wait_for_signal

CLAIMED_AT_ONCE = 100
PATH = Path(URL.removeprefix("sqlite:///"))
SCHEMA = """
CREATE TABLE jobs (id INTEGER PRIMARY KEY, task TEXT NOT NULL, payload TEXT NOT NULL, state INTEGER NOT NULL DEFAULT 0,
  due_at INTEGER NOT NULL, attempt INTEGER NOT NULL DEFAULT 0, worker TEXT, lease_until INTEGER, finished_at INTEGER);
CREATE INDEX jobs_ready ON jobs (due_at, id) WHERE state = 0;
CREATE TABLE events (job_id INTEGER NOT NULL, seq INTEGER NOT NULL, event TEXT NOT NULL, at INTEGER NOT NULL,
  PRIMARY KEY (job_id, seq)) WITHOUT ROWID;
"""
ENQUEUE = "INSERT INTO jobs (task, payload, due_at) VALUES ('noop', '{}', ?)"
LOG = "INSERT INTO events (job_id, seq, event, at) VALUES (?, 1, 'made', ?)"
PICK = "SELECT id, task, payload, attempt FROM jobs WHERE state = 0 AND due_at <= ? ORDER BY due_at, id LIMIT ?"
LOG_ALL = "INSERT INTO events (job_id, seq, event, at) SELECT value, :seq, :event, :now FROM json_each(:ids)"
CLAIM = """UPDATE jobs SET state = 1, attempt = attempt + 1, worker = 'raw', lease_until = :now + 30000000
FROM json_each(:ids) p WHERE jobs.id = p.value"""
END = """UPDATE jobs SET state = 2, finished_at = :now, lease_until = NULL
FROM json_each(:ids) p WHERE jobs.id = p.value"""


class MinimalSqlite(Peer):
    """A baseline for Detent's tables: the same commits with much smaller rows."""

    bulk = True

    def open(self) -> None:
        self.connection: apsw.Connection | None = None

    def reset(self) -> None:
        if self.connection is not None:
            self.connection.close()
        for ending in ("", "-wal", "-shm"):
            PATH.with_name(PATH.name + ending).unlink(missing_ok=True)
        self.connection = connect()
        self.connection.execute(SCHEMA)

    def enqueue(self, caller: int) -> None:
        self.enqueue_batch(1)

    def enqueue_batch(self, jobs: int) -> None:
        assert self.connection is not None
        now = time.time_ns() // 1_000
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany(ENQUEUE, [(now,)] * jobs)
        last = self.connection.last_insert_rowid()
        self.connection.executemany(LOG, [(job_id, now) for job_id in range(last - jobs + 1, last + 1)])
        self.connection.execute("COMMIT")

    def remaining(self) -> int:
        assert self.connection is not None
        return int(self.connection.execute("SELECT count(*) FROM jobs WHERE state < 2").fetchall()[0][0])

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()

    def work(self) -> None:
        connection = connect()
        held: list[int] = []
        while True:
            now = time.time_ns() // 1_000
            connection.execute("BEGIN IMMEDIATE")
            if held:
                parameters = {"ids": json.dumps(held), "now": now}
                connection.execute(END, parameters)
                connection.execute(LOG_ALL, parameters | {"seq": 3, "event": "ended"})
            held = [row[0] for row in connection.execute(PICK, (now, CLAIMED_AT_ONCE)).fetchall()]
            if held:
                parameters = {"ids": json.dumps(held), "now": now}
                connection.execute(CLAIM, parameters)
                connection.execute(LOG_ALL, parameters | {"seq": 2, "event": "claimed"})
            connection.execute("COMMIT")
            if not held:
                break
            handled(len(held))
        connection.close()
        wait_for_signal()


def connect() -> apsw.Connection:
    """The settings Detent uses: WAL, a sync at every commit, the same cache size."""
    connection = apsw.Connection(str(PATH))
    connection.set_busy_timeout(10_000)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "FULL")
    connection.pragma("temp_store", 2)
    connection.pragma("cache_size", -65_536)
    return connection


PEER = MinimalSqlite
