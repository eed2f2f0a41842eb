"""The stores the suite runs over. A new store is one more `Place` in `PLACES`, and nothing else changes."""

import shutil
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Protocol

import apsw

from detent.core.contract.builtin import CONTRACTS
from detent.core.contract.model import Contract
from detent.engine import Engine
from detent.ports.clock import Clock
from detent.ports.store import Store
from detent.stores.postgres.store import PostgresStore
from detent.stores.sqlite.store import SqliteStore
from support.servers.databases import house, newest, versions
from support.servers.ending import AT_THE_END

Dump = dict[str, list[tuple[Any, ...]]]


class Place(Protocol):
    """An empty database that can be opened several times, as several processes would."""

    def store(self, clock: Clock) -> Store: ...

    def dump(self) -> Dump:
        """Every row of every table, read past Detent; names of tables without prefix or schema."""
        ...

    def close(self) -> None: ...


class SqlitePlace:
    """A file of its own, copied from one that was migrated once: opening it costs a millisecond."""

    def __init__(self, folder: Path, inline: bool) -> None:
        self.path = folder / "jobs.db"
        self.inline = inline
        shutil.copyfile(_migrated(), self.path)

    def store(self, clock: Clock) -> SqliteStore:
        return SqliteStore(str(self.path), clock=clock, inline=self.inline, synchronous="OFF")

    def dump(self) -> Dump:
        # Not by the stdlib's sqlite3: two SQLite libraries in one process undo each other's file locks.
        connection = apsw.Connection(str(self.path))
        try:
            tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
            return {
                name.removeprefix("detent_"): sorted(connection.execute(f"SELECT * FROM {name}"), key=repr)
                for name in tables
            }
        finally:
            connection.close()

    def close(self) -> None:
        """The file goes with its folder."""


class PostgresPlace:
    """A database of its own on a server that lives as long as the run."""

    def __init__(self, version: str) -> None:
        self.database = house(version).database()

    def store(self, clock: Clock) -> PostgresStore:
        return PostgresStore(self.database.url, clock=clock)

    def dump(self) -> Dump:
        """Without interned names, which are kept even if the act that first used one is undone, and without claims,
        which may name jobs that are no longer leased."""
        kept = ("actors", "claims", "edges")
        dump = self.database.dump().items()
        return {name: rows for name, rows in dump if not name.startswith("lane_") and name not in kept}

    def close(self) -> None:
        self.database.release()


@cache
def _migrated() -> Path:
    folder = mkdtemp(prefix="detent-suite-")
    AT_THE_END.callback(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "empty.db"
    store = SqliteStore(str(path), inline=True, synchronous="OFF")
    store.open_now(CONTRACTS)
    store.close_now()
    return path


PLACES: Mapping[str, Callable[[Path], Place]] = {
    "sqlite-inline": lambda folder: SqlitePlace(folder, inline=True),
    "sqlite-thread": lambda folder: SqlitePlace(folder, inline=False),
    "postgres": lambda folder: PostgresPlace(newest()),
}
_POSTGRES = "postgres-"


def older() -> list[str]:
    """The places on servers that are not the newest."""
    return [_POSTGRES + version for version in versions()[:-1]]


def open_place(name: str, folder: Path) -> Place:
    if name in PLACES:
        return PLACES[name](folder)
    return PostgresPlace(name.removeprefix(_POSTGRES))


def make_engine(place: Place, clock: Clock, contracts: Mapping[str, Contract] = CONTRACTS, **options: Any) -> Engine:
    """Another engine on this place; the caller opens and closes it."""
    return Engine(place.store(clock), contracts, **options)
