"""One wire over each store, with a settable clock: nobody has to wait for a timeout."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from engine.clock import FakeClock
from engine.stores import make_engine, open_place

from .stage import Stage


@pytest.fixture(params=["sqlite-thread", "postgres"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    place, clock = open_place(request.param, tmp_path), FakeClock()
    engine = make_engine(place, clock)
    await engine.open()
    made = Stage(engine, clock)
    yield made
    await made.close()
    await engine.close()
    place.close()
