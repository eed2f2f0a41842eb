"""Where a machine runs: a store on a fake clock, a way to drive coroutines, and a look at the raw tables."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol, TypeVar

import apsw

from detent.core.times import SECOND, from_iso
from detent.engine import Engine
from detent.stores.postgres.store import PostgresStore
from detent.stores.sqlite.store import SqliteStore
from detent.system.run_now import run_now
from support.servers.databases import house, newest

T = TypeVar("T")
ORDER = {"jobs": "id", "events": "job_id, seq", "dead_letters": "id", "signals": "job_id, name"}


class FakeClock:
    """Moves when told to, backwards too."""

    def __init__(self) -> None:
        self.time = self.latest = from_iso("2026-02-25T12:00:00Z", field="now")

    def now(self) -> int:
        return self.time

    def monotonic(self) -> float:
        return self.time / SECOND

    def advance(self, seconds: float) -> None:
        self.time += int(seconds * SECOND)
        self.latest = max(self.latest, self.time)


class CountingIds:
    """The same run draws the same ids, so a failing example fails again. Ids of jobs are UUIDs in the order drawn."""

    def __init__(self) -> None:
        self.drawn = 0

    def job(self) -> str:
        self.drawn += 1
        return f"00000000-0000-7000-8000-{self.drawn:012d}"

    def token(self) -> str:
        self.drawn += 1
        return f"token-{self.drawn:05d}"


class Place(Protocol):
    engine: Engine
    clock: FakeClock

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T: ...

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Every row of the tables named in ORDER, read behind the engine's back."""
        ...

    def close(self) -> None: ...


class SqlitePlace:
    """In memory, on the caller's thread."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = SqliteStore(":memory:", inline=True, clock=self.clock)
        self.engine = Engine(self.store, ids=CountingIds())
        self.run(self.engine.open())

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return run_now(coroutine)

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        async def act(tx: Any) -> dict[str, list[dict[str, Any]]]:
            return {table: _rows(tx.queries.connection, table) for table in ORDER}

        return self.run(self.store.read(act))

    def close(self) -> None:
        self.run(self.engine.close())


def _rows(connection: apsw.Connection, table: str) -> list[dict[str, Any]]:
    cursor = connection.cursor()
    names: list[str] = []
    found = []
    source = {"jobs": "job_list", "events": "event_list"}.get(table, table)
    for row in cursor.execute(f"SELECT * FROM detent_{source} ORDER BY {ORDER[table]}"):
        names = names or [column[0] for column in cursor.get_description()]
        found.append(dict(zip(names, row, strict=True)))
    return found


class PostgresPlace:
    """A database of the test run's own server, on a loop of its own."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self._database = house(newest()).database()
        self._runner = asyncio.Runner()
        self.engine = Engine(PostgresStore(self._database.url, clock=self.clock), ids=CountingIds())
        self.run(self.engine.open())

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(coroutine)

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        found = {table: self._database.named(f"SELECT * FROM {table} ORDER BY {ORDER[table]}") for table in ORDER}
        for event in found["events"]:
            del event["xid"]  # where it stands in the tail
        return found

    def close(self) -> None:
        self.run(self.engine.close())
        self._runner.close()
        self._database.release()


PLACES: Mapping[str, Callable[[], Place]] = {"sqlite": SqlitePlace, "postgres": PostgresPlace}
"""Every store the machines run over; a new one needs the three methods of Place and no other change."""
