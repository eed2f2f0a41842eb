"""The raw baseline on SQLite: Detent's tables and SQL statements in a bare loop, without engine and handlers."""

import json
import time
from pathlib import Path
from typing import Any

import apsw

from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Edge
from detent.core.times import SECOND
from detent.stores.sqlite.session import connect
from detent.stores.sqlite.tx import SQL, plain_created_values
from detent.system.ids import RandomIds

from .counting import handled
from .protocol import URL, VARIANT, Peer, wait_for_signal
from .template import first_change

CLAIMED_AT_ONCE = int(VARIANT or 100)
PATH = Path(URL.removeprefix("sqlite:///"))
_LEFT = (
    "SELECT (SELECT count(*) FROM detent_jobs WHERE ready = 1)"
    " + (SELECT count(*) FROM detent_jobs WHERE lease_until IS NOT NULL)"
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
        ((state,),) = self.connection.execute("SELECT state FROM detent_jobs").fetchall()
        self.row = (*plain_created_values(change.after)[1:], state, lane)
        assert plain_created_values(change.after)[0] == change.after.id
        events: Any = self.connection.execute("SELECT seq, edge, at, actor, data, lane FROM detent_events")
        (self.event,) = events.fetchall()
        self.connection.execute("DELETE FROM detent_events; DELETE FROM detent_jobs")

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
        claim, succeed = _numbers(connection, _CLAIMED), _numbers(connection, _SUCCEEDED)
        held: dict[str, str] = {}
        while True:
            now = time.time_ns() // 1_000
            connection.execute("BEGIN IMMEDIATE")
            if held:
                parameters = SUCCEED | succeed | {"held": json.dumps(held), "now": now}
                connection.execute(SQL["succeed_events"], parameters)
                connection.execute(SQL["succeed_jobs"], parameters)
            picked: Any = connection.execute(SQL["pick_lane"], (lane, CLAIMED_AT_ONCE)).fetchall()
            if picked:
                parameters = CLAIM | claim | {"numbers": json.dumps([row[0] for row in picked]), "now": now}
                connection.execute(SQL["claim_events"], parameters)
                connection.execute(SQL["claim_jobs"], parameters)
            connection.execute("COMMIT")
            if not picked:
                break
            handled(len(picked))
            held = {row[1]: TOKEN for row in picked}
        connection.close()
        wait_for_signal()


TOKEN = "raw-token"
_STANDARD = CONTRACTS["standard"]
_EDGES = {edge.event: edge for edge in _STANDARD.edges}
_SUCCEEDED, _CLAIMED = _EDGES["job.succeeded"], _EDGES["job.claimed"]
SUCCEED: dict[str, Any] = {"source": _SUCCEEDED.source, "contract": _STANDARD.name, "family": False}
CLAIM: dict[str, Any] = {"worker": 1, "token": TOKEN, "lease": 30 * SECOND}


def _numbers(connection: apsw.Connection, edge: Edge) -> dict[str, Any]:
    """The numbers of a transition and of the status it leads to."""
    names = {"event": edge.event, "source": edge.source or "", "target": edge.target}
    ((number,),) = connection.execute(SQL["find_edge"], names).fetchall()
    ((state,),) = connection.execute(SQL["find_state"], {"contract": _STANDARD.name, "status": edge.target}).fetchall()
    return {"edge": number, "target": state}


PEER = RawSqlite
