"""Counts of all jobs: exact while counting is fast, shared and reused if it is slow."""

import asyncio
from typing import Any

import pytest

from detent.core.errors import StoreUnavailable
from detent.web.live.job_counts import _SLOW_SECONDS, SharedCounts
from support.web.api import API, Api

pytestmark = pytest.mark.anyio


class SlowCount:
    """A counting query that takes `seconds` and returns how often it was called."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.times, self.fails = seconds, 0, False

    async def __call__(self) -> dict[str, Any]:
        self.times += 1
        number = self.times
        await asyncio.sleep(self.seconds)
        if self.fails:
            raise StoreUnavailable("gone")
        return {"jobs": number}


@pytest.mark.usefixtures("fast_counts")
async def test_a_fast_count_runs_for_every_caller(api: Api) -> None:
    shared, count = SharedCounts(api.app.state.web), SlowCount(0)
    assert [(await shared.get("", count))["jobs"] for _ in range(3)] == [1, 2, 3]


async def test_a_slow_count_is_shared_and_reused(api: Api) -> None:
    shared, count = SharedCounts(api.app.state.web), SlowCount(_SLOW_SECONDS * 2)
    first = asyncio.create_task(shared.get("", count))
    await asyncio.sleep(_SLOW_SECONDS * 1.2)  # longer than the limit for a fast count
    assert [result["jobs"] for result in await asyncio.gather(first, *(shared.get("", count) for _ in range(20)))] == [
        1
    ] * 21
    assert (await shared.get("", count))["jobs"] == 1, "reused"
    assert (await shared.get("tenant acme", count))["jobs"] == 2, "another key"


async def test_a_failed_count_is_not_reused_and_a_cancelled_caller_stops_no_count(api: Api) -> None:
    shared, count = SharedCounts(api.app.state.web), SlowCount(_SLOW_SECONDS * 1.5)
    count.fails = True
    with pytest.raises(StoreUnavailable):
        await shared.get("", count)
    count.fails = False
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(shared.get("", count), 0.01)
    assert (await shared.get("", count))["jobs"] in (2, 3)


@pytest.mark.usefixtures("fast_counts")
async def test_the_latest_count_is_kept_while_the_store_is_down(api: Api) -> None:
    shared, count = SharedCounts(api.app.state.web), SlowCount(0)
    count.fails = True
    assert await shared.latest("", count) is None, "nothing was counted yet"
    count.fails = False
    counted = await shared.latest("", count)
    count.fails = True
    assert counted == {"jobs": 2} and await shared.latest("", count) == counted


@pytest.mark.usefixtures("fast_counts")
async def test_stats_show_a_new_job_at_once(api: Api) -> None:
    for number in range(1, 4):
        await api.submit()
        assert (await api.open.get(f"{API}/stats")).json()["jobs"] == number
