"""Fixtures: an API over a database of its own, called without a network, and HTTP clients with tokens."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.engine import Engine
from detent.system.clock import SystemClock
from detent.web.app import create_app
from detent.web.http.settings import Settings
from detent.web.live import job_counts
from support.stores import Place, open_place
from support.web.api import Api


@pytest.fixture(params=["sqlite-thread", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    place = open_place(request.param, tmp_path)
    yield place
    place.close()


@pytest.fixture
def fast_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every count is fast, however busy this machine is: it is exact, and waited for."""
    monkeypatch.setattr(job_counts, "_SLOW_SECONDS", float("inf"))


@pytest.fixture
async def api(place: Place) -> AsyncIterator[Api]:
    engine = Engine(place.store(SystemClock()), CONTRACTS)
    await engine.open()
    api = Api(engine, create_app(engine, Settings(open_without_tokens=True, internal=True)), place)
    yield api
    for client in api.clients:
        await client.aclose()
    await api.app.state.web.close()
    await engine.close()
