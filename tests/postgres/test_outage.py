"""The server goes away under load and comes back: nothing is lost, and the workers return by themselves."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest
from servers.databases import migrated
from servers.postgres import NONE, Server, installations

from detent import Detent
from detent.core.errors import StoreUnavailable
from detent.engine import Engine, Submission
from detent.ids import RandomIds
from detent.stores.postgres import PostgresStore

from .fleet import LEASE_SECONDS, Fleet, fleet_on, passed, until
from .outage_app import app

pytestmark = pytest.mark.anyio
VERSIONS = list(installations()) or [NONE]


def stop_fast(server: Server) -> None:
    server.stop("fast")


def stop_immediate(server: Server) -> None:
    server.stop("immediate")


def kill(server: Server) -> None:
    """The postmaster, without a word; its children notice by themselves, and only then may it be started again."""
    assert server.process is not None
    server.process.kill()
    server.process.wait()
    children = server.data / "postmaster.pid"
    assert children.exists(), "a killed postmaster leaves its file behind"


WAYS = {"fast": stop_fast, "immediate": stop_immediate, "kill": kill}


def start_again(server: Server) -> None:
    """Refused as long as children of the killed one still hold its shared memory."""

    def started() -> bool:
        try:
            server.start()
        except RuntimeError:
            return False
        return True

    until(started, "the server starts again")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One that keeps its promises: a commit it answered is on the disk."""
    server = Server(installations()[VERSIONS[-1]]).init().start()
    yield server
    server.remove()


def blank(server: Server, name: str) -> str:
    server.run("createdb", "-h", "127.0.0.1", "-p", str(server.port), "-U", "detent", name)
    return server.url(name)


async def enqueue(url: str, small: int, long: int = 0, seconds: float = 0.0, queue: str = "default") -> None:
    app.url = url
    async with app:
        await app.jobs["small"].using(queue=queue).enqueue_many([{"n": n} for n in range(small)])
        for name in ("long", "long-streams") if long else ():
            await app.jobs[name].enqueue_many([{"seconds": seconds}] * long)


async def submit_through(url: str, stop: asyncio.Event) -> list[str]:
    """Submit small jobs without end, each until it is acknowledged; the ids of those that were."""
    engine = Engine(PostgresStore(url))
    await engine.open()
    ids, acknowledged = RandomIds(), []
    try:
        while not stop.is_set():
            ask = Submission("small", {"n": -1}, id=ids.job(), max_retries=50)
            while not stop.is_set():
                try:
                    await asyncio.wait_for(engine.submit(ask), 15)
                except (StoreUnavailable, TimeoutError):
                    await asyncio.sleep(0.05)
                else:
                    acknowledged.append(ask.id or "")
                    break
            await asyncio.sleep(0.01)
    finally:
        await engine.close()
    return acknowledged


async def prompt_pickup(fleet: Fleet, url: str, tries: int = 7) -> float:
    """The median pickup of single jobs by idle workers: below the floor of a poll only where notifications arrive."""
    for _ in range(tries):
        await enqueue(url, 1, queue="late")
        await asyncio.to_thread(until, fleet.drained, "a job enqueued after the outage is done")
    return median(fleet.pickups())


async def live_through(fleet: Fleet, server: Server, way: str, *, small: int, long: int) -> dict[str, int]:
    """Load, an outage longer than a lease, and the return."""
    await enqueue(fleet.url, small, long, seconds=2 * LEASE_SECONDS)
    fleet.start()
    fleet.start()
    done = asyncio.Event()
    submitting = asyncio.create_task(submit_through(fleet.url, done))
    await asyncio.to_thread(fleet.ready)
    await asyncio.to_thread(until, lambda: fleet.ended() >= small // 4, "a quarter is done")
    held = fleet.one("SELECT count(*) FROM jobs WHERE phase = 'leased' AND job_type LIKE 'long%%'")
    assert held, "long jobs are under way when the server goes"
    await asyncio.to_thread(WAYS[way], server)
    down = passed(LEASE_SECONDS + 0.5)
    await asyncio.to_thread(until, lambda: all(fleet.said("trying again")) and down(), "the outage is noticed")
    await asyncio.to_thread(start_again, server)
    grown = fleet.ended()
    await asyncio.to_thread(until, lambda: fleet.ended() >= grown + 10, "work goes on")
    done.set()
    acknowledged = await submitting
    await asyncio.to_thread(until, fleet.drained, "everything is done")
    found = {row[0] for row in fleet.sql("SELECT id::text FROM jobs")}
    assert acknowledged and not set(acknowledged) - found, "acknowledged and lost"
    return {"way": way, "held": held, "acknowledged": len(acknowledged)} | await fleet.check()  # type: ignore[dict-item]


@pytest.mark.parametrize("way", WAYS)
async def test_workers_live_through_an_outage(way: str, server: Server, tmp_path: Path) -> None:
    url = blank(server, f"outage_{way}")
    await migrated(url)
    with fleet_on(tmp_path, url) as fleet:
        numbers = await live_through(fleet, server, way, small=400, long=2)
        print(numbers)
        assert fleet.losses() == [], "a lease was torn away from a worker that was alive"
        assert all(fleet.said("listening again")), "every worker says that it hears again"
        assert all(fleet.said("answers again")), "every worker says that the store is back"
        assert await prompt_pickup(fleet, url) < 0.25, "picked up by notification, not by a poll"
