"""The primary is lost, the standby is promoted: workers on a multi-host URL follow by themselves."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from servers.databases import migrated, newest
from servers.pair import Pair, multi_host
from servers.postgres import NONE, installations
from servers.proxy import Proxy

from .fleet import Fleet, enqueue, fleet_on, prompt_pickup, soon, submit_through

pytestmark = pytest.mark.anyio
VERSIONS = list(installations()) or [NONE]


@contextmanager
def pair_of(version: str, *, synchronous: bool) -> Iterator[Pair]:
    if version not in installations():
        raise RuntimeError(NONE)
    pair = Pair(installations()[version], synchronous=synchronous)
    try:
        yield pair.start()
    finally:
        pair.remove()


async def fail_over(fleet: Fleet, pair: Pair, proxy: Proxy | None, small: int) -> list[str]:
    """Load, the loss of the primary, the promotion, and the end of the load; which submits were acknowledged."""
    await enqueue(fleet.url, small, long=2, seconds=4.0)
    fleet.start()
    fleet.start()
    done = asyncio.Event()
    submitting = asyncio.create_task(submit_through(fleet.url, done))
    await soon(fleet.ready, "every worker has introduced itself")
    await soon(lambda: fleet.ended() >= small // 4, "a quarter is done")
    if proxy is None:
        await asyncio.to_thread(pair.primary.stop, "immediate")
    else:
        proxy.go_silent()
    fleet.look = pair.standby.url()
    await soon(lambda: all(fleet.said("trying again")), "every worker notices")
    await asyncio.to_thread(pair.promote)
    so_far = fleet.ended()
    await soon(lambda: fleet.ended() >= so_far + 10, "work goes on at the new primary")
    done.set()
    acknowledged = await submitting
    await soon(fleet.drained, "everything is done")
    return acknowledged


async def test_workers_follow_to_a_synchronous_standby(tmp_path: Path) -> None:
    with pair_of(newest(), synchronous=True) as pair:
        url = multi_host([pair.primary.port, pair.standby.port])
        await migrated(url)
        with fleet_on(tmp_path, url, look=pair.primary.url()) as fleet:
            acknowledged = await fail_over(fleet, pair, None, 300)
            assert acknowledged and not set(acknowledged) - fleet.ids(), "acknowledged and lost"
            assert fleet.one("SELECT count(*) FROM jobs WHERE phase = 'final'") >= 304
            numbers = await fleet.check()
            print(f"synchronous: acknowledged {len(acknowledged)}, {numbers}")
            await soon(lambda: all(fleet.said("listening again")), "every worker says that it hears again")
            p = await prompt_pickup(fleet); print(p)
            assert p < 0.25
