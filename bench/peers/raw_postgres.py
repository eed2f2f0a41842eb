"""The raw limit on Postgres: Detent's own tables and its own statements in a bare loop; no engine, no handler."""

import time
from typing import Any

import asyncpg

from detent.core.contracts import CONTRACTS
from detent.core.times import SECOND
from detent.ids import RandomIds
from detent.ports import ClaimRequest
from detent.stores.lanes import LaneBook
from detent.stores.postgres.dialect import compiled, queries
from detent.stores.postgres.hot import SETTINGS, Edges, cycle_values
from detent.stores.postgres.store import POOL_SETTINGS
from detent.stores.postgres.tx import insert

from .counting import handled
from .protocol import URL, VARIANT, Peer, stay
from .template import first_change

CALLERS = 16
CLAIMED_AT_ONCE = int(VARIANT or 100)
_LEFT = "SELECT (SELECT count(*) FROM jobs WHERE ready) + (SELECT count(*) FROM jobs WHERE phase = 'leased')"


class Recorded(Exception):
    """The statement and the values a connection was to run."""


class Recorder:
    """Stands in for a connection; whichever way it is called, it tells what it was called with."""

    def __getattr__(self, _method: str) -> Any:
        async def called(text: str, *values: Any, **_options: Any) -> None:
            raise Recorded(text, values)

        return called


class RawPostgres(Peer):
    """The insert and the cycle statement, called as bare as asyncpg allows."""

    bulk = True

    async def open(self) -> None:
        change, lane = await first_change(URL)
        try:
            await insert(Recorder(), [change], [lane])
        except Recorded as told:
            self.text, self.columns = told.args[0], [list(column) for column in told.args[1]]
        self.mine = [change.after.id]
        assert self.columns.count(self.mine) >= 2, "the id stands in the job and in its event"
        self.ids = RandomIds()
        self.connections = [await connected(POOL_SETTINGS) for _ in range(CALLERS)]

    async def reset(self) -> None:
        await self.connections[0].execute("TRUNCATE jobs, events, notes, keys, workers")

    async def one(self, caller: int) -> None:
        mine = [self.ids.job()]
        await self.connections[caller].fetch(self.text, *(mine if c == self.mine else c for c in self.columns))

    async def many(self, jobs: int) -> None:
        ids = [self.ids.job() for _ in range(jobs)]
        await self.connections[0].fetch(self.text, *(ids if c == self.mine else c * jobs for c in self.columns))

    async def left(self) -> int:
        return int(await self.connections[0].fetchval(_LEFT))

    async def close(self) -> None:
        for connection in self.connections:
            await connection.close()

    async def work(self) -> None:
        """Finish k and claim k+1 in one statement until nothing comes back."""
        connection = await connected(SETTINGS)
        query = compiled(queries(False)["cycle"])
        values = await unchanging_values(connection)
        places = {name: query.names.index(name) for name in ("ids", "tokens", "results")}
        arguments = [values[name] for name in query.names]
        rows: list[Any] = await connection.fetch(query.text, *arguments)
        while len(rows) > 1:
            ids = [row[0] for row in rows if row[0] is not None]
            handled(len(ids))
            arguments[places["ids"]] = sorted(ids)
            arguments[places["tokens"]] = [values["token"]] * len(ids)
            arguments[places["results"]] = [None] * len(ids)
            rows = await connection.fetch(query.text, *arguments)
        await connection.close()
        stay()


async def unchanging_values(connection: Any) -> dict[str, Any]:
    """What every cycle is told: the lanes as they are, a token, the edges of the standard contract."""
    groups = await connection.fetch("SELECT id, contract, queue, job_type FROM lane_groups")
    version = await connection.fetchval("SELECT value FROM lane_version")
    book = LaneBook(version, {row[0]: (row[1], row[2], row[3]) for row in groups})
    request = ClaimRequest("raw", "raw-token", CLAIMED_AT_ONCE, 30 * SECOND)
    edges = Edges(CONTRACTS)
    now = time.time_ns() // 1_000
    contracts = {row[1] for row in groups}
    return cycle_values([], request, book, edges, now) | edges.values("end", contracts)


async def connected(settings: dict[str, str]) -> Any:
    connection = await asyncpg.connect(URL, server_settings=settings)
    await connection.set_type_codec("uuid", schema="pg_catalog", encoder=str, decoder=str, format="text")
    return connection


PEER = RawPostgres
