"""Inspects a database without opening an engine: schema version, durability, whether it is writable."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import apsw

from detent.client.connect import store_from
from detent.core.errors import DetentError
from detent.stores.sqlite.migrate import migrations, recorded, schema_version
from detent.stores.sqlite.session import connect_read_only, write_problem
from detent.stores.sqlite.store import SqliteStore

_DURABILITY = {
    "EXTRA": "fsync on every commit, including the folder",
    "FULL": "fsync on every commit",
    "NORMAL": "fsync at checkpoints only: a power loss may lose the last commits",
    "OFF": "no fsync: a power loss may corrupt the file",
}


@dataclass(frozen=True, slots=True)
class Database:
    """What is known of a database. schema None: no tables yet; problem: why it cannot be used.

    durability: what a commit survives.
    """

    location: str
    schema: int | None
    newest: int
    durability: str
    durable: bool
    engine: str
    exists: bool
    problem: str | None = None
    kind: str = "file"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check of `detent doctor`: its result, and what to do if it failed."""

    check: str
    ok: bool
    message: str
    advice: str = ""


def describe(url: str) -> Database:
    store = store_from(url)
    if isinstance(store, SqliteStore):
        return _describe_file(store)
    from .doctor_postgres import describe_server  # asyncpg is an extra

    return describe_server(url)


def scripts(url: str) -> list[tuple[int, str]]:
    """The migrations of this kind of database, in order."""
    store = store_from(url)
    if isinstance(store, SqliteStore):
        return [(number, recorded(number, text)) for number, text in migrations()]
    from . import doctor_postgres

    return doctor_postgres.scripts(store.schema)  # type: ignore[attr-defined]


def _describe_file(store: SqliteStore) -> Database:
    path = Path(store.path)
    exists = store.path == ":memory:" or path.exists()
    schema, problem = _read_schema(path) if exists and store.path != ":memory:" else (None, write_problem(path))
    level = store.synchronous.upper()
    return Database(
        location=str(path),
        schema=schema or None,
        newest=migrations()[-1][0],
        durability=_DURABILITY[level],
        durable=level in ("FULL", "EXTRA"),
        engine=f"SQLite {apsw.sqlite_lib_version()}",
        exists=exists,
        problem=problem,
    )


def _read_schema(path: Path) -> tuple[int | None, str | None]:
    problem = write_problem(path)
    try:
        read_only = apsw.SQLITE_OPEN_READONLY
        connection = connect_read_only(str(path)) if problem else apsw.Connection(str(path), flags=read_only)
        with closing(connection):
            return schema_version(connection), problem
    except (apsw.Error, DetentError) as error:
        return None, f"{path} cannot be read: {error}"
