"""The raw limit on Postgres: Detent's own tables and its own statements in a bare loop; no engine, no handler."""

import time
from dataclasses import replace
from typing import Any

import asyncpg

from detent.core.contract.builtin import CONTRACTS
from detent.core.times import SECOND
from detent.ports.claims import ClaimRequest
from detent.stores.lanes import LaneBook
from detent.stores.postgres.claim import SETTINGS, Edges, settle_and_claim_values
from detent.stores.postgres.dialect import compiled, queries
from detent.stores.postgres.insert import insert
from detent.stores.postgres.store import POOL_SETTINGS
from detent.system.ids import RandomIds

from .counting import handled
from .protocol import PART, STEPS, URL, VARIANT, Peer, stay
from .template import first_change

CALLERS = 16
_OTHER = "01900000-0000-7000-8000-00000000000f"
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


async def recorded(changes: list[Any], lanes: list[int]) -> tuple[str, list[Any]]:
    """The statement Detent would run, and its values."""
    try:
        await insert(Recorder(), changes, lanes)
    except Recorded as told:
        return told.args[0], list(told.args[1])
    raise AssertionError("nothing was run")


class RawPostgres(Peer):
    """The insert and the cycle statement, called as bare as asyncpg allows."""

    bulk = True
    has_steps = True

    async def open(self) -> None:
        change, lane = await first_change(URL)
        self.mine = change.after.id
        self.text, self.values = await recorded([change], [lane])
        other = replace(
            change, after=replace(change.after, id=_OTHER), events=[replace(change.events[0], job_id=_OTHER)]
        )
        self.text_of_many, self.columns = await recorded([change, other], [lane] * 2)
        assert self.mine in self.values, "the id is said once, for the job and for its event"
        self.ids = RandomIds()
        self.connections = [await connected(POOL_SETTINGS) for _ in range(CALLERS)]

    async def reset(self) -> None:
        await self.connections[0].execute("TRUNCATE jobs, events, notes, steps, keys, workers")

    async def one(self, caller: int) -> None:
        mine = self.ids.job()
        await self.connections[caller].fetch(self.text, *(mine if v == self.mine else v for v in self.values))

    async def many(self, jobs: int) -> None:
        ids = [self.ids.job() for _ in range(jobs)]
        columns = (
            column if not isinstance(column, list) else ids if column == [self.mine, _OTHER] else column[:1] * jobs
            for column in self.columns
        )
        await self.connections[0].fetch(self.text_of_many, *columns)

    async def stepped(self, jobs: int) -> None:
        await self.many(jobs)

    async def left(self) -> int:
        return int(await self.connections[0].fetchval(_LEFT))

    async def close(self) -> None:
        for connection in self.connections:
            await connection.close()

    async def work(self) -> None:
        """Finish k and claim k+1 in one statement until nothing comes back."""
        connection = await connected(SETTINGS)
        query = compiled(queries(False)["settle_and_claim"])
        values = await unchanging_values(connection)
        places = {name: query.names.index(name) for name in ("ids", "tokens", "results")}
        arguments = [values[name] for name in query.names]
        rows: list[Any] = await connection.fetch(query.text, *arguments)
        while len(rows) > 1:
            ids = [row[0] for row in rows if row[0] is not None]
            if PART == "steps":
                await record(connection, ids, values["token"])
            handled(len(ids))
            arguments[places["ids"]] = sorted(ids)
            arguments[places["tokens"]] = [values["token"]] * len(ids)
            arguments[places["results"]] = [None] * len(ids)
            rows = await connection.fetch(query.text, *arguments)
        await connection.close()
        stay()


async def record(connection: Any, ids: list[str], token: str) -> None:
    """One statement a step for all jobs that were claimed together."""
    query = compiled(queries(False)["record_steps"])
    size = len(ids)
    for number in range(STEPS):
        name = "work" if number == 0 else f"work#{number + 1}"
        told = {
            "ids": ids,
            "tokens": [token] * size,
            "names": [name] * size,
            "digests": ["0" * 24] * size,
            "results": [str(number)] * size,
            "finished": ["true"] * size,
        }
        rows = await connection.fetch(query.text, *(told[name] for name in query.names))
        assert len(rows) == size, "every step is recorded"


async def unchanging_values(connection: Any) -> dict[str, Any]:
    """What every cycle is told: the lanes as they are, a token, the edges of the standard contract."""
    groups = await connection.fetch("SELECT id, contract, queue, job_type FROM lane_groups")
    version = await connection.fetchval("SELECT value FROM lane_version")
    book = LaneBook(version, {row[0]: (row[1], row[2], row[3]) for row in groups})
    request = ClaimRequest("raw", "raw-token", CLAIMED_AT_ONCE, 30 * SECOND)
    edges = Edges(CONTRACTS)
    now = time.time_ns() // 1_000
    contracts = {row[1] for row in groups}
    return settle_and_claim_values([], request, book, edges, now) | edges.values("end", contracts)


async def connected(settings: dict[str, str]) -> Any:
    connection = await asyncpg.connect(URL, server_settings=settings)
    await connection.set_type_codec("uuid", schema="pg_catalog", encoder=str, decoder=str, format="text")
    return connection


PEER = RawPostgres
