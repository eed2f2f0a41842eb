"""Guards against slowdowns: exact counts of statements, round trips, commits and rows; drills compare rates."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

from bench.contestants import BY_NAME
from bench.harness import compete
from bench.measures import Sizes
from bench.services import Services
from detent.core.outcome import Succeeded
from detent.engine import Engine, Settlement, Submission
from detent.ports.claims import Claimed
from detent.stores.postgres.store import PostgresStore
from detent.stores.sqlite.store import SqliteStore
from support.servers.databases import Database, house, newest

JOBS, BATCH = 1_000, 100
BATCHES = JOBS // BATCH + 1
"""Calls of settle_and_claim: all but the first settle a batch, all but the last claim one."""
SQLITE_SETTLE_AND_CLAIM = "BEGIN INSERT UPDATE UPDATE SELECT WITH SELECT INSERT UPDATE COMMIT"
"""Settle: events, rows. Promote due jobs. Check the lane version. Walk the lanes. Pick. Claim: events, rows."""
SQLITE_SUBMIT = "BEGIN INSERT INSERT COMMIT"


async def drain(engine: Engine) -> int:
    """Settle and claim all jobs, a batch at a time, like a worker with no-op handlers; returns the number of jobs."""
    done, claimed = 0, []
    while True:
        request = engine.claim_request("guard", BATCH, suspects=False)  # most claims of a worker look for none
        result = await engine.settle_and_claim([_succeeded(job) for job in claimed], request)
        assert not result.refused and not result.later
        done += len(claimed)
        claimed = result.claimed
        if not claimed:
            return done


def _succeeded(claimed: Claimed) -> Settlement:
    return Settlement(claimed.id, claimed.token, claimed.contract, Succeeded(None))


class SqliteTrace:
    """Records the first keyword of every statement of every connection opened while it is installed."""

    def __init__(self) -> None:
        self.statements: list[str] = []

    def __call__(self, connection: apsw.Connection) -> None:
        connection.exec_trace = self._executed

    def _executed(self, _cursor: Any, sql: str, _bindings: Any) -> bool:
        lines = [line for line in sql.splitlines() if line and not line.startswith("--")]
        self.statements.append(lines[0].split()[0])
        return True

    def take(self) -> list[str]:
        """The statements since the last call."""
        statements, self.statements = self.statements, []
        return statements


@pytest.fixture
def trace() -> Iterator[SqliteTrace]:
    hook = SqliteTrace()
    apsw.connection_hooks.append(hook)
    yield hook
    apsw.connection_hooks.remove(hook)


def test_sqlite_statements_of_settle_and_claim(tmp_path: Path, trace: SqliteTrace) -> None:
    async def run() -> None:
        engine = Engine(SqliteStore(str(tmp_path / "jobs.db"), inline=True, synchronous="OFF"))
        await engine.open()
        await engine.jobs.submit_many([Submission("noop")] * (3 * BATCH))
        first = await engine.settle_and_claim([], engine.claim_request("guard", BATCH))
        trace.take()
        await engine.settle_and_claim([_succeeded(job) for job in first.claimed], engine.claim_request("guard", BATCH))
        assert trace.take() == SQLITE_SETTLE_AND_CLAIM.split()
        await engine.jobs.submit(Submission("noop"))
        assert trace.take() == SQLITE_SUBMIT.split()
        await engine.close()

    asyncio.run(run())


def test_sqlite_commits_and_rows_of_a_thousand_jobs(tmp_path: Path, trace: SqliteTrace) -> None:
    path = str(tmp_path / "jobs.db")

    async def run() -> None:
        store = SqliteStore(path, inline=True, synchronous="OFF")
        engine = Engine(store)
        await engine.open()
        await engine.jobs.submit_many([Submission("noop")] * BATCH)  # the first submit also creates the lane
        await drain(engine)
        before = store.commits
        trace.take()
        await engine.jobs.submit_many([Submission("noop")] * JOBS)
        assert (store.commits - before, trace.take().count("COMMIT")) == (1, 1)
        assert await drain(engine) == JOBS
        assert (store.commits - before, trace.take().count("COMMIT")) == (
            1 + BATCHES,
            BATCHES,
        )
        await engine.close()

    asyncio.run(run())
    connection = apsw.Connection(path)
    row_counts = {
        table: _scalar(connection, f"SELECT count(*) FROM detent_{table}")
        for table in ("events", "notes", "keys", "steps")
    }
    versions = _scalar(connection, "SELECT sum(version) FROM detent_job_list")
    connection.close()
    jobs = JOBS + BATCH
    assert row_counts == {"events": 3 * jobs, "notes": 0, "keys": 0, "steps": 0}
    assert versions == 3 * jobs, "a row is inserted once and updated twice"


def _scalar(connection: apsw.Connection, statement: str) -> Any:
    return connection.execute(statement).fetchall()[0][0]


@pytest.fixture
def database() -> Iterator[Database]:
    database = house(newest()).database()
    yield database
    database.house.release(database)


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every query that any asyncpg connection sends; preparing a statement is not counted."""
    queries: list[str] = []
    init = asyncpg.connection.Connection.__init__

    def init_with_logger(self: Any, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        self.add_query_logger(lambda record: queries.append(record.query))

    monkeypatch.setattr(asyncpg.connection.Connection, "__init__", init_with_logger)
    return queries


def test_postgres_round_trips_commits_and_rows(database: Database, trips: list[str]) -> None:
    async def run() -> None:
        engine = Engine(PostgresStore(database.url))
        await engine.open()
        await engine.jobs.submit(Submission("noop"))
        await drain(engine)
        await _queries_of(trips)
        assert len(await _queries_of(trips, engine.jobs.submit(Submission("noop")))) == 1
        assert len(await _queries_of(trips, engine.jobs.submit_many([Submission("noop")] * (JOBS - 1)))) == 1
        queries = await _queries_of(trips, drain(engine))
        # The last claim comes back short. If it was from one lane only, another one looks at all lanes. One
        # lane alone is claimed for at most 50 ms, so on a busy machine the last one may have looked at all lanes.
        assert len(queries) in (BATCHES, BATCHES + 1), [" ".join(query.split())[:80] for query in queries]
        await engine.close()

    asyncio.run(run())
    jobs = JOBS + 1
    assert database.sql("SELECT count(*), sum(version)::int FROM jobs") == [(jobs, 3 * jobs)]
    assert [database.sql(f"SELECT count(*) FROM {name}")[0][0] for name in ("events", "notes", "keys", "steps")] == [
        3 * jobs, 0, 0, 0,
    ]  # fmt: skip
    # The warm-up: one submit, one claim, one settle. Then two submits and the calls of drain, one transaction each.
    assert database.sql("SELECT count(DISTINCT xid) FROM events") == [(3 + 2 + BATCHES,)]


async def _queries_of(trips: list[str], act: Any = None) -> list[str]:
    """The queries an act sends, without NOTIFY, which is sent later and merged, on a side connection."""
    trips.clear()
    if act is not None:
        await act
    await asyncio.sleep(0)  # query loggers are called in the next iteration of the loop, before this task
    return [query for query in trips if "notify" not in query.lower()]


RATIOS = {
    ("drain", "detent-sqlite", "raw-sqlite"): 0.25,
    ("drain", "detent-postgres", "raw-postgres"): 0.45,
    ("enqueue one by one", "detent-sqlite", "raw-sqlite"): 0.45,
    ("enqueue one by one", "detent-postgres", "raw-postgres"): 0.45,
}
"""About half of the goals on an idle machine, because a drill may share its machine."""


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
