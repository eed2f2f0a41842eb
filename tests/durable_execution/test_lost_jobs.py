"""An execution that has lost its job runs no further step: another execution may have recorded it."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from detent import Context, Detent, StaleLease, SyncContext
from detent.core.job import Step
from support.waiting import until, within
from support.worker.running import working

pytestmark = pytest.mark.anyio
LEASE = 30.0
CALLS = ("step", "once", "progress", "enqueue", "wait_for", "transaction")


@dataclass
class Loser:
    """Handlers whose first execution stops in the middle, and goes on when its job is lost."""

    app: Detent
    runs: list[int] = field(default_factory=list)
    """The numbers of the executions in which the function of the step ran."""
    refused: list[str] = field(default_factory=list)
    """What raised StaleLease, or returned, in the first execution."""
    running: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def declare(self, **options: Any) -> Any:
        @self.app.job("child")
        async def child() -> None:
            return None

        @self.app.job("plain", **options)
        def plain(ctx: SyncContext, calls: list[str]) -> int:
            if ctx.execution_no == 1:
                self.running.set()
                assert self.go_on.wait(20)
                self._lost(ctx, calls, child)
            return ctx.step("pay", self._pay, ctx.execution_no)

        @self.app.job("loop", **options)
        async def loop(ctx: Context, calls: list[str]) -> int:
            if ctx.execution_no == 1:
                self.running.set()
                await self._ignore_cancel()
                await self._lost_on_the_loop(ctx, calls, child)
            return await ctx.step("pay", self._pay, ctx.execution_no)

        return None

    def _pay(self, number: int) -> int:
        self.runs.append(number)
        return number

    async def _ignore_cancel(self) -> None:
        go_on = asyncio.ensure_future(asyncio.to_thread(self.go_on.wait, 20))
        while not go_on.done():
            with suppress(asyncio.CancelledError):
                await asyncio.shield(go_on)

    def _lost(self, ctx: SyncContext, calls: list[str], child: Any) -> None:
        acts: dict[str, Callable[[], Any]] = {
            "step": lambda: ctx.step("pay", self._pay, 1),
            "once": lambda: ctx.once("only", self._pay, 1),
            "progress": lambda: ctx.progress(0.5),
            "enqueue": lambda: ctx.enqueue(child),
            "wait_for": lambda: ctx.wait_for("go"),
            "transaction": lambda: ctx.transaction().__enter__(),
        }
        for call in calls:
            try:
                self.refused.append(f"{call} returned {acts[call]()}")
            except StaleLease:
                self.refused.append(call)
        self.ended.set()

    async def _lost_on_the_loop(self, ctx: Context, calls: list[str], child: Any) -> None:
        async def enqueue() -> Any:
            return await ctx.enqueue(child)

        acts: dict[str, Callable[[], Awaitable[Any]]] = {
            "step": lambda: ctx.step("pay", self._pay, 1),
            "once": lambda: ctx.once("only", self._pay, 1),
            "progress": lambda: ctx.progress(0.5),
            "enqueue": enqueue,
            "wait_for": lambda: ctx.wait_for("go"),
            "transaction": lambda: ctx.transaction().__aenter__(),
        }
        for call in calls:
            try:
                self.refused.append(f"{call} returned {await acts[call]()}")
            except StaleLease:
                self.refused.append(call)
        self.ended.set()


@pytest.fixture
async def app(tmp_path: Path) -> Any:
    async with Detent(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        yield app


@pytest.fixture
def loser(app: Detent) -> Loser:
    return Loser(app)


@pytest.mark.parametrize("name", ["plain", "loop"])
async def test_a_handler_past_its_timeout_does_not_repeat_the_step_of_its_retry(loser: Loser, name: str) -> None:
    loser.declare(contract="men", timeout=0.1, max_retries=1)
    async with working(loser.app):
        handle = await loser.app.jobs[name].enqueue(calls=list(CALLS))
        assert await within(20, handle.result()) == 2
        loser.go_on.set()
        await until(loser.ended.is_set)
    assert (loser.runs, loser.refused) == ([2], list(CALLS))


@pytest.mark.parametrize("name", ["plain", "loop"])
async def test_a_handler_whose_lease_was_lost_does_not_repeat_the_step(loser: Loser, name: str) -> None:
    """The same worker claims the job again: the old handler is superseded."""
    loser.declare(contract="p3c")
    engine = await loser.app.ready()
    async with working(loser.app, lease_seconds=LEASE):
        handle = await loser.app.jobs[name].enqueue(calls=list(CALLS))
        await until(loser.running.is_set)
        await _end_lease(engine, handle.id)
        await engine.expire()
        assert await within(20, handle.result()) == 2
        loser.go_on.set()
        await until(loser.ended.is_set)
    assert (loser.runs, loser.refused) == ([2], list(CALLS))


@pytest.mark.parametrize("name", ["plain", "loop"])
async def test_after_a_forced_cancel_nothing_more_is_run(loser: Loser, name: str) -> None:
    loser.declare()
    async with working(loser.app, cancel_grace_seconds=0.01, lease_seconds=0.6):
        handle = await loser.app.jobs[name].enqueue(calls=list(CALLS))
        await until(loser.running.is_set)
        await handle.cancel(reason="enough")
        await until(lambda: _is_final(handle))
        loser.go_on.set()
        await until(loser.ended.is_set)
    assert (loser.runs, loser.refused) == ([], list(CALLS))


@pytest.mark.parametrize("name", ["plain", "loop"])
@pytest.mark.parametrize("clock_jump", ["monotonic", "wall"])
async def test_a_process_that_was_stopped_asks_the_store_before_it_runs_a_step(
    loser: Loser, name: str, clock_jump: str
) -> None:
    """Its heartbeat has not noticed yet that another worker took the job and recorded the step."""
    loser.declare(contract="p3c")
    engine = await loser.app.ready()
    clock = StoppableClock()
    async with working(loser.app, lease_seconds=LEASE, clock=clock, slots=1):
        handle = await loser.app.jobs[name].enqueue(calls=["step"])
        await until(loser.running.is_set)
        await _end_lease(engine, handle.id)
        await engine.expire()
        claimed = (await engine.claim(engine.claim_request("other", 1, LEASE)))[0]
        step = Step(handle.id, "pay", "digest", "2", True, claimed.execution_no, engine.store.now())
        assert await engine.store.record_step(step, claimed.token)
        clock.jump(clock_jump, LEASE)
        loser.go_on.set()
        await until(loser.ended.is_set)
    assert (loser.runs, loser.refused) == ([], ["step"])


async def test_a_lease_that_may_be_over_and_is_not_is_extended_and_the_step_runs(loser: Loser) -> None:
    loser.declare(contract="p3c")
    engine = await loser.app.ready()
    clock = StoppableClock()
    async with working(loser.app, lease_seconds=LEASE, clock=clock):
        handle = await loser.app.jobs["plain"].enqueue(calls=[])
        await until(loser.running.is_set)
        await _end_lease(engine, handle.id)
        clock.jump("monotonic", LEASE)
        loser.go_on.set()
        assert await within(20, handle.result()) == 1
    assert loser.runs == [1] and (await engine.jobs.get(handle.id)).execution_no == 1


class StoppableClock:
    """The system clock, to which a test adds the time of a stop."""

    def __init__(self) -> None:
        self._added = {"monotonic": 0.0, "wall": 0.0}

    def jump(self, which: str, seconds: float) -> None:
        self._added[which] += seconds

    def now(self) -> int:
        return time.time_ns() // 1_000 + int(self._added["wall"] * 1_000_000)

    def monotonic(self) -> float:
        return time.monotonic() + self._added["monotonic"]


async def _end_lease(engine: Any, job_id: str) -> None:
    async def act(tx: Any) -> None:
        tx.queries.connection.execute("UPDATE detent_jobs SET lease_until = 1 WHERE id = ?", (job_id,))

    await engine.store.write(act)


async def _is_final(handle: Any) -> bool:
    return (await handle.job()).phase == "final"
