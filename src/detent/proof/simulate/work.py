"""Workers in virtual time: the real machine, engine, heart, runner and context; only their tasks are the loop's."""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from detent.core.errors import DetentError, OnceUnfinished, StaleLease, StoreUnavailable
from detent.core.job import Micros
from detent.core.outcome import Outcome, Stopped
from detent.handler.children import ChildFailed
from detent.handler.context import Context
from detent.handler.handler import Options, inspect_handler
from detent.handler.outcomes import Cancel, Fail, Retry, Snooze, WaitTimeout
from detent.ports.claims import Claimed, ClaimRequest, Extended
from detent.ports.listing import WorkerRow
from detent.worker.heartbeat import Heartbeat
from detent.worker.reclaim_grace import ReclaimGrace
from detent.worker.runner import Runner
from detent.worker.state import Interrupt
from detent.worker.sweeper import Sweeper

from .children import asked, children_of
from .loop import MS, SECOND, Flag, Pause, Process, Task

if TYPE_CHECKING:
    from .world import World

JOB_TYPE = "work"
SIGNAL = "go"
_SLICES = 4
_LONG_SECONDS = 0.5


async def work(
    ctx: Context, plan: list[list[Any]], steps: bool = False, family: int = 0, question: int = 0
) -> dict[str, Any]:
    """One execution follows one line of the job's plan, [act, seconds]; past its end it does well at once.

    With steps it records one before its act and one after it, and does something that must not happen twice. With a
    family it has children while it works and waits for them at the end; with a question it asks so many people.
    """
    number = ctx.execution_no - 1
    line: list[Any] = plan[number] if number < len(plan) else ["succeed", 0.01]
    act, seconds = line
    trail: dict[str, Any] = {"told_by": ctx._claimed.token}
    who = f"told by {ctx._claimed.token} in execution {ctx.execution_no}"
    try:
        if steps:
            trail["first"] = await ctx.step("first", _teller(ctx))
        children = await children_of(ctx, HANDLER, plan, family) if family else []
        for number in range(_SLICES):
            part = Pause(int(seconds * SECOND / _SLICES))
            await (_once(ctx, part) if steps and number == 0 else part)
            if ctx.cancelled and act != "ignore":
                raise Cancel("asked to stop")
            if steps and seconds > _LONG_SECONDS:  # long enough to lose the job in between
                await ctx.step("slice", _teller(ctx))
        _say(act, who)
        if act == "wait":
            await ctx.wait_for(SIGNAL, timeout=20.0)
        if act == "wait long":
            await ctx.wait_for(SIGNAL)
        if act == "sleep":
            await ctx.sleep(3.0)
        if question:
            await asked(ctx, question)
        await ctx.gather(*children, return_exceptions=len(plan) % 2 == 0)
        if steps:
            trail["last"] = await ctx.step("last", _teller(ctx))
    except ChildFailed:
        raise Fail(who, code="CHILD_FAILED") from None
    except (StoreUnavailable, WaitTimeout) as error:
        raise Retry(f"{who}: {type(error).__name__}") from None
    return trail


def _say(act: str, who: str) -> None:
    if act == "retry":
        raise Retry(who)
    if act == "retry soon":
        raise Retry(who, after=0.5)
    if act == "fail":
        raise Fail(who, code="HOPELESS")
    if act == "snooze":
        raise Snooze(1.0)
    if act == "cancel":
        raise Cancel("of its own will")


def _teller(ctx: Context) -> Callable[[], dict[str, str]]:
    """A step that says under which token it was done."""
    return lambda: {"told_by": ctx._claimed.token}


async def _once(ctx: Context, work: Pause) -> None:
    """Something that takes a while and must not happen twice."""
    effects: Counter[str] = ctx._engine.store.effects  # type: ignore[attr-defined]

    async def act() -> None:
        effects[ctx.job_id] += 1
        await work

    with suppress(OnceUnfinished):
        await ctx.once("only", act)


HANDLER = inspect_handler(JOB_TYPE, work, Options(), "auto")


