"""The server goes away under load and comes back: nothing is lost, and the workers return by themselves."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from support.postgres.fleet import LEASE_SECONDS, Fleet, enqueue, fleet_on, passed, prompt_pickup, soon, submit_through
from support.servers.databases import migrated, newest
from support.servers.postgres import NONE, Server, installations
from support.servers.proxy import Proxy

pytestmark = pytest.mark.anyio
VERSIONS = list(installations()) or [NONE]
PROMPT_SECONDS = 0.25
"""A poll comes once a second, so its median is half of that; a notification comes at once."""


def kill(server: Server) -> None:
    """The postmaster, without a word; its children notice by themselves."""
    assert server.process is not None
    server.process.kill()
    server.process.wait()


WAYS: dict[str, Callable[[Server], None]] = {
    "fast": lambda server: server.stop("fast"),
    "immediate": lambda server: server.stop("immediate"),
    "kill": kill,
}


async def start_again(server: Server) -> None:
    """Refused as long as children of a killed postmaster hold its shared memory."""

    def started() -> bool:
        try:
            server.start()
        except RuntimeError:
            return False
        return True

    await soon(started, "the server starts again")


@asynccontextmanager
async def durable(version: str) -> AsyncIterator[Server]:
    """A server that keeps its promises: a commit it answered is on the disk.

    It starts and stops in a thread, because several start at once, and connections to the others have a timeout.
    """
    if version not in installations():
        raise RuntimeError(NONE)
    server = Server(installations()[version])
    try:
        yield await asyncio.to_thread(lambda: server.init().start())
    finally:
        await asyncio.to_thread(server.remove)


async def live_through(fleet: Fleet, server: Server, way: str, small: int) -> dict[str, int]:
    """Load, an outage longer than a lease, and the return."""
    await enqueue(fleet.url, small, long=2, seconds=2 * LEASE_SECONDS)
    fleet.start()
    fleet.start()
    done = asyncio.Event()
    submitting = asyncio.create_task(submit_through(fleet.url, done))
    await soon(fleet.ready, "every worker has introduced itself")
    await soon(lambda: fleet.ended() >= small // 4, "a quarter is done")
    held = fleet.one("SELECT count(*) FROM detent.job_list WHERE phase = 'leased' AND job_type LIKE 'long%%'")
    assert held, "long jobs are under way when the server goes"
    await asyncio.to_thread(WAYS[way], server)
    over = passed(LEASE_SECONDS + 0.5)
    await soon(lambda: all(fleet.log_text("trying again")) and over(), "the outage is noticed, every lease has run out")
    await start_again(server)
    so_far = fleet.ended()
    await soon(lambda: fleet.ended() >= so_far + 10, "work goes on")
    done.set()
    acknowledged = await submitting
    await soon(fleet.drained, "everything is done")
    assert acknowledged and not set(acknowledged) - fleet.ids(), "acknowledged and lost"
    return {"held": held, "acknowledged": len(acknowledged)} | await fleet.check()


async def an_outage(version: str, way: str, folder: Path, small: int = 400) -> None:
    async with durable(version) as server:
        await migrated(server.url())
        with fleet_on(folder, server.url()) as fleet:
            numbers = await live_through(fleet, server, way, small)
            print(f"Postgres {version}, {way}: {numbers}")
            assert fleet.losses() == [], "a lease was torn away from a worker that was alive"
            assert all(fleet.log_text("answers again")), "every worker says that the store is back"
            await soon(lambda: all(fleet.log_text("listening again")), "every worker says that it hears again")
            assert await prompt_pickup(fleet, PROMPT_SECONDS) < PROMPT_SECONDS, (
                "picked up by notification, not by a poll"
            )


async def the_first_waits(version: str, folder: Path) -> None:
    """One worker finds its way back a while after the other: by then every lease of it has run out."""
    lease = LEASE_SECONDS + 1
    async with durable(version) as server:
        with Proxy(server.port) as proxy, fleet_on(folder, server.url()) as fleet:
            await migrated(server.url())
            fleet.start(url=server.url().replace(f":{server.port}/", f":{proxy.port}/"), lease=lease)
            await soon(fleet.ready, "the first worker has introduced itself")
            await enqueue(fleet.url, 0, long=3, seconds=2.5 * lease)
            await soon(lambda: len(fleet.executions()) == 6, "it holds every long job")
            fleet.start(lease=lease)
            await soon(fleet.ready, "the second worker has introduced itself")
            proxy.cut()
            await asyncio.to_thread(server.stop, "fast")
            await soon(passed(lease + 0.5), "every lease has run out")
            await start_again(server)
            await enqueue(fleet.url, 20)
            await soon(lambda: fleet.ended("small") == 20, "the second is back at work")
            proxy.open()
            await soon(fleet.drained, "everything is done")
            assert fleet.losses() == [], "a lease was torn away from a worker that was alive"
            assert (await fleet.check())["begun twice"] == 0


@pytest.mark.long
async def test_workers_live_through_outages(tmp_path: Path) -> None:
    """Three servers at once, each stopped in its own way, and a fourth to which one worker returns late."""
    acts: dict[str, Callable[[Path], Awaitable[None]]] = {
        "fast": lambda folder: an_outage(newest(), "fast", folder),
        "immediate": lambda folder: an_outage(newest(), "immediate", folder),
        "kill": lambda folder: an_outage(newest(), "kill", folder),
        "first": lambda folder: the_first_waits(newest(), folder),
    }
    for name in acts:
        (tmp_path / name).mkdir()
    ends = await asyncio.gather(*(act(tmp_path / name) for name, act in acts.items()), return_exceptions=True)
    if failures := [end for end in ends if isinstance(end, Exception)]:
        raise ExceptionGroup("outages with a failure", failures)


@pytest.mark.drill
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("way", WAYS)
async def test_an_outage_under_load(way: str, version: str, tmp_path: Path) -> None:
    await an_outage(version, way, tmp_path, small=4_000)


@pytest.mark.drill
@pytest.mark.parametrize("version", VERSIONS)
async def test_the_first_to_return_waits_for_the_others(version: str, tmp_path: Path) -> None:
    await the_first_waits(version, tmp_path)
