"""Files of every age and origin: an empty one is migrated, another program's or another version's is left alone."""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from detent.cli import run
from detent.core.contract.builtin import CONTRACTS
from detent.core.errors import DetentError
from detent.core.outcome import Succeeded
from detent.engine import Engine
from detent.ports.listing import Filter
from detent.stores.sqlite import migrate
from detent.stores.sqlite.store import SqliteStore
from support.acts import claim_one, submit

pytestmark = pytest.mark.anyio


def opened(path: Path, **options: bool) -> SqliteStore:
    store = SqliteStore(str(path), inline=True, synchronous="OFF", **options)
    store.open_now(CONTRACTS)
    return store


def refusal(path: Path, **options: bool) -> DetentError:
    with pytest.raises(DetentError) as caught:
        opened(path, **options).close_now()
    return caught.value


def sql(path: Path, *statements: str) -> list[tuple[object, ...]]:
    """Statements from outside, when no store has the file open."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        return [row for statement in statements for row in connection.execute(statement)]
    finally:
        connection.close()


@pytest.mark.parametrize("may_migrate", [True, False])
@pytest.mark.parametrize("prepare", [lambda p: None, lambda p: p.touch(), lambda p: sql(p, "VACUUM")])
async def test_an_empty_file_is_migrated_on_first_use(
    tmp_path: Path, may_migrate: bool, prepare: Callable[[Path], object]
) -> None:
    path = tmp_path / "jobs.db"
    prepare(path)
    engine = Engine(opened(path, may_migrate=may_migrate))
    await engine.open()
    assert (await submit(engine)).status == "queued"
    await engine.close()
    again = Engine(opened(path, may_migrate=False))
    assert len(await again.jobs.list(Filter())) == 1
    await again.close()
    newest = migrate.migrations()[-1][0]
    assert sql(path, "SELECT version FROM detent_schema", "PRAGMA user_version") == [(newest,), (0,)]


async def test_a_database_in_memory(tmp_path: Path) -> None:
    engine = Engine(SqliteStore(":memory:", inline=True))
    await engine.open()
    assert (await submit(engine)).status == "queued"
    await engine.close()


@pytest.mark.parametrize("may_migrate", [True, False])
async def test_a_newer_schema_is_refused(tmp_path: Path, may_migrate: bool) -> None:
    path = tmp_path / "jobs.db"
    opened(path).close_now()
    sql(path, "INSERT INTO detent_schema VALUES (99), (-99)")
    before = path.read_bytes()
    error = refusal(path, may_migrate=may_migrate)
    assert (error.code, error.http_status) == ("SCHEMA_MISMATCH", 503)
    assert (error.extra["have"], error.extra["want"]) == (99, migrate.migrations()[-1][0])
    assert "99" in error.message and "upgrade" in error.message
    assert path.read_bytes() == before


def next_schema(monkeypatch: pytest.MonkeyPatch, text: str) -> int:
    """As if a later Detent had one migration more."""
    known = migrate.migrations()
    newest = known[-1][0] + 1
    monkeypatch.setattr(migrate, "migrations", lambda: [*known, (newest, text)])
    return newest


async def test_an_older_schema_is_refused_unless_migrating(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "jobs.db"
    engine = Engine(opened(path))
    await engine.open()
    job = await submit(engine)
    await engine.close()
    newest = next_schema(monkeypatch, "CREATE TABLE detent_later (x INTEGER) STRICT;")
    error = refusal(path, may_migrate=False)
    assert (error.code, error.extra["have"], error.extra["want"]) == ("SCHEMA_MISMATCH", newest - 1, newest)
    assert "detent migrate" in error.message
    assert sql(path, "SELECT max(version) FROM detent_schema") == [(newest - 1,)]
    opened(path, may_migrate=True).close_now()
    assert sql(path, "SELECT count(*) FROM detent_later", "SELECT id FROM detent_jobs") == [(0,), (job.id,)]
    assert sql(path, "SELECT max(version) FROM detent_schema") == [(newest,)]


async def test_a_migration_that_fails_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "jobs.db"
    opened(path).close_now()
    contents = ("SELECT name FROM sqlite_schema ORDER BY name", "SELECT version FROM detent_schema")
    before = sql(path, *contents)
    next_schema(monkeypatch, "CREATE TABLE detent_later (x INTEGER) STRICT; INSERT INTO nowhere VALUES (1);")
    with pytest.raises(Exception, match="nowhere"):
        opened(path, may_migrate=True)
    assert sql(path, *contents) == before


@pytest.mark.parametrize("version", [0, 1, 2, 99])
@pytest.mark.parametrize(
    ("table", "may_migrate"),
    [("CREATE TABLE jobs (id, status)", False), ("CREATE TABLE detent_jobs (id, status)", True)],
)
async def test_a_file_of_another_program_is_refused_and_left_alone(
    tmp_path: Path, version: int, table: str, may_migrate: bool
) -> None:
    path = tmp_path / "theirs.db"
    sql(path, table, f"PRAGMA user_version = {version}")
    before = path.read_bytes()
    error = refusal(path, may_migrate=may_migrate)
    assert error.code == "SCHEMA_MISMATCH"
    assert ("run `detent migrate`" in error.message) != may_migrate
    assert path.read_bytes() == before, "not even its journal mode is ours to change"


THEIRS = (
    "CREATE TABLE jobs (id INTEGER PRIMARY KEY, status TEXT)",
    "CREATE TABLE events (name TEXT, at REAL)",
    "CREATE TABLE tokens (value TEXT UNIQUE)",
    "CREATE TABLE keys (a, b)",
    "CREATE INDEX jobs_ready ON jobs (status)",
    "CREATE TRIGGER jobs_ended AFTER DELETE ON jobs BEGIN DELETE FROM keys; END",
    "INSERT INTO jobs VALUES (1, 'open'), (2, 'closed')",
    "INSERT INTO events VALUES ('made', 1.5)",
    "INSERT INTO tokens VALUES ('abc')",
    "INSERT INTO keys VALUES (x'00ff', NULL)",
    "PRAGMA user_version = 7",
    "PRAGMA application_id = 42",
)
"""A file of an application, with names that Detent uses too."""
THEIR_CONTENTS = (
    "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name NOT LIKE 'detent_%' AND tbl_name NOT LIKE"
    " 'detent_%'"
    " AND name NOT LIKE 'sqlite_sequence' ORDER BY name",
    *(f"SELECT * FROM {table}" for table in ("jobs", "events", "tokens", "keys")),
    "PRAGMA user_version",
    "PRAGMA application_id",
)


async def test_migrating_a_file_of_another_program_changes_nothing_of_theirs(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    sql(path, *THEIRS)
    before = sql(path, *THEIR_CONTENTS)
    assert len(before) == 7 + 5 + 2
    assert "detent_" in refusal(path, may_migrate=False).message
    assert await asyncio.to_thread(run, ["migrate", "--url", f"sqlite:///{path}"]) == 0
    engine = Engine(opened(path))
    await engine.open()
    job = await submit(engine)
    held = await claim_one(engine)
    await engine.settle(held.id, held.token, Succeeded())
    assert (await engine.jobs.get(job.id)).status == "succeeded"
    await engine.close()
    assert sql(path, *THEIR_CONTENTS) == before
    ours = sql(path, "SELECT type, name FROM sqlite_schema WHERE name LIKE 'detent%' AND type IN ('table', 'view')")
    sql(path, *(f"DROP {kind} {name}" for kind, name in ours))
    assert sql(path, *THEIR_CONTENTS) == before, "and all of it goes again with its tables and views"
    assert sql(path, "SELECT count(*) FROM sqlite_schema WHERE tbl_name LIKE 'detent%'") == [(0,)]


async def test_a_file_of_the_early_layout_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "early.db"
    sql(path, "CREATE TABLE jobs (id, status)", f"PRAGMA application_id = {0x44544E54}", "PRAGMA user_version = 11")
    before = path.read_bytes()
    for may_migrate in (True, False):
        error = refusal(path, may_migrate=may_migrate)
        assert error.code == "SCHEMA_MISMATCH" and "development version" in error.message
        assert "use a new file" in error.message
    assert await asyncio.to_thread(run, ["migrate", "--url", f"sqlite:///{path}"]) == 1
    assert path.read_bytes() == before


async def test_a_file_of_the_layout_with_eleven_migrations_is_refused(tmp_path: Path) -> None:
    """They became one schema, whose number is lower."""
    path = tmp_path / "early.db"
    sql(path, "CREATE TABLE detent_schema (version INTEGER NOT NULL)", "CREATE TABLE detent_jobs (id, status)")
    sql(path, "INSERT INTO detent_schema VALUES (10), (11)")
    for may_migrate in (True, False):
        error = refusal(path, may_migrate=may_migrate)
        assert error.code == "SCHEMA_MISMATCH" and "development version" in error.message
    assert await asyncio.to_thread(run, ["migrate", "--url", f"sqlite:///{path}"]) == 1
    assert sql(path, "SELECT max(version) FROM detent_schema") == [(11,)]


async def test_an_older_program_works_on_with_an_additive_migration(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    opened(path).close_now()
    sql(path, "ALTER TABLE detent_jobs ADD COLUMN mood TEXT", "INSERT INTO detent_schema VALUES (99)")
    engine = Engine(opened(path))
    await engine.open()
    assert (await submit(engine)).status == "queued"
    await engine.close()


@pytest.mark.parametrize(
    "prepare",
    [
        lambda path: path.write_bytes(b"not a database at all, but long enough to be looked at" * 40),
        lambda path: path.mkdir(),
    ],
    ids=["text", "folder"],
)
async def test_what_is_no_database_is_refused_by_code(tmp_path: Path, prepare: Callable[[Path], object]) -> None:
    path = tmp_path / "odd"
    prepare(path)
    assert refusal(path).code in ("STORE_UNAVAILABLE", "SCHEMA_MISMATCH", "DATABASE_PATH_INVALID")


async def test_a_missing_folder_is_said(tmp_path: Path) -> None:
    error = refusal(tmp_path / "nowhere" / "jobs.db")
    assert error.code == "DATABASE_PATH_INVALID"
    assert "nowhere" in error.message


async def test_a_refused_file_can_be_opened_after_it_was_mended(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    opened(path).close_now()
    sql(path, "INSERT INTO detent_schema VALUES (99), (-99)")
    refusal(path)
    sql(path, "DELETE FROM detent_schema WHERE abs(version) = 99")
    opened(path).close_now()


async def test_several_may_open_an_empty_file_at_once(tmp_path: Path) -> None:
    """Rounds, because nothing but luck decides who comes first."""
    with ThreadPoolExecutor(6) as pool:
        for number in range(15):
            path = tmp_path / f"jobs-{number}.db"
            for store in list(pool.map(opened, [path] * 6)):
                store.close_now()
            assert sql(path, "SELECT count(*) FROM detent_contracts") == [(len(CONTRACTS),)]


async def test_opening_twice_and_closing_twice(tmp_path: Path) -> None:
    engine = Engine(SqliteStore(str(tmp_path / "jobs.db")))
    await engine.open()
    await engine.open()
    await submit(engine)
    await engine.close()
    await engine.close()
    await engine.open()
    await submit(engine)
    assert len(await engine.jobs.list(Filter())) == 2
    await engine.close()
