"""An empty migrated database on the newest server, and engines on it with the database's own clock."""

from collections.abc import AsyncIterator, Iterator

import pytest

from detent.engine import Engine
from detent.stores.postgres.store import PostgresStore
from support.servers.databases import Database, house, newest


@pytest.fixture
def database() -> Iterator[Database]:
    database = house(newest()).database()
    yield database
    database.release()


@pytest.fixture
async def engine(database: Database) -> AsyncIterator[Engine]:
    engine = Engine(PostgresStore(database.url))
    await engine.open()
    yield engine
    await engine.close()
