"""An engine on each store with a fake clock, and an HTTP server that records the requests it gets."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from detent.engine import Engine
from support.clock import FakeClock
from support.stores import Place, make_engine, open_place
from support.webhook_receiver import Receiver

PLACES = ("sqlite-inline", "postgres")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=PLACES)
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


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()
