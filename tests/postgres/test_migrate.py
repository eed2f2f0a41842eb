"""Schemas of every age: who may migrate, two at once, by hand, and old programs beside a newer schema."""

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import detent
from detent.cli import run
from detent.core.access import Scope
from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Move
from detent.core.outcome import Succeeded
from detent.engine import Engine
from detent.stores.postgres import migrate
from detent.stores.postgres.store import PostgresStore
from support.acts import PERMANENT, claim_one, refused, retryable, running, submit
from support.clock import FakeClock
from support.servers.databases import SEARCH_DETENT, Database, house, newest
from support.waiting import until

pytestmark = pytest.mark.anyio
NEWEST = migrate.migrations()[-1][0]


@pytest.fixture
def blank() -> Iterator[str]:
    """The URL of a database without anything in it."""
    home = house(newest())
    return iter([home.url(home.blank())])


@pytest.fixture
def url(blank: Iterator[str]) -> str:
    return next(blank)


def opened(url: str, **options: bool) -> Engine:
    return Engine(PostgresStore(url, **options), CONTRACTS)


def sql(url: str, *statements: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True, options=SEARCH_DETENT) as connection:
        found = [connection.execute(statement) for statement in statements]  # type: ignore[arg-type]
        return [row for cursor in found if cursor.description for row in cursor]


async def refused_opening(url: str, **options: bool) -> detent.core.errors.DetentError:
    engine = opened(url, **options)
    error = await refused(engine.open(), "SCHEMA_MISMATCH", 503)
    await engine.close()
    return error


async def test_an_empty_database_is_not_migrated_by_the_way(url: str) -> None:
    error = await refused_opening(url)
    assert "empty" in error.message and "detent migrate" in error.message
    assert sql(url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'detent'") == [(0,)]


async def test_migrating_gives_it_all(url: str) -> None:
    engine = opened(url, may_migrate=True)
    await engine.open()
    job = await submit(engine)
    await engine.close()
    again = opened(url)
    await again.open()
    assert (await again.jobs.get(job.id)).status == "queued"
    await again.close()
    assert sql(url, "SELECT max(version) FROM schema") == [(NEWEST,)]


async def test_several_may_migrate_at_once(url: str) -> None:
    """Processes of their own, started together; each one goes on to work."""
    program = (
        "import asyncio, sys\n"
        "from detent.core.contract.builtin import CONTRACTS\n"
        "from detent.engine import Engine, Submission\n"
        "from detent.stores.postgres import PostgresStore\n"
        "async def main():\n"
        "    engine = Engine(PostgresStore(sys.argv[1], may_migrate=True), CONTRACTS)\n"
        "    await engine.open()\n"
        "    await engine.jobs.submit(Submission('mail'))\n"
        "    await engine.close()\n"
        "asyncio.run(main())\n"
    )
    started = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, url, stderr=asyncio.subprocess.PIPE, env={"PYTHONPATH": source()}
        )
        for _ in range(4)
    ]
    ends = await asyncio.wait_for(asyncio.gather(*(process.communicate() for process in started)), 60)
    assert [process.returncode for process in started] == [0] * 4, b"\n".join(err for _, err in ends).decode()
    assert sql(url, "SELECT max(version) FROM schema", "SELECT count(*) FROM jobs") == [(NEWEST,), (4,)]


def source() -> str:
    return str(Path(detent.__file__ or "").parent.parent)


def next_schema(monkeypatch: pytest.MonkeyPatch, text: str) -> int:
    """As if a later Detent had one migration more."""
    known = migrate.migrations()
    monkeypatch.setattr(migrate, "migrations", lambda schema="detent": [*known, (NEWEST + 1, text)])
    return NEWEST + 1


