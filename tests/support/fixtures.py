"""Fixtures that several folders of tests use; `tests/conftest.py` imports them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .servers.databases import house, newest


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database, on SQLite and on Postgres."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'jobs.db'}"
        return
    database = house(newest()).database()
    yield database.url
    database.release()
