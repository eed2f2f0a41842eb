"""A guard against getting slower: exact counts of statements, round trips, commits and rows; drills compare rates."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest
from servers.databases import Database, house, newest

from bench.contestants import BY_NAME
from bench.harness import compete
from bench.measures import Sizes
from bench.services import Services
from detent.core.outcome import Succeeded
from detent.engine import Engine, Settlement, Submission
from detent.ports.claims import Claimed
from detent.stores.postgres.store import PostgresStore
from detent.stores.sqlite.store import SqliteStore

JOBS, BATCH = 1_000, 100
MAX_BATCHES_IN_FLIGHT = JOBS // BATCH + 1
"""Each but the first settles a batch, each but the last claims one."""
SQLITE_CYCLE = "BEGIN INSERT UPDATE UPDATE SELECT WITH SELECT INSERT UPDATE COMMIT"
"""settle: events, rows; promote; is the book up to date; walk the lanes; pick; claim: events, rows."""
SQLITE_SUBMIT = "BEGIN INSERT INSERT COMMIT"


async def cycle_through(engine: Engine) -> int:
    """Everything there is, a batch at a time, as a worker whose handlers take no time would; how many were done."""
    done, held = 0, []
    while True:
        request = engine.claim_request("guard", BATCH)
        answer = await engine.settle_and_claim([_ended(claimed) for claimed in held], request)
        assert not answer.refused and not answer.later
        done += len(held)
        held = answer.claimed
        if not held:
            return done


def _ended(claimed: Claimed) -> Settlement:
    return Settlement(claimed.id, claimed.token, claimed.contract, Succeeded(None))


class SqliteTrace:
    """Every statement of every connection opened while it is on; rows changed are counted by SQLite itself."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    def __call__(self, connection: apsw.Connection) -> None:
        connection.exec_trace = self._executed

    def _executed(self, _cursor: Any, sql: str, _bindings: Any) -> bool:
        lines = [line for line in sql.splitlines() if line and not line.startswith("--")]
        self.statements.append(lines[0].split()[0])
        return True

    def taken(self) -> list[str]:
        found, self.statements = self.statements, []
        return found


@pytest.fixture
def trace() -> Iterator[SqliteTrace]:
    made = SqliteTrace()
    apsw.connection_hooks.append(made)
    yield made
    apsw.connection_hooks.remove(made)


def test_sqlite_statements_of_a_cycle(tmp_path: Path, trace: SqliteTrace) -> None:
    async def run() -> None:
        engine = Engine(SqliteStore(str(tmp_path / "jobs.db"), inline=True, synchronous="OFF"))
        await engine.open()
        await engine.submit_many([Submission("noop")] * (3 * BATCH))
        first = await engine.settle_and_claim([], engine.claim_request("guard", BATCH))
        trace.taken()
        await engine.settle_and_claim([_ended(one) for one in first.claimed], engine.claim_request("guard", BATCH))
        assert trace.taken() == SQLITE_CYCLE.split()
        await engine.submit(Submission("noop"))
        assert trace.taken() == SQLITE_SUBMIT.split()
        await engine.close()

    asyncio.run(run())


def test_sqlite_commits_and_rows_of_a_thousand_jobs(tmp_path: Path, trace: SqliteTrace) -> None:
    path = str(tmp_path / "jobs.db")

    async def run() -> None:
        store = SqliteStore(path, inline=True, synchronous="OFF")
        engine = Engine(store)
        await engine.open()
        await engine.submit_many([Submission("noop")] * BATCH)  # the first submit also makes the lane
        await cycle_through(engine)
        before = store.commits
        trace.taken()
        await engine.submit_many([Submission("noop")] * JOBS)
        assert (store.commits - before, trace.taken().count("COMMIT")) == (1, 1)
        assert await cycle_through(engine) == JOBS
        assert (store.commits - before, trace.taken().count("COMMIT")) == (
            1 + MAX_BATCHES_IN_FLIGHT,
            MAX_BATCHES_IN_FLIGHT,
        )
        await engine.close()

    asyncio.run(run())
    connection = apsw.Connection(path)
    told = {table: _one(connection, f"SELECT count(*) FROM {table}") for table in ("events", "notes", "keys", "steps")}
    versions = _one(connection, "SELECT sum(version) FROM jobs")
    connection.close()
    jobs = JOBS + BATCH
    assert told == {"events": 3 * jobs, "notes": 0, "keys": 0, "steps": 0}
    assert versions == 3 * jobs, "a row is written once and changed twice"


