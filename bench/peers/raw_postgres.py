"""The raw baseline on Postgres: Detent's tables and SQL statements in a bare loop, without engine and handlers."""

import time
from dataclasses import replace
from typing import Any

import asyncpg

from detent.core.contract.builtin import CONTRACTS
from detent.core.times import SECOND
from detent.ports.claims import ClaimRequest
from detent.stores.lanes import LaneCache
from detent.stores.postgres.claims.claim import SETTINGS, settle_and_claim_values
from detent.stores.postgres.dialect import DEFAULT_SCHEMA, compiled, namespace_of, queries
from detent.stores.postgres.insert import insert
from detent.stores.postgres.names import Names
from detent.stores.postgres.store import POOL_SETTINGS, PostgresStore
from detent.system.ids import RandomIds

from .counting import handled
from .protocol import PART, STEPS, URL, VARIANT, Peer, wait_for_signal
from .template import first_change

CALLERS = 16
_OTHER_ID = "01900000-0000-7000-8000-00000000000f"
CLAIMED_AT_ONCE = int(VARIANT or 100)
_LEFT = "SELECT (SELECT count(*) FROM detent.queue) + (SELECT count(*) FROM detent.lease_list)"
_TRUNCATE = (
    "SET search_path = detent; TRUNCATE jobs, events, notes, steps, keys, workers,"
    " queue, timers, claims, deadlines, awaiting_approval"
)


class StatementRecorded(Exception):
    """Carries the statement and the values that a connection was called with."""


class RecordingConnection:
    """A fake connection: every method raises StatementRecorded with its arguments."""

    def __getattr__(self, _method: str) -> Any:
        async def called(text: str, *values: Any, **_options: Any) -> None:
            raise StatementRecorded(text, values)

        return called


async def insert_statement(names: Names, changes: list[Any], lanes: list[int]) -> tuple[str, list[Any]]:
    """The INSERT that Detent runs for these changes, and its values."""
    try:
        await insert(RecordingConnection(), namespace_of(DEFAULT_SCHEMA), names, changes, lanes)
    except StatementRecorded as recorded:
        return recorded.args[0], list(recorded.args[1])
    raise AssertionError("insert ran no statement")


class RawPostgres(Peer):
    """The insert and the settle_and_claim statement, run directly with asyncpg."""

    bulk = True
    has_steps = True

    async def open(self) -> None:
        change, lane = await first_change(URL)
        self.template_id = change.after.id
        store = PostgresStore(URL)
        await store.open({}, CONTRACTS)
        self.text, self.values = await insert_statement(store._names, [change], [lane])
        other = replace(
            change, after=replace(change.after, id=_OTHER_ID), events=[replace(change.events[0], job_id=_OTHER_ID)]
        )
        self.bulk_text, self.columns = await insert_statement(store._names, [change, other], [lane] * 2)
        await store.close()
        assert self.template_id in self.values, "the id is one parameter, for the job and for its event"
        self.ids = RandomIds()
        self.connections = [await connect(POOL_SETTINGS) for _ in range(CALLERS)]

    async def reset(self) -> None:
        await self.connections[0].execute(_TRUNCATE)

    async def enqueue(self, caller: int) -> None:
        job_id = self.ids.job()
        values = (job_id if value == self.template_id else value for value in self.values)
        await self.connections[caller].fetch(self.text, *values)

    async def enqueue_batch(self, jobs: int) -> None:
        ids = [self.ids.job() for _ in range(jobs)]
        columns = (
            column
            if not isinstance(column, list)
            else ids
            if column == [self.template_id, _OTHER_ID]
            else column[:1] * jobs
            for column in self.columns
        )
        await self.connections[0].fetch(self.bulk_text, *columns)

    async def enqueue_with_steps(self, jobs: int) -> None:
        await self.enqueue_batch(jobs)

    async def remaining(self) -> int:
        return int(await self.connections[0].fetchval(_LEFT))

    async def close(self) -> None:
        for connection in self.connections:
            await connection.close()

    async def work(self) -> None:
        """Settle batch k and claim batch k+1 in one statement, until no job is left."""
        connection = await connect(SETTINGS)
        query = compiled(queries(False)["settle_and_claim"])
        values = await constant_values(connection)
        positions = {
            name: query.names.index(name) for name in ("ids", "tokens", "results", "done_times", "done_numbers")
        }
        arguments = [values[name] for name in query.names]
        rows: list[Any] = await connection.fetch(query.text, *arguments)
        while len(rows) > 1:
            ids = [row[0] for row in rows if row[0] is not None]
            if PART == "steps":
                await record_steps(connection, ids, values["token"])
            handled(len(ids))
            arguments[positions["ids"]] = sorted(ids)
            arguments[positions["tokens"]] = [values["token"]] * len(ids)
            arguments[positions["results"]] = [None] * len(ids)
            arguments[positions["done_times"]] = [str(rows[0][11])]
            arguments[positions["done_numbers"]] = [str(rows[0][17])]
            rows = await connection.fetch(query.text, *arguments)
        await connection.close()
        wait_for_signal()


async def record_steps(connection: Any, ids: list[str], token: str) -> None:
    """One statement per step, for all jobs of the batch."""
    query = compiled(queries(False)["record_steps"])
    size = len(ids)
    for number in range(STEPS):
        name = "work" if number == 0 else f"work#{number + 1}"
        parameters = {
            "ids": ids,
            "tokens": [token] * size,
            "names": [name] * size,
            "digests": ["0" * 24] * size,
            "results": [str(number)] * size,
            "finished": ["true"] * size,
        }
        rows = await connection.fetch(query.text, *(parameters[name] for name in query.names))
        assert len(rows) == size, "every step is recorded"


async def constant_values(connection: Any) -> dict[str, Any]:
    """Parameters that are the same for every settle_and_claim: lanes, token, edges of the standard contract."""
    groups = await connection.fetch("SELECT id, contract, queue, job_type FROM detent.lane_groups")
    version = await connection.fetchval("SELECT value FROM detent.lane_version")
    lane_cache = LaneCache(version, {row[0]: (row[1], row[2], row[3]) for row in groups})
    request = ClaimRequest("raw", "raw-token", CLAIMED_AT_ONCE, 30 * SECOND)
    store = PostgresStore(URL)
    await store.open({}, CONTRACTS)
    edges, worker = store._edges, await store._names.actor("raw")
    await store.close()
    now = time.time_ns() // 1_000
    contracts = {row[1] for row in groups}
    return settle_and_claim_values([], request, lane_cache, edges, worker, now) | edges.values("end", contracts)


async def connect(settings: dict[str, str]) -> Any:
    connection = await asyncpg.connect(URL, server_settings=settings)
    await connection.set_type_codec("uuid", schema="pg_catalog", encoder=str, decoder=str, format="text")
    return connection


PEER = RawPostgres
