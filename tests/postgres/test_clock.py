"""The database's time as a process carries it forward: never ahead of the database's own."""

import asyncio
from typing import Any

import pytest

from detent.client.connect import store_from
from detent.core.contract.builtin import CONTRACTS
from detent.stores.postgres.dialect import DATABASE_CLOCK
from detent.stores.postgres.store import PostgresStore
from support.servers.databases import Database

pytestmark = pytest.mark.anyio
_DELAY_SECONDS = 0.05


class SlowWay:
    """The question is long on its way, as on a busy machine."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def fetchval(self, text: str) -> Any:
        await asyncio.sleep(_DELAY_SECONDS)
        return await self._connection.fetchval(text)


async def test_a_question_that_took_its_time_does_not_put_us_ahead(database: Database) -> None:
    """Ends dated ahead of the database's clock would stand behind the claims that they made room for."""
    store = store_from(database.url)
    assert isinstance(store, PostgresStore)
    await store.open(CONTRACTS, {})
    try:
        async with store._acquired() as connection:
            await store._set_clock(SlowWay(connection))
            ours = store.now()
            theirs = await connection.fetchval(f"SELECT {DATABASE_CLOCK}")
        assert theirs - 10_000_000 < ours <= theirs
    finally:
        await store.close()
