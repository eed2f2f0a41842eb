"""Postgres when all of its processes are killed: the log is replayed, and every acknowledged commit is there.

The server runs with its own defaults for fsync and wal_sync_method. `detent doctor` names a server that would not pass.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from random import Random
from typing import Any

import psycopg
import pytest

from detent.cli.diagnose.database import describe
from detent.core.errors import StoreUnavailable
from detent.core.job import Failure, Step
from detent.core.outcome import Failed, Outcome, Succeeded
from detent.engine import Engine, Settlement, Submission
from detent.ports.claims import Claimed
from detent.proof.verify.verify import verify
from detent.stores.postgres.store import PostgresStore
from support.servers.databases import SEARCH_DETENT, migrated, newest
from support.servers.postgres import NONE, Server, installations
from support.waiting import until_now

CLIENTS = 6
SETTINGS = ("fsync", "full_page_writes", "synchronous_commit")


@contextlib.contextmanager
def as_shipped(**settings: str) -> Iterator[Server]:
    """A server whose settings for durability are the defaults of Postgres, but for these."""
    if newest() not in installations():
        raise RuntimeError(NONE)
    server = Server(installations()[newest()], settings)
    del server.settings["fsync"]
    try:
        yield server.init().start()
    finally:
        server.remove()


class Client:
    """Submits, claims, records steps and settles, and writes down what was acknowledged."""

    def __init__(self, engine: Engine, number: int, random: Random) -> None:
        self.engine, self.name, self.random = engine, f"client {number}", random
        self.submitted: set[str] = set()
        self.steps: set[tuple[str, str]] = set()
        self.ended: dict[str, str] = {}
        self.held: list[Claimed] = []

    async def run(self) -> None:
        """Until the server is gone: the outcome of the last call is unknown."""
        calls = (self._submit, self._claim, self._record, self._settle)
        with contextlib.suppress(StoreUnavailable):
            while True:
                await self.random.choice(calls)()

    async def _submit(self) -> None:
        submissions = [Submission("work", {"text": "x" * self.random.choice((10, 3_000))})] * self.random.choice((1, 5))
        self.submitted.update(one.job.id for one in await self.engine.jobs.submit_many(submissions))

    async def _claim(self) -> None:
        request = self.engine.claim_request(self.name, 4, 600.0)
        self.held += (await self.engine.settle_and_claim([], request)).claimed

    async def _record(self) -> None:
        if not self.held:
            return
        claimed = self.random.choice(self.held)
        now = self.engine.store.now()
        step = Step(claimed.id, f"step {self.random.randrange(4)}", "", "1", True, claimed.execution_no, now)
        if await self.engine.store.record_step(step, claimed.token):
            self.steps.add((step.job_id, step.name))

    async def _settle(self) -> None:
        batch, self.held = self.held[:3], self.held[3:]
        outcomes: list[Outcome] = [Succeeded('"done"'), Failed(Failure("NO", "no", retryable=False))]
        settlements = [
            Settlement(claimed.id, claimed.token, claimed.contract, self.random.choice(outcomes), claimed=claimed)
            for claimed in batch
        ]
        done = await self.engine.settle_and_claim(settlements, None)
        unsettled = done.refused.keys() | {one.id for one in done.later}
        self.ended |= {
            one.id: "succeeded" if isinstance(one.outcome, Succeeded) else "failed"
            for one in settlements
            if one.id not in unsettled
        }


async def one_round(server: Server, random: Random) -> list[str]:
    """Load, kill -9 of all processes of the server, restart: what was acknowledged and is lost."""
    engine = Engine(PostgresStore(server.url()))
    await engine.open()
    clients = [Client(engine, number, random) for number in range(CLIENTS)]
    tasks = [asyncio.create_task(client.run()) for client in clients]
    await asyncio.sleep(0.1 + random.random() * 0.5)  # the moment is the point of the test, nothing is waited for
    await asyncio.to_thread(server.kill)
    await asyncio.gather(*tasks)
    await engine.close()
    await asyncio.to_thread(server.start)
    return list(lost(server, clients))


def lost(server: Server, clients: list[Client]) -> Iterator[str]:
    with psycopg.connect(server.url(), options=SEARCH_DETENT) as connection:
        statuses = dict(connection.execute("SELECT id::text, status FROM detent.job_list").fetchall())
        steps = set(connection.execute("SELECT job_id::text, name FROM detent.steps").fetchall())
    for client in clients:
        yield from (f"job {job_id} is lost" for job_id in client.submitted - statuses.keys())
        yield from (f"step {step} is lost" for step in client.steps - steps)
        for job_id, status in client.ended.items():
            if statuses.get(job_id) != status:
                yield f"job {job_id} is {statuses.get(job_id)}, it was {status}"


async def kill_often(rounds: int, seed: int = 1) -> dict[str, int]:
    random = Random(seed)
    with as_shipped() as server:
        await migrated(server.url())
        for number in range(rounds):
            assert await one_round(server, random) == [], f"round {number}"
        engine = Engine(PostgresStore(server.url()))
        await engine.open()
        try:
            report = await verify(engine.store)
        finally:
            await engine.close()
        assert (server.folder / "log").read_text().count("redo starts") >= rounds // 2, "the log was replayed"
    assert report.ok, report.violations[:5]
    return {"rounds": rounds, "jobs": report.jobs, "events": report.events}


@pytest.mark.long
@pytest.mark.anyio
async def test_no_acknowledged_commit_is_lost_when_the_cluster_is_killed() -> None:
    numbers = await kill_often(4)
    assert numbers["jobs"] > 100


@pytest.mark.long
@pytest.mark.anyio
async def test_a_server_that_acknowledges_before_it_writes_is_found() -> None:
    """The planted bug: without synchronous_commit, commits of the last moments were only in shared memory."""
    random = Random(2)
    with as_shipped(synchronous_commit="off") as server:
        await migrated(server.url())
        for _ in range(8):
            if await one_round(server, random):
                return
    raise AssertionError("8 rounds without synchronous_commit lost nothing")


@pytest.mark.drill
@pytest.mark.anyio
async def test_a_hundred_kills_of_the_cluster() -> None:
    print(await kill_often(100))


def test_the_doctor_names_settings_that_lose_commits() -> None:
    def durability() -> Any:
        return describe(server.url())

    with as_shipped() as server, psycopg.connect(server.url(), autocommit=True) as connection:
        assert durability().durable and "fsync on every commit" in durability().durability
        for setting in SETTINGS:
            connection.execute(f"ALTER SYSTEM SET {setting} = off")  # type: ignore[arg-type]
            connection.execute("SELECT pg_reload_conf()")
            wait_for_setting(server.url(), setting, "off")
            database = durability()
            assert not database.durable and f"{setting} = off" in database.durability
            assert [other for other in SETTINGS if other in database.durability] == [setting]
            connection.execute(f"ALTER SYSTEM RESET {setting}")  # type: ignore[arg-type]
            connection.execute("SELECT pg_reload_conf()")
            wait_for_setting(server.url(), setting, "on")


def wait_for_setting(url: str, setting: str, value: str) -> None:
    def is_shown() -> bool:
        with psycopg.connect(url) as connection:
            return connection.execute(f"SHOW {setting}").fetchall() == [(value,)]  # type: ignore[arg-type]

    until_now(is_shown)