def _one(connection: apsw.Connection, statement: str) -> Any:
    return connection.execute(statement).fetchall()[0][0]


@pytest.fixture
def database() -> Iterator[Database]:
    made = house(newest()).database()
    yield made
    made.house.release(made)


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The first word of every query any asyncpg connection sends; preparing one the first time is not counted."""
    sent: list[str] = []
    made = asyncpg.connection.Connection.__init__

    def watched(self: Any, *args: Any, **options: Any) -> None:
        made(self, *args, **options)
        self.add_query_logger(lambda record: sent.append(record.query))

    monkeypatch.setattr(asyncpg.connection.Connection, "__init__", watched)
    return sent


def test_postgres_round_trips_commits_and_rows(database: Database, trips: list[str]) -> None:
    async def run() -> None:
        engine = Engine(PostgresStore(database.url))
        await engine.open()
        await engine.submit(Submission("noop"))
        await cycle_through(engine)
        await _sent(trips)
        assert len(await _sent(trips, engine.submit(Submission("noop")))) == 1
        assert len(await _sent(trips, engine.submit_many([Submission("noop")] * (JOBS - 1)))) == 1
        queries = await _sent(trips, cycle_through(engine))
        assert len(queries) == MAX_BATCHES_IN_FLIGHT, [" ".join(query.split())[:80] for query in queries]
        await engine.close()

    asyncio.run(run())
    jobs = JOBS + 1
    assert database.sql("SELECT count(*), sum(version)::int FROM jobs") == [(jobs, 3 * jobs)]
    assert [database.sql(f"SELECT count(*) FROM {name}")[0][0] for name in ("events", "notes", "keys", "steps")] == [
        3 * jobs, 0, 0, 0,
    ]  # fmt: skip
    # The warm-up: one submit, one claim, one settle. Then two submits and the cycles, one transaction each.
    assert database.sql("SELECT count(DISTINCT xid) FROM events") == [(3 + 2 + MAX_BATCHES_IN_FLIGHT,)]


async def _sent(trips: list[str], act: Any = None) -> list[str]:
    """What an act has sent, without the bell that is rung after it, aside and coalesced."""
    trips.clear()
    if act is not None:
        await act
    await asyncio.sleep(0)  # loggers are called in the next turn of the loop, before whoever asks for a turn now
    return [query for query in trips if "NOTIFY" not in query]


RATIOS = {
    ("drain", "detent-sqlite", "raw-sqlite"): 0.25,
    ("drain", "detent-postgres", "raw-postgres"): 0.45,
    ("enqueue one by one", "detent-sqlite", "raw-sqlite"): 0.45,
    ("enqueue one by one", "detent-postgres", "raw-postgres"): 0.45,
}
"""About half of what must hold on a quiet machine: a drill may share its machine."""


@pytest.mark.drill
def test_detent_keeps_up_with_raw(tmp_path: Path) -> None:
    names = dict.fromkeys(name for _, mine, raw in RATIOS for name in (mine, raw))
    services = Services()
    try:
        readings = compete(
            [BY_NAME[name] for name in names], ["enqueue", "drain"], Sizes(20_000), 3, tmp_path, services
        )
    finally:
        services.close()
    assert not readings.missing
    reached = {key: readings.ratio(*key) for key in RATIOS}
    assert all((reached[key] or 0) >= bound for key, bound in RATIOS.items()), reached
