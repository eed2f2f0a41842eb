"""The raw baseline on SQLite: Detent's tables and SQL statements in a bare loop, without engine and handlers."""

import json
import time
from pathlib import Path
from typing import Any

import apsw

from detent.core.contract.builtin import CONTRACTS
from detent.core.times import SECOND
from detent.stores.rows import created_values
from detent.stores.sqlite.session import connect
from detent.stores.sqlite.tx import SQL
from detent.system.ids import RandomIds

from .counting import handled
from .protocol import URL, VARIANT, Peer, wait_for_signal
from .template import first_change

CLAIMED_AT_ONCE = int(VARIANT or 100)
PATH = Path(URL.removeprefix("sqlite:///"))
_LEFT = (
    "SELECT (SELECT count(*) FROM detent_jobs WHERE ready = 1)"
    " + (SELECT count(*) FROM detent_jobs WHERE phase = 'leased')"
)


class RawSqlite(Peer):
    """The inserts and the statements of settle_and_claim, one connection, fsync at every commit."""

    bulk = True

    def open(self) -> None:
        self.ids = RandomIds()
        self.connection: apsw.Connection | None = None

    async def reset(self) -> None:
        if self.connection is not None:
            self.connection.close()
        for ending in ("", "-wal", "-shm"):
            PATH.with_name(PATH.name + ending).unlink(missing_ok=True)
        change, lane = await first_change(URL)
        self.connection = connect(str(PATH), "FULL")
        self.connection.execute("DELETE FROM detent_events; DELETE FROM detent_jobs")
        self.row = (*created_values(change.after)[1:], lane)
        assert created_values(change.after)[0] == change.after.id
        event = change.events[0]
        self.event = (event.seq, event.event, event.source, event.target, event.at, event.actor, None, lane)

    def enqueue(self, caller: int) -> None:
        assert self.connection is not None
        job_id = self.ids.job()
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.execute(SQL["insert_job"], (job_id, *self.row))
        self.connection.execute(SQL["insert_first_event"], (job_id, *self.event))
        self.connection.execute("COMMIT")

    def enqueue_batch(self, jobs: int) -> None:
        assert self.connection is not None
        ids = [self.ids.job() for _ in range(jobs)]
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany(SQL["insert_job"], [(job_id, *self.row) for job_id in ids])
        self.connection.executemany(SQL["insert_first_event"], [(job_id, *self.event) for job_id in ids])
        self.connection.execute("COMMIT")

    def remaining(self) -> int:
        assert self.connection is not None
        return int(self.connection.execute(_LEFT).fetchall()[0][0])

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()

    def work(self) -> None:
        """Settle batch k and claim batch k+1 in one transaction, until no job is left."""
        connection = connect(str(PATH), "FULL")
        lane = connection.execute(SQL["walk_lanes"], {"from": 0, "hops": 1}).fetchall()[0][0]
        held: dict[str, str] = {}
        while True:
            now = time.time_ns() // 1_000
            connection.execute("BEGIN IMMEDIATE")
            if held:
                parameters = SUCCEED | {"held": json.dumps(held), "now": now, "family": False}
                connection.execute(SQL["succeed_events"], parameters)
                connection.execute(SQL["succeed_jobs"], parameters)
            ids = [row[0] for row in connection.execute(SQL["pick_lane"], (lane, CLAIMED_AT_ONCE)).fetchall()]
            if ids:
                parameters = CLAIM | {"ids": json.dumps(ids), "now": now}
                connection.execute(SQL["claim_events"], parameters)
                connection.execute(SQL["claim_jobs"], parameters)
            connection.execute("COMMIT")
            if not ids:
                break
            handled(len(ids))
            held = dict.fromkeys(ids, TOKEN)
        connection.close()
        wait_for_signal()


TOKEN = "raw-token"
_STANDARD = CONTRACTS["standard"]
_EDGES = {edge.event: edge for edge in _STANDARD.edges}
_SUCCEEDED, _CLAIMED = _EDGES["job.succeeded"], _EDGES["job.claimed"]
SUCCEED: dict[str, Any] = {
    "source": _SUCCEEDED.source, "contract": _STANDARD.name, "target": _SUCCEEDED.target, "event": _SUCCEEDED.event,
}  # fmt: skip
CLAIM: dict[str, Any] = {
    "event": _CLAIMED.event, "target": _CLAIMED.target, "worker": "raw", "token": TOKEN, "lease": 30 * SECOND,
}  # fmt: skip


PEER = RawSqlite
