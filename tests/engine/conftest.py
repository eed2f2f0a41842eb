"""The fixtures of the suite: a settable clock, a place for jobs, an engine opened on it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from detent.engine import Engine

from .clock import FakeClock
from .stores import PLACES, Place, make_engine


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=list(PLACES))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    place = PLACES[request.param](tmp_path)
    yield place
    place.close()


@pytest.fixture
async def engine(place: Place, clock: FakeClock) -> AsyncIterator[Engine]:
    engine = make_engine(place, clock)
    await engine.open()
    yield engine
    await engine.close()
