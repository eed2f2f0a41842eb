"""Workers and sweepers in virtual time, and the handler they run.

The worker's state machine, engine, heartbeat, runner and context are the real ones; only asyncio is replaced by the
virtual-time loop.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from detent.core.errors import DetentError, OnceUnfinished, StaleLease, StoreUnavailable
from detent.core.job import Micros
from detent.core.outcome import Outcome, Stopped, Waits
from detent.handler.children import ChildFailed
from detent.handler.context import Context
from detent.handler.handler import Options, inspect_handler
from detent.handler.lease import Lease, LeaseClock
from detent.handler.outcomes import Cancel, Fail, Retry, Snooze, WaitTimeout
from detent.ports.claims import Claimed, ClaimRequest, Extended
from detent.ports.listing import WorkerRow
from detent.system.backoff import Sleep
from detent.worker.heartbeat import Heartbeat
from detent.worker.reclaim_grace import ReclaimGrace
from detent.worker.runner import Runner
from detent.worker.state import Batch, Interrupt
from detent.worker.sweeper import Sweeper

from .children import enqueue_children, wait_for_approval
from .loop import MS, SECOND, Flag, Pause, Process, Task

if TYPE_CHECKING:
    from .simulation import Simulation

JOB_TYPE = "work"
SIGNAL = "go"
TOKEN_FIELD = "told_by"
"""Field of results and step results that holds the token under which the handler ran."""
TOKEN_PREFIX = "told by "
"""Precedes that token in error messages."""
_SLICES = 4
_LONG_SECONDS = 0.5


async def work(
    ctx: Context, plan: list[list[Any]], steps: bool = False, family: int = 0, question: int = 0
) -> dict[str, Any]:
    """The handler. Each execution follows one line of the plan, [act, seconds]; after the last line it
    succeeds, and takes as long as that line.

    steps: record a step before and after the act, and run a `once`. family: enqueue children, this many generations
    deep, and wait for them at the end. question: wait for that many approvals.
    """
    number = ctx.execution_no - 1
    line: list[Any] = plan[number] if number < len(plan) else ["succeed", plan[-1][1] if plan else 0.01]
    act, seconds = line
    result: dict[str, Any] = {TOKEN_FIELD: ctx._claimed.token}
    message = f"{TOKEN_PREFIX}{ctx._claimed.token} in execution {ctx.execution_no}"
    try:
        if steps:
            result["first"] = await ctx.step("first", _record_token(ctx, "first"))
        children = await enqueue_children(ctx, HANDLER, plan, family) if family else []
        slices = _SLICES if steps else 1  # without steps, a handler that a stall interrupts ends right after it
        for number in range(slices):
            pause = Pause(int(seconds * SECOND / slices))
            await (_pause_once(ctx, pause) if steps and number == 0 else pause)
            if ctx.cancelled and act != "ignore":
                raise Cancel(message)
            if steps and seconds > _LONG_SECONDS:  # long enough to lose the lease between two steps
                await ctx.step("slice", _record_token(ctx, f"slice#{number + 1}" if number else "slice"))
        _raise_outcome(act, message)
        if act == "wait":
            await ctx.wait_for(SIGNAL, timeout=20.0)
        if act == "wait long":
            await ctx.wait_for(SIGNAL)
        if act == "sleep":
            await ctx.sleep(3.0)
        if question:
            await wait_for_approval(ctx, question)
        await ctx.gather(*children, return_exceptions=len(plan) % 2 == 0)
        if steps:
            result["last"] = await ctx.step("last", _record_token(ctx, "last"))
    except ChildFailed:
        raise Fail(message, code="CHILD_FAILED") from None
    except (StoreUnavailable, WaitTimeout) as error:
        raise Retry(f"{message}: {type(error).__name__}") from None
    return result


def _raise_outcome(act: str, message: str) -> None:
    if act == "retry":
        raise Retry(message)
    if act == "retry soon":
        raise Retry(message, after=0.5)
    if act == "fail":
        raise Fail(message, code="HOPELESS")
    if act == "snooze":
        raise Snooze(1.0)
    if act == "cancel":
        raise Cancel(message)


def _record_token(ctx: Context, name: str) -> Callable[[], dict[str, str]]:
    """A step function whose result is the token under which it ran."""

    def act() -> dict[str, str]:
        ctx._engine.store.step_called(ctx.job_id, ctx._claimed.token, name)  # type: ignore[attr-defined]
        return {TOKEN_FIELD: ctx._claimed.token}

    return act


async def _pause_once(ctx: Context, pause: Pause) -> None:
    """Run the pause as a `once` and count how often it really ran."""
    effects: Counter[str] = ctx._engine.store.effects  # type: ignore[attr-defined]

    async def act() -> None:
        effects[ctx.job_id] += 1
        await pause

    with suppress(OnceUnfinished):
        await ctx.once("only", act)


HANDLER = inspect_handler(JOB_TYPE, work, Options(), "auto")


class SimWorker(Process):
    """The worker's loops without asyncio: they do what the same WorkerState decides."""

    def __init__(self, simulation: "Simulation", name: str) -> None:
        super().__init__(simulation.loop, name)
        self.simulation = simulation
        self.engine = simulation.engine
        self.random = simulation.random_stream(name)
        self.lease = simulation.config.lease_seconds
        self.state = simulation.hooks.state(simulation.config.slots, cancel_grace=4.0, lease_seconds=self.lease)
        self._reclaim_grace = ReclaimGrace(simulation.clock, self.lease)
        self.no_heartbeat_until: Micros = 0
        """Heartbeats are suppressed up to this time (fault "heart")."""
        self._runner = Runner(simulation.config.slots)
        self._running: dict[str, tuple[Task, Context]] = {}
        self._wake_loop = Flag()
        self._notification_pending = False
        self._codes = {contract: c.code("timeout") for contract, c in self.engine.contracts.items()}
        self._lease_clock = LeaseClock(simulation.clock, self.lease)
        self._heartbeat = Heartbeat(
            self.engine,
            self.lease,
            self._leases,
            self._row,
            self._deliver_heartbeat_answer,
            lease_clock=self._lease_clock,
        )
        for task in (self._settle_and_claim_loop, self._heartbeat_loop, self._tick_loop, self._poll_loop):
            self.start(task)

    def stop(self) -> None:
        """Graceful stop: running handlers have two seconds to end, then their jobs are released."""
        self.state.stop()
        self.loop.after(2 * SECOND, self._release_running)
        self._wake_loop.set()

    def _release_running(self) -> None:
        if self.alive:
            self._interrupt_all(self.state.hand_back_running())

    def notify(self, within: int = 700 * MS) -> None:
        """Notify the worker, after a random delay, that jobs may be claimable; pending notifications are merged."""
        if self.alive and not self.state.wants_jobs and not self._notification_pending:
            self._notification_pending = True
            self.loop.after(self.random.randrange(within), self._on_notification)

    def _on_notification(self) -> None:
        self._notification_pending = False
        self.state.notify_work_available()
        self._wake_loop.set()

    async def _settle_and_claim_loop(self) -> None:
        while not self.state.done:
            self._reclaim_grace.check_clocks()
            batch = self.state.next_batch(self.simulation.clock.monotonic(), may_reclaim=self._reclaim_grace.over)
            if batch is None:
                if (suspect := self.state.next_suspect()) is not None:
                    self.simulation.on_claimed(self, suspect)
                    self.start(partial(self._execute, suspect))
                self._wake_loop.clear()
                await self._wake_loop
                continue
            request = self._request(batch) if batch.claim_limit else None
            new_lease = partial(Lease, self._lease_clock, self._lease_clock.read())
            try:
                result = await self.engine.settle_and_claim(batch.settled, request)
            except DetentError:
                pause = self.state.batch_failed(batch)
                self._reclaim_grace.store_lost()
                if pause is None:
                    break
                await Pause(int(pause * SECOND))
                continue
            self._reclaim_grace.store_back()
            self.simulation.on_batch_result(self, batch.settled, result)
            to_start = self.state.batch_done(result, batch, new_lease)
            self._interrupt_all(self.state.pop_superseded())
            for claimed in to_start:
                self.simulation.on_claimed(self, claimed)
                self.start(partial(self._execute, claimed))
        self.kill()
        self.simulation.on_stopped(self)

    def _request(self, batch: Batch) -> ClaimRequest:
        if batch.reclaim and not self._reclaim_grace.over:
            detail = f"{self.name} reclaims leases during its grace after an outage or a jump of the clock"
            self.simulation.monitor.report("", "lease.early", detail)
        return self.engine.claim_request(
            self.name,
            batch.claim_limit,
            self.lease,
            job_types=frozenset({JOB_TYPE}),
            reclaim=batch.reclaim,
            suspects=batch.may_claim_suspect,
        )

    async def _execute(self, claimed: Claimed) -> None:
        await Pause(self.random.randrange(5 * MS))
        timeout = None if claimed.timeout_ms is None else claimed.timeout_ms / 1_000
        held = self.state.handler_started(claimed.id, self.simulation.clock.monotonic(), timeout)
        if held is None:
            return
        pause: Sleep = lambda seconds: Pause(int(seconds * SECOND))  # noqa: E731
        context = Context(claimed, self.engine, pause=pause, lease=held.lease)
        assert self.loop.current is not None
        self._running[claimed.id] = (self.loop.current, context)
        try:
            contract = self.engine.contract(claimed.contract)
            outcome: Outcome = await self._runner.run(HANDLER, contract, claimed, context)
            if isinstance(outcome, Waits) and self.random.random() < 0.5:
                await self._until_a_child_ended(outcome.wait.children)
        except asyncio.CancelledError:
            outcome = Stopped()
        if self._running.get(claimed.id, (None, None))[1] is context:
            del self._running[claimed.id]
        in_time = self.state.handler_ended(claimed.id, claimed.token, outcome)
        self._wake_loop.set()
        if not in_time and self.state.reports_late(claimed.id, outcome):
            await self._report_late_result(claimed, outcome)

    async def _until_a_child_ended(self, children: Sequence[str]) -> None:
        """Delay a wait for children, as a busy event loop may, until one of them has ended since it was checked."""
        for _ in range(50):
            if not children or self.simulation.monitor.any_ended(children):
                return
            await Pause(100 * MS)

    async def _report_late_result(self, claimed: Claimed, outcome: Outcome) -> None:
        """Offer a result whose job the worker no longer holds; the engine must refuse it unless the token matches."""
        try:
            await self.engine.settle(claimed.id, claimed.token, outcome)
        except StaleLease:
            self.simulation.stale_refused += 1
        except DetentError:
            return

    def _deliver_heartbeat_answer(self, answer: Extended) -> None:
        self.loop.after(self.random.randrange(20 * MS), lambda: self._on_heartbeat_answer(answer))

    def _on_heartbeat_answer(self, answer: Extended) -> None:
        if self.alive:
            self._interrupt_all(self.state.heartbeat_answered(answer, self.simulation.clock.monotonic()))

    def _interrupt_all(self, interrupts: list[Interrupt]) -> None:
        for interrupt in sorted(interrupts, key=lambda item: item.id):  # they come from sets: fix the order
            task, context = self._running.get(interrupt.id, (None, None))
            if task is None or context is None:
                continue
            context.request_stop(interrupt.reason)
            if not interrupt.cooperative and self.random.random() < 0.8:  # 20 % run on, like handlers in threads
                task.throw(asyncio.CancelledError())
        self._wake_loop.set()

    async def _heartbeat_loop(self) -> None:
        turn = 0
        while True:
            await Pause(int(self.lease * SECOND / 6))
            turn += 1
            if self.loop.time < self.no_heartbeat_until or (not self.state.held and turn % 4):
                continue
            try:
                await (self._heartbeat._beat() if turn % 2 else self._heartbeat._check())
            except DetentError:
                continue

    async def _tick_loop(self) -> None:
        while True:
            self._interrupt_all(self.state.tick(self.simulation.clock.monotonic(), self._codes))
            self._reclaim_grace.check_clocks()
            await Pause(int(self.state.seconds_until_tick(self.simulation.clock.monotonic(), 1.0) * SECOND))

    async def _poll_loop(self) -> None:
        while True:
            await Pause(3 * SECOND)
            self.notify(MS)

    def _leases(self) -> dict[str, str]:
        return self.state.leases_to_extend(self.simulation.clock.monotonic(), self.lease)

    def _row(self) -> WorkerRow:
        now = self.simulation.clock.now()
        work = (self.state.slots, len(self.state.held), "working", now, now, int(self.lease * SECOND))
        return WorkerRow(self.name, "simulated", 1, "0", None, "[]", *work)


class SimSweeper(Process):
    """The real Sweeper, called from the virtual-time loop."""

    def __init__(self, simulation: "Simulation", name: str) -> None:
        super().__init__(simulation.loop, name)
        reclaim_grace = ReclaimGrace(simulation.clock, simulation.config.lease_seconds)
        self.sweeper = Sweeper(simulation.engine, reclaim_grace, interval=2.0)
        self.start(self._sweep_loop)

    async def _sweep_loop(self) -> None:
        while True:
            pause = 2.0
            try:
                pause = await self.sweeper.sweep()
            except DetentError:
                self.sweeper.reclaim_grace.store_lost()
            await Pause(max(MS, int(pause * SECOND)))


def count_stale(refused: dict[str, DetentError]) -> int:
    return sum(isinstance(error, StaleLease) for error in refused.values())
