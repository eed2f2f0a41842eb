"""An application on each store, with a table of the user in the same database."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from detent import Detent
from support.servers.databases import house, newest


class Ledger:
    """The user's table, read with a connection of its own, not through Detent."""

    def __init__(self, run: Callable[..., list[Any]]) -> None:
        self.sql = run
        self.sql("CREATE TABLE IF NOT EXISTS ledger (n integer PRIMARY KEY, what text)")

    def rows(self) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.sql("SELECT n, what FROM ledger ORDER BY n")]


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Callable[..., list[Any]]]]:
    if request.param == "postgres":
        postgres = house(newest()).database()
        yield postgres.url, postgres.sql
        postgres.sql("DROP TABLE IF EXISTS ledger")
        postgres.release()
        return
    path = tmp_path / "jobs.db"

    def sql(statement: str, *values: Any) -> list[Any]:
        connection = apsw.Connection(str(path))
        connection.set_busy_timeout(10_000)
        try:
            return connection.execute(statement, values).fetchall()
        finally:
            connection.close()

    asyncio.run(_opened(f"sqlite:///{path}"))
    yield f"sqlite:///{path}", sql


async def _opened(url: str) -> None:
    async with Detent(url):
        pass


@pytest.fixture
async def app(database: tuple[str, Any]) -> AsyncIterator[Detent]:
    async with Detent(database[0]) as app:
        yield app


@pytest.fixture
def ledger(database: tuple[str, Callable[..., list[Any]]]) -> Ledger:
    return Ledger(database[1])
