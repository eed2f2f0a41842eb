"""The fixtures of the suite: a settable clock, a place for jobs, an engine opened on it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from detent.engine import Engine
from support.clock import FakeClock
from support.stores import PLACES, Place, make_engine, older, open_place

SMOKE = ("test_hot_paths", "test_races")
"""On servers that are not the newest: what leans on the server's own ways. The rest of the suite is a drill there."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "place" not in metafunc.fixturenames:
        return
    smoke = metafunc.module.__name__.rpartition(".")[2] in SMOKE
    marks = [] if smoke else [pytest.mark.drill]
    places = [*PLACES, *(pytest.param(name, marks=marks) for name in older())]
    metafunc.parametrize("place", places, indirect=True)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    place = open_place(request.param, tmp_path)
    yield place
    place.close()


@pytest.fixture
async def engine(place: Place, clock: FakeClock) -> AsyncIterator[Engine]:
    engine = make_engine(place, clock)
    await engine.open()
    yield engine
    await engine.close()
