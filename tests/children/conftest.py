"""An application on SQLite and on Postgres."""

from collections.abc import AsyncIterator

import pytest

from detent import Detent


@pytest.fixture
async def app(url: str) -> AsyncIterator[Detent]:
    async with Detent(url) as app:
        yield app
