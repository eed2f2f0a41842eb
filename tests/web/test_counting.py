"""Counts of everything: exact while they are quick, shared where they are slow."""

import asyncio
from typing import Any

import pytest

from detent.core.errors import StoreUnavailable
from detent.web.live.job_counts import _PATIENCE_SECONDS, Shared
from web.conftest import API, Api

pytestmark = pytest.mark.anyio


class Counted:
    """Counts how often it was asked to count, and takes its time."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.times, self.fails = seconds, 0, False

    async def __call__(self) -> dict[str, Any]:
        self.times += 1
        number = self.times
        await asyncio.sleep(self.seconds)
        if self.fails:
            raise StoreUnavailable("gone")
        return {"jobs": number}


async def test_what_is_quick_is_counted_for_everyone(api: Api) -> None:
    shared, count = Shared(api.app.state.web), Counted(0)
    assert [(await shared.told("", count))["jobs"] for _ in range(3)] == [1, 2, 3]


async def test_what_is_slow_is_counted_once_for_all(api: Api) -> None:
    shared, count = Shared(api.app.state.web), Counted(_PATIENCE_SECONDS * 2)
    first = asyncio.create_task(shared.told("", count))
    await asyncio.sleep(_PATIENCE_SECONDS * 1.2)  # now it is known to be slow
    assert [one["jobs"] for one in await asyncio.gather(first, *(shared.told("", count) for _ in range(20)))] == [
        1
    ] * 21
    assert (await shared.told("", count))["jobs"] == 1, "kept"
    assert (await shared.told("tenant acme", count))["jobs"] == 2, "another count"


async def test_a_failed_count_is_not_kept_nor_one_whose_caller_left(api: Api) -> None:
    shared, count = Shared(api.app.state.web), Counted(_PATIENCE_SECONDS * 1.5)
    count.fails = True
    with pytest.raises(StoreUnavailable):
        await shared.told("", count)
    count.fails = False
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(shared.told("", count), 0.01)
    assert (await shared.told("", count))["jobs"] in (2, 3)


async def test_the_numbers_follow_at_once(api: Api) -> None:
    for number in range(1, 4):
        await api.submit()
        assert (await api.open.get(f"{API}/stats")).json()["jobs"] == number
