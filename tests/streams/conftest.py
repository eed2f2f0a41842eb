"""A stream harness on each store, with a fake clock, so that no test waits for a timeout."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.clock import FakeClock
from support.stores import make_engine, open_place
from support.streams.harness import StreamHarness


@pytest.fixture(params=["sqlite-thread", "postgres"])
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StreamHarness]:
    place, clock = open_place(request.param, tmp_path), FakeClock()
    engine = make_engine(place, clock)
    await engine.open()
    harness = StreamHarness(engine, clock)
    yield harness
    await harness.close()
    await engine.close()
    place.close()
