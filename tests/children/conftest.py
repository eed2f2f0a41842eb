"""An application on SQLite and on Postgres."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from detent import Detent
from support.servers.databases import house, newest


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'jobs.db'}"
        return
    database = house(newest()).database()
    yield database.url
    database.release()


@pytest.fixture
async def app(url: str) -> AsyncIterator[Detent]:
    async with Detent(url) as app:
        yield app
