"""Detent through its public API, on SQLite or Postgres depending on the URL; the worker is a separate process."""

import asyncio
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import asyncpg

from detent import Context, Detent
from detent.core.access import Scope

from .counting import handled, picked_up
from .protocol import PART, STEPS, URL, VARIANT, Peer

SLOTS = {"drain": 1_000, "steps": 500, "pickup": 64}
_LEFT_IN_SQLITE = (
    "SELECT (SELECT count(*) FROM detent_jobs WHERE ready = 1)"
    " + (SELECT count(*) FROM detent_jobs WHERE lease_until IS NOT NULL)"
)
LEFT = "SELECT (SELECT count(*) FROM detent.queue) + (SELECT count(*) FROM detent.lease_list)"
TRUNCATE = (
    "SET search_path = detent; TRUNCATE jobs, events, notes, steps, keys, workers,"
    " queue, timers, claims, deadlines, awaiting_approval"
)


async def step(number: int) -> int:
    return number


def make_app(delays: list[float] | None = None) -> Detent:
    app = Detent(URL)
    if VARIANT == "limited":  # limits that are checked at every claim and never reached
        app.limit(queue="default", concurrency=100_000)
        app.limit(per="tenant", concurrency=100_000)
        app.limit(job_type="noop", rate=(100_000_000, 60))

    @app.job("noop")
    async def noop(ctx: Context) -> None:
        handled()

    @app.job("stepped")
    async def stepped(ctx: Context) -> None:
        for number in range(STEPS):
            await ctx.step("work", step, number)
        handled()

    @app.job("stamp")
    async def stamp(ctx: Context, sent: float) -> None:
        if delays is None:
            picked_up(sent)
        else:
            delays.append(time.monotonic() - sent)

    return app


class DetentPeer(Peer):
    """What both databases have in common."""

    bulk = True
    has_steps = True

    async def open(self) -> None:
        self.delays: list[float] = []
        self.app = make_app(self.delays)
        engine = self.app.make_engine(may_migrate=True)
        await engine.open()
        if VARIANT == "limited":
            await engine.limits.set_quota("default", Scope("bench"), weight=3)
        await engine.close()
        await self.app.open()

    async def enqueue(self, caller: int) -> None:
        await self.app.jobs["noop"].enqueue()

    async def enqueue_batch(self, jobs: int) -> None:
        await self.app.jobs["noop"].enqueue_many([{}] * jobs)

    async def enqueue_with_steps(self, jobs: int) -> None:
        await self.app.jobs["stepped"].enqueue_many([{}] * jobs)

    async def enqueue_stamped(self, sent: float) -> None:
        await self.app.jobs["stamp"].enqueue(sent=sent)

    async def pickup_in_process(self, jobs: int, pause: float) -> list[float]:
        worker = await self.app.worker(slots=SLOTS["pickup"])
        running = asyncio.create_task(worker.run(handle_signals=False))
        warm_up = 3
        self.delays.clear()
        handles = []
        for _ in range(warm_up + jobs):
            await asyncio.sleep(pause)
            handles.append(await self.app.jobs["stamp"].enqueue(sent=time.monotonic()))
        for handle in handles:
            await handle.result(timeout=10)
        worker.stop()
        await running
        return self.delays[warm_up:]

    async def close(self) -> None:
        await self.app.close()

    async def work(self) -> None:
        await make_app().run_worker(slots=SLOTS[PART])


class DetentOnSqlite(DetentPeer):
    """One file, deleted and created again for each measure."""

    path = Path(URL.removeprefix("sqlite:///"))

    async def reset(self) -> None:
        await self.app.close()
        for ending in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + ending).unlink(missing_ok=True)
        await self.app.open()

    def remaining(self) -> int:
        connection = apsw.Connection(str(self.path))
        try:
            return int(connection.execute(_LEFT_IN_SQLITE).fetchall()[0][0])
        finally:
            connection.close()


class DetentOnPostgres(DetentPeer):
    """One database of the private server, truncated for each measure."""

    async def open(self) -> None:
        await super().open()
        self.side_connection: Any = await asyncpg.connect(URL)

    async def reset(self) -> None:
        await self.side_connection.execute(TRUNCATE)

    async def remaining(self) -> int:
        return int(await self.side_connection.fetchval(LEFT))

    async def close(self) -> None:
        with suppress(Exception):
            await self.side_connection.close()
        await super().close()


PEER = DetentOnSqlite if URL.startswith("sqlite") else DetentOnPostgres
