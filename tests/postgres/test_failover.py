"""The primary is lost, the standby is promoted: workers on a multi-host URL follow by themselves."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.postgres.fleet import Fleet, enqueue, fleet_on, prompt_pickup, soon, submit_through
from support.servers.databases import migrated, newest
from support.servers.pair import Pair, multi_host
from support.servers.postgres import NONE, installations
from support.servers.proxy import Proxy

pytestmark = pytest.mark.anyio
VERSIONS = list(installations()) or [NONE]
PROMPT_SECONDS = 0.25


@contextmanager
def pair_of(version: str, *, synchronous: bool) -> Iterator[Pair]:
    if version not in installations():
        raise RuntimeError(NONE)
    pair = Pair(installations()[version], synchronous=synchronous)
    try:
        yield pair.start()
    finally:
        pair.remove()


async def fail_over(fleet: Fleet, pair: Pair, lose: Callable[[], None], small: int) -> tuple[list[str], list[str]]:
    """Load, the loss of the primary, the promotion, the end of the load; submits acknowledged before it and after."""
    await enqueue(fleet.url, small, long=2, seconds=4.0)
    fleet.start()
    fleet.start()
    stops = asyncio.Event(), asyncio.Event()
    before = asyncio.create_task(submit_through(fleet.look, stops[0]))
    await soon(fleet.ready, "every worker has introduced itself")
    await soon(lambda: fleet.ended() >= small // 4, "a quarter is done")
    await asyncio.to_thread(lose)
    stops[0].set()
    fleet.look = pair.standby.url()
    acknowledged: list[str] = []
    after = asyncio.create_task(submit_through(fleet.url, stops[1], 60, acknowledged))
    await soon(lambda: all(fleet.log_text("trying again")), "every worker notices")
    await asyncio.to_thread(pair.promote)
    so_far = fleet.ended()
    await soon(lambda: fleet.ended() >= so_far + 10, "work goes on at the new primary", 90)
    await soon(lambda: bool(acknowledged), "a submit is acknowledged by the new primary", 90)
    stops[1].set()
    answers = await before, await after
    await soon(fleet.drained, "everything is done", 150)
    return answers


@pytest.mark.long
@pytest.mark.parametrize(
    "version", [newest(), *(pytest.param(version, marks=pytest.mark.drill) for version in VERSIONS[:-1])]
)
async def test_nothing_acknowledged_is_lost_with_a_synchronous_standby(version: str, tmp_path: Path) -> None:
    """The old primary comes back as a standby first: for a while every host answers, and none can be written."""
    with pair_of(version, synchronous=True) as pair:
        url = multi_host([pair.primary.port, pair.standby.port])
        await migrated(url)
        with fleet_on(tmp_path, url, look=pair.primary.url()) as fleet:
            before, after = await fail_over(fleet, pair, pair.demote, 300)
            assert before and after, "submits were acknowledged on both"
            assert not {*before, *after} - fleet.ids(), "acknowledged and lost"
            numbers = await fleet.check()
            assert numbers["jobs"] >= 304 + len(before) + len(after)
            print(f"Postgres {version}, synchronous: {len(before)} and {len(after)} acknowledged, {numbers}")
            await soon(lambda: all(fleet.log_text("listening again")), "every worker says that it hears again")
            assert await prompt_pickup(fleet, PROMPT_SECONDS) < PROMPT_SECONDS, (
                "picked up by notification, not by a poll"
            )


@pytest.mark.drill
@pytest.mark.parametrize("version", VERSIONS)
async def test_an_asynchronous_standby_is_consistent(version: str, tmp_path: Path) -> None:
    """The last moments may be missing there, whole commits at a time; what is there agrees with itself."""
    with pair_of(version, synchronous=False) as pair:
        url = multi_host([pair.primary.port, pair.standby.port])
        await migrated(url)
        with fleet_on(tmp_path, url, look=pair.primary.url()) as fleet:
            before, after = await fail_over(fleet, pair, lambda: pair.primary.stop("immediate"), 2_000)
            lost = len(set(before) - fleet.ids())
            assert not set(after) - fleet.ids(), "acknowledged by the new primary and lost"
            print(f"Postgres {version}, asynchronous: {lost} of {len(before)} lost, {await fleet.check()}")


@pytest.mark.drill
async def test_workers_leave_a_primary_that_says_nothing(tmp_path: Path) -> None:
    """A partition refuses nobody: connections stay open, new ones are never answered."""
    with pair_of(newest(), synchronous=True) as pair, Proxy(pair.primary.port) as proxy:
        url = multi_host([proxy.port, pair.standby.port])
        await migrated(url)

        def part() -> None:
            proxy.go_silent()
            pair.primary.stop("immediate")

        with fleet_on(tmp_path, url, look=pair.primary.url()) as fleet:
            before, _ = await fail_over(fleet, pair, part, 500)
            assert before and not set(before) - fleet.ids(), "acknowledged and lost"
            print(f"silent primary: {await fleet.check()}")
