"""What can be said of a database without opening it for work: its schema, its durability, whether it can be written."""

import os
from dataclasses import dataclass
from pathlib import Path

import apsw

from detent.client.connect import store_from
from detent.stores.sqlite.migrate import migrations, schema_version
from detent.stores.sqlite.store import SqliteStore

_SAFE = {
    "EXTRA": "fsync on every commit and of the folder",
    "FULL": "fsync on every commit",
    "NORMAL": "fsync at checkpoints only: a power loss may cost the last commits",
    "OFF": "no fsync: a power loss may destroy the file",
}


@dataclass(frozen=True, slots=True)
class Database:
    """One database as it lies there. schema None: there is none yet; problem: why it cannot be used."""

    where: str
    schema: int | None
    newest: int
    durability: str
    durable: bool
    engine: str
    exists: bool
    problem: str | None = None
    kind: str = "file"


def durability(url: str) -> str:
    """For the first line of a worker: what a commit is worth here."""
    store = store_from(url)
    if isinstance(store, SqliteStore):
        return _SAFE[store.synchronous.upper()]
    from . import server  # asyncpg is an extra

    return server.durability(server.look(url)[0])


def describe(url: str) -> Database:
    store = store_from(url)
    return _describe_file(store) if isinstance(store, SqliteStore) else _describe_server(url)


def scripts(url: str) -> list[tuple[int, str]]:
    """The migrations of this kind of database, in order."""
    if isinstance(store_from(url), SqliteStore):
        return migrations()
    from . import server

    return server.scripts()


def _describe_server(url: str) -> Database:
    from . import server

    facts, problem = server.look(url)
    return Database(
        where=shown_url(url),
        schema=facts.get("schema") or None,
        newest=server.newest(),
        durability=server.durability(facts),
        durable=server.is_durable(facts),
        engine=f"PostgreSQL {facts['server_version']}" if facts else "Postgres",
        exists=True,
        problem=problem,
        kind="server",
    )


def shown_url(url: str) -> str:
    """A URL without its password."""
    scheme, mark, rest = url.partition("://")
    access, at, place = rest.rpartition("@")
    user, colon, _ = access.partition(":")
    return f"{scheme}{mark}{user}{':***' if colon else ''}{at}{place}" if at else url


def _describe_file(store: SqliteStore) -> Database:
    path = Path(store.path)
    exists = store.path == ":memory:" or path.exists()
    schema, problem = _look(path) if exists and store.path != ":memory:" else (None, _cannot_write(path))
    level = store.synchronous.upper()
    return Database(
        where=str(path),
        schema=schema or None,
        newest=migrations()[-1][0],
        durability=_SAFE[level],
        durable=level in ("FULL", "EXTRA"),
        engine=f"SQLite {apsw.sqlite_lib_version()}",
        exists=exists,
        problem=problem,
    )


def _look(path: Path) -> tuple[int | None, str | None]:
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return schema_version(connection), _cannot_write(path)
        finally:
            connection.close()
    except apsw.Error as error:
        return None, f"{path} cannot be read: {error}"


def _cannot_write(path: Path) -> str | None:
    """WAL writes two more files beside the database, so the folder counts too."""
    folder = path.parent
    if not folder.is_dir():
        return f"there is no folder {folder}; create it"
    if path.is_dir():
        return f"{path} is a folder, not a file; choose another name"
    if path.exists() and not os.access(path, os.W_OK):
        return f"{path} is not writable; change its permissions"
    if not os.access(folder, os.W_OK):
        return f"the folder {folder} is not writable, and SQLite keeps its log there; change its permissions"
    return None