async def test_an_older_schema_is_refused_unless_migrating(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = opened(url, may_migrate=True)
    await first.open()
    job = await submit(first)
    await first.close()
    later = next_schema(monkeypatch, "ALTER TABLE detent.jobs ADD COLUMN mood text;")
    error = await refused_opening(url)
    assert (error.extra["have"], error.extra["want"]) == (NEWEST, later)
    assert "detent migrate" in error.message
    second = opened(url, may_migrate=True)
    await second.open()
    assert (await second.jobs.get(job.id)).id == job.id
    await second.close()
    assert sql(url, "SELECT max(version) FROM schema") == [(later,)]


async def test_a_migration_that_fails_leaves_everything_as_it_was(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = opened(url, may_migrate=True)
    await first.open()
    await first.close()
    next_schema(monkeypatch, "ALTER TABLE detent.jobs ADD COLUMN mood text; INSERT INTO nowhere VALUES (1);")
    second = opened(url, may_migrate=True)
    with pytest.raises(Exception, match="nowhere"):
        await second.open()
    await second.close()
    assert sql(url, "SELECT max(version) FROM schema") == [(NEWEST,)]
    assert sql(url, "SELECT 1 FROM information_schema.columns WHERE column_name = 'mood'") == []


async def test_an_old_program_works_on_beside_an_additive_migration(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds prepared statements and plans of the old schema, and may be started again, too."""
    old = opened(url, may_migrate=True)
    await old.open()
    kept = await submit(old)
    held = await claim_one(old)
    sql(
        url,
        "ALTER TABLE jobs ADD COLUMN mood text",
        "ALTER TABLE events ADD COLUMN mood text",
        f"INSERT INTO schema VALUES ({NEWEST + 1})",
    )
    await submit(old, payload={"n": 1})
    next_held = await claim_one(old)
    for one in (held, next_held):
        assert (await old.settle(one.id, one.token, Succeeded())).status == "succeeded"
    assert len((await old.jobs.history(kept.id)).events) == 3
    await old.close()
    again = opened(url)
    await again.open()
    assert (await submit(again)).status == "queued"
    await again.close()


async def test_a_newer_schema_that_old_programs_cannot_live_with_is_refused(url: str) -> None:
    first = opened(url, may_migrate=True)
    await first.open()
    await first.close()
    sql(url, f"INSERT INTO schema VALUES ({NEWEST + 1}), ({-(NEWEST + 1)})")
    for may_migrate in (True, False):
        error = await refused_opening(url, may_migrate=may_migrate)
        assert (error.extra["have"], error.extra["want"]) == (NEWEST + 1, NEWEST)
        assert "upgrade" in error.message


EARLY = {
    "public": "CREATE TABLE detent_schema (version integer NOT NULL)",
    "text": "CREATE SCHEMA detent; CREATE TABLE detent.schema (version integer NOT NULL);"
    " CREATE TABLE detent.jobs (id uuid PRIMARY KEY, status text NOT NULL)",
}
"""Layouts with eleven migrations: tables in `public`, and later in a schema, with names as text."""


@pytest.mark.parametrize(("layout", "table"), [("public", "public.detent_schema"), ("text", "detent.schema")])
async def test_the_layouts_of_development_versions_are_refused(url: str, layout: str, table: str) -> None:
    sql(url, *EARLY[layout].split("; "), f"INSERT INTO {table} SELECT generate_series(1, 11)")
    for may_migrate in (True, False):
        error = await refused_opening(url, may_migrate=may_migrate)
        assert "development version" in error.message and "use a new database" in error.message
    assert sql(url, f"SELECT max(version) FROM {table}") == [(11,)]
    assert sql(url, "SELECT to_regclass('detent.events')") == [(None,)]


async def test_declaring_a_contract_waits_for_nobody(database: Database) -> None:
    """Its statuses are new rows and new values of a domain: a transaction that holds jobs is not in the way."""
    mine = CONTRACTS["standard"].with_options(name="mine")
    first = opened(database.url)
    await first.open()
    job = await submit(first)
    with psycopg.connect(database.url, options=SEARCH_DETENT) as holder:
        holder.execute("UPDATE detent.jobs SET max_retries = max_retries WHERE id = %s", [job.id])
        declaring = Engine(PostgresStore(database.url), {"mine": mine})
        await asyncio.wait_for(declaring.open(), 30)
        assert (await submit(declaring, "mine")).contract == "mine"
        assert (await submit(first)).contract == "standard"
        holder.rollback()
    await declaring.close()
    await first.close()


LOCK_WAITS = """SELECT count(*) FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
WHERE c.relname = 'jobs' AND NOT l.granted AND l.mode = 'ShareRowExclusiveLock'"""


async def test_declaring_a_contract_that_has_lost_an_edge_waits_for_nobody_for_long(database: Database) -> None:
    """No job may come to need the edge meanwhile, but a transaction that holds a row must not stop all others behind a
    lock on the table."""
    standard = CONTRACTS["standard"].with_options(name="mine")
    gone = (Move.CANCEL, "dlq_recorded")
    smaller = standard.with_options(edges=tuple(edge for edge in standard.edges if (edge.move, edge.source) != gone))
    first = Engine(PostgresStore(database.url), {"mine": standard})
    await first.open()
    job = await submit(first, "mine")
    with psycopg.connect(database.url, options=SEARCH_DETENT) as holder:
        holder.execute("UPDATE detent.jobs SET max_retries = max_retries WHERE id = %s", [job.id])
        declaring = Engine(PostgresStore(database.url), {"mine": smaller})
        opening = asyncio.create_task(declaring.open())
        await until(lambda: database.sql(LOCK_WAITS) != [(0,)])
        for _ in range(5):
            await asyncio.wait_for(submit(first), 10)
        assert not opening.done()
        holder.rollback()
    await asyncio.wait_for(opening, 30)
    assert (await submit(declaring, "mine")).contract == "mine"
    await declaring.close()
    await first.close()


async def test_jobs_live_on_when_the_flags_of_their_status_change(database: Database) -> None:
    """The status gets another state; jobs in the old one are still found, and are held to the new contract."""
    retrying = CONTRACTS["standard"].with_options(name="mine")
    reopening = CONTRACTS["formal"].with_options(name="ours")
    final = reopening.with_options(edges=tuple(edge for edge in reopening.edges if edge.move is not Move.REOPEN))
    clock = FakeClock()
    first = Engine(PostgresStore(database.url, clock=clock), {"mine": retrying, "ours": final})
    await first.open()
    held = await running(first, "mine")
    again = await first.settle(held.id, held.token, retryable("mine"))
    broken = await running(first, "ours", job_type="broken")
    assert (await first.settle(broken.id, broken.token, PERMANENT)).status == "Failed"
    await first.close()
    plain = retrying.with_options(retry_at_statuses=frozenset())
    for _ in range(2):  # the second time nothing changes, and nothing that was known is forgotten
        engine = Engine(PostgresStore(database.url, clock=clock), {"mine": plain, "ours": reopening})
        await engine.open()
        states = database.sql("SELECT id FROM detent.states WHERE contract = 'mine' AND status = 'retrying'")
        assert len(states) == 2
        for (state,) in states:
            database.sql("SELECT %s::detent.state", state)
        await engine.close()
    await engine.open()
    clock.advance(100_000)
    assert (await claim_one(engine, job_types={again.job_type})).id == again.id
    assert (await engine.jobs.reopen(broken.id, Scope("ann"))).status == "Queued"
    assert (await claim_one(engine, job_types={"broken"})).id == broken.id
    await engine.close()


def test_the_command_migrates_and_says_what_it_did(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["migrate", "--url", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"from": None, "schema": NEWEST, "migrated": True}
    assert run(["migrate", "--url", url]) == 0
    assert f"schema {NEWEST} is up to date" in capsys.readouterr().out


def test_migrations_can_be_run_by_hand(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["migrate", "--sql", "--url", url]) == 0
    text = capsys.readouterr().out
    assert sql(url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'detent'") == [(0,)]
    sql(url, text)
    assert run(["enqueue", "mail", "--url", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["job"]["status"] == "queued"


def test_an_empty_database_is_told_what_to_do(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["enqueue", "mail", "--url", url]) == 1
    assert "detent migrate" in capsys.readouterr().err
    assert run(["contract", "list", "--url", url, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["items"]) == len(CONTRACTS)
    assert run(["doctor", "--url", url, "--json"]) == 1
    checks = {row["check"]: row for row in json.loads(capsys.readouterr().out)["checks"]}
    assert "detent migrate" in checks["schema"]["do"] and checks["server"]["ok"]


def test_the_doctor_looks_at_a_server(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    run(["enqueue", "mail", "--url", database.url])
    capsys.readouterr()
    assert run(["doctor", "--url", database.url, "--json"]) == 1
    checks = {row["check"]: row for row in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["schema"]["ok"] and checks["clock"]["ok"] and checks["leases"]["ok"]
    assert "PostgreSQL" in checks["server"]["says"]
    assert not checks["durability"]["ok"], "the tests' server runs without fsync, and that is said"
    assert not checks["workers"]["ok"]


def test_a_server_that_is_not_there_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    nowhere = "postgresql://detent@127.0.0.1:1/jobs"
    assert run(["doctor", "--url", nowhere, "--json"]) == 1
    checks = {row["check"]: row for row in json.loads(capsys.readouterr().out)["checks"]}
    assert not checks["server"]["ok"] and "cannot connect to the server" in checks["server"]["says"]
    assert run(["jobs", "list", "--url", nowhere]) == 1
    assert "STORE_UNAVAILABLE" in capsys.readouterr().err
