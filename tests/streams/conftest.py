"""A stream harness on each store, with a fake clock, so that no test waits for a timeout."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from support.clock import FakeClock
from support.servers import old_redis
from support.stores import make_engine, open_place
from support.streams.harness import StreamHarness


@pytest.fixture
def redis_url(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """A server of the version that an indirect parameter names; else None, which stands for the shared server."""
    version = getattr(request, "param", None)
    if version is None:
        yield None
    else:
        with old_redis.running(version) as server:
            yield server.url()


@pytest.fixture(params=["sqlite-thread", "postgres"])
async def harness(
    request: pytest.FixtureRequest, tmp_path: Path, redis_url: str | None
) -> AsyncIterator[StreamHarness]:
    place, clock = open_place(request.param, tmp_path), FakeClock()
    engine = make_engine(place, clock)
    await engine.open()
    harness = StreamHarness(engine, clock, redis_url)
    yield harness
    await harness.close()
    await engine.close()
    place.close()