class SimWorker(Process):
    """worker.py with its asyncio taken away: the same calls on the same machine, in the same order."""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world.loop, name)
        self.world = world
        self.engine = world.engine
        self.random = world.stream(name)
        self.state = world.hooks.state(world.config.slots, cancel_grace=4.0)
        self.lease = world.config.lease_seconds
        self._runner = Runner(world.config.slots)
        self._running: dict[str, tuple[Task, Context]] = {}
        self._nudge = Flag()
        self._waking = False
        self._reclaim_at: Micros = 0
        self.heart_stands_until: Micros = 0
        self._codes = {contract: c.code("timeout") for contract, c in self.engine.contracts.items()}
        heard = lambda answer: self.loop.after(self.random.randrange(20 * MS), lambda: self._heard(answer))  # noqa: E731
        self._heartbeat = Heartbeat(self.engine, self.lease, self._leases, self._row, heard)
        for task in (self._settle_and_claim_loop, self._beats, self._ticks, self._polls):
            self.start(task)

    def stop(self) -> None:
        """In good order: finish what runs within a grace, then hand back."""
        self.state.stop()
        self.loop.after(2 * SECOND, self._give_up)
        self._nudge.set()

    def _give_up(self) -> None:
        if self.alive:
            self._interrupt_all(self.state.give_up())

    def wake(self, within: int = 700 * MS) -> None:
        """Word of a commit reaches the worker after a while; several are one."""
        if self.alive and not self.state.wants_jobs and not self._waking:
            self._waking = True
            self.loop.after(self.random.randrange(within), self._awake)

    def _awake(self) -> None:
        self._waking = False
        self.state.heard_of_work()
        self._nudge.set()

    async def _settle_and_claim_loop(self) -> None:
        while not self.state.done:
            order = self.state.order()
            if order is None:
                self._nudge.clear()
                await self._nudge
                continue
            request = self._request(order.want) if order.want else None
            try:
                answer = await self.engine.settle_and_claim(order.settled, request)
            except DetentError:
                self.state.batch_failed()
                await Pause(self.random.randrange(50 * MS, 500 * MS))
                continue
            self.world.settled(self, order.settled, answer)
            fresh = self.state.batch_done(answer)
            self._interrupt_all(self.state.superseded())
            for claimed in fresh:
                self.world.granted(self, claimed)
                self.start(partial(self._execute, claimed))
        self.kill()
        self.world.stopped(self)

    def _request(self, want: int) -> ClaimRequest:
        reclaim = self.loop.time >= self._reclaim_at or not self.state.held
        if reclaim:
            self._reclaim_at = self.loop.time + SECOND
        return self.engine.claim_request(self.name, want, self.lease, job_types=frozenset({JOB_TYPE}), reclaim=reclaim)

    async def _execute(self, claimed: Claimed) -> None:
        await Pause(self.random.randrange(5 * MS))
        timeout = None if claimed.timeout_ms is None else claimed.timeout_ms / 1_000
        if not self.state.started(claimed.id, self.world.clock.monotonic(), timeout):
            return
        context = Context(claimed, self.engine, pause=lambda seconds: Pause(int(seconds * SECOND)))
        assert self.loop.current is not None
        self._running[claimed.id] = (self.loop.current, context)
        try:
            contract = self.engine.contract(claimed.contract)
            outcome: Outcome = await self._runner.run(HANDLER, contract, claimed, context)
        except asyncio.CancelledError:
            outcome = Stopped()
        if self._running.get(claimed.id, (None, None))[1] is context:
            del self._running[claimed.id]
        in_time = self.state.ended(claimed.id, claimed.token, outcome)
        self._nudge.set()
        if not in_time and not isinstance(outcome, Stopped):
            await self._tell_late(claimed, outcome)

    async def _tell_late(self, claimed: Claimed, outcome: Outcome) -> None:
        if any(said.id == claimed.id for said in self.state.unsettled()):
            return
        try:
            await self.engine.settle(claimed.id, claimed.token, outcome)
        except StaleLease:
            self.world.stale_refused += 1
        except DetentError:
            return

    def _heard(self, answer: Extended) -> None:
        if self.alive:
            self._interrupt_all(self.state.extended(answer, self.world.clock.monotonic()))

    def _interrupt_all(self, interrupts: list[Interrupt]) -> None:
        for interrupt in sorted(interrupts, key=lambda one: one.id):  # answers are sets; their order must not matter
            task, context = self._running.get(interrupt.id, (None, None))
            if task is None or context is None:
                continue
            context.ask_to_stop(interrupt.why)
            if not interrupt.gentle and self.random.random() < 0.8:  # a thread would run on
                task.throw(asyncio.CancelledError())
        self._nudge.set()

    async def _beats(self) -> None:
        turn = 0
        while True:
            await Pause(int(self.lease * SECOND / 6))
            turn += 1
            if self.loop.time < self.heart_stands_until or (not self.state.held and turn % 4):
                continue
            try:
                await (self._heartbeat._beat() if turn % 2 else self._heartbeat._look())
            except DetentError:
                continue

    async def _ticks(self) -> None:
        while True:
            self._interrupt_all(self.state.ticked(self.world.clock.monotonic(), self._codes))
            deadline = self.state.next_deadline()
            left = 1.0 if deadline is None else deadline - self.world.clock.monotonic()
            await Pause(int(min(1.0, max(0.001, left)) * SECOND))

    async def _polls(self) -> None:
        while True:
            await Pause(3 * SECOND)
            self.wake(MS)

    def _leases(self) -> dict[str, str]:
        return self.state.leases(self.world.clock.monotonic(), self.lease)

    def _row(self) -> WorkerRow:
        now = self.world.clock.now()
        work = (self.state.slots, len(self.state.held), "working", now, now, int(self.lease * SECOND))
        return WorkerRow(self.name, "simulated", 1, "0", None, "[]", *work)


class SimSweeper(Process):
    """The real sweeper, swept by the loop."""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world.loop, name)
        self.sweeper = Sweeper(world.engine, ReclaimGrace(world.clock, world.config.lease_seconds), interval=2.0)
        self.start(self._sweeps)

    async def _sweeps(self) -> None:
        while True:
            pause = 2.0
            try:
                pause = await self.sweeper.sweep()
            except DetentError:
                self.sweeper.reclaim_grace.lost()
            await Pause(max(MS, int(pause * SECOND)))


def stale(refused: dict[str, DetentError]) -> int:
    return sum(isinstance(error, StaleLease) for error in refused.values())
