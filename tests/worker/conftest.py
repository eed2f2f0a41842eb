"""An application on its own SQLite file."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from detent import Detent


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Detent]:
    async with Detent(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        yield app
