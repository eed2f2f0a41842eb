"""An application on a new SQLite file."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from detent import Detent


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'jobs.db'}"


@pytest.fixture
async def app(url: str) -> AsyncIterator[Detent]:
    async with Detent(url) as app:
        yield app


@pytest.fixture
def plain(url: str) -> Iterator[Detent]:
    """For callers without an event loop."""
    app = Detent(url)
    yield app
    app.sync.close()
