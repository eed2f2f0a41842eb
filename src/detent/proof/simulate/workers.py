"""Workers and sweepers in virtual time.

The worker's state machine, engine, heartbeat, runner and context are the real ones; only asyncio is replaced by the
virtual-time loop.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from detent.core.errors import DetentError, StaleLease
from detent.core.job import Micros
from detent.core.outcome import Outcome, Stopped, Waits
from detent.handler.context import Context
from detent.handler.lease import Lease, LeaseClock
from detent.handler.stop_requests import StopKind
from detent.ports.claims import Claimed, ClaimRequest
from detent.ports.listing import WorkerRow
from detent.system.backoff import Sleep
from detent.worker.heartbeat import Heartbeat
from detent.worker.reclaim_grace import ReclaimGrace
from detent.worker.runner import Runner
from detent.worker.state import Batch, HeartbeatAnswer, Interrupt
from detent.worker.sweeper import Sweeper

from .handler import HANDLER, JOB_TYPE
from .loop import MS, SECOND, Flag, Pause, Process, Task

if TYPE_CHECKING:
    from .simulation import Simulation


class SimWorker(Process):
    """The worker's loops without asyncio: they do what the same WorkerState decides."""

    def __init__(self, simulation: "Simulation", name: str) -> None:
        super().__init__(simulation.loop, name)
        self.simulation = simulation
        self.engine = simulation.engine
        self.random = simulation.random_stream(name)
        self.lease = simulation.config.lease_seconds
        self.state = simulation.hooks.state(simulation.config.slots, cancel_grace=4.0, lease_seconds=self.lease)
        self.no_heartbeat_until: Micros = 0
        """Heartbeats are suppressed up to this time (fault "heart")."""
        self._runner = Runner(simulation.config.slots)
        self._running: dict[str, tuple[Task, Context]] = {}
        self._wake_loop = Flag()
        self._notification_pending = False
        self._codes = {contract: c.code("timeout") for contract, c in self.engine.contracts.items()}
        self._lease_clock = LeaseClock(simulation.clock, self.lease)
        self._heartbeat = Heartbeat(
            self.engine, self.state, self._lease_clock, self._row, self._deliver_heartbeat_answer
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
            reading = self._lease_clock.read()
            batch = self.state.next_batch(reading)
            if batch is None:
                if (suspect := self.state.next_suspect()) is not None:
                    self.simulation.on_claimed(self, suspect)
                    self.start(partial(self._execute, suspect))
                self._wake_loop.clear()
                await self._wake_loop
                continue
            request = self._request(batch) if batch.claim_limit else None
            try:
                result = await self.engine.settle_and_claim(batch.settled, request)
            except DetentError:
                pause = self.state.batch_failed(batch)
                if pause is None:
                    break
                await Pause(int(pause * SECOND))
                continue
            self.simulation.on_batch_result(self, batch.settled, result)
            new_lease = partial(Lease, self._lease_clock, reading)
            to_start = self.state.batch_done(result, batch, self.loop.clock.monotonic(), new_lease)
            self._interrupt_all(self.state.pop_superseded())
            for claimed in to_start:
                self.simulation.on_claimed(self, claimed)
                self.start(partial(self._execute, claimed))
        self.kill()
        self.loop.after(SECOND, self.simulation.new_worker)

    def _request(self, batch: Batch) -> ClaimRequest:
        if batch.reclaim and not self.state.reclaim_grace.over(self.loop.clock.monotonic()):
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

    def _deliver_heartbeat_answer(self, answer: HeartbeatAnswer) -> None:
        self.loop.after(self.random.randrange(20 * MS), lambda: self._on_heartbeat_answer(answer))

    def _on_heartbeat_answer(self, answer: HeartbeatAnswer) -> None:
        if self.alive:
            self._interrupt_all(self.state.heartbeat_answered(answer, self.simulation.clock.monotonic()))

    def _interrupt_all(self, interrupts: list[Interrupt]) -> None:
        for interrupt in sorted(interrupts, key=lambda item: item.id):  # they come from sets: fix the order
            task, context = self._running.get(interrupt.id, (None, None))
            if task is None or context is None:
                continue
            context.request_stop(interrupt.kind, interrupt.reason)
            if interrupt.kind is StopKind.END and self.random.random() < 0.5:  # 50 % run on, like handlers in threads
                task.throw(asyncio.CancelledError())
        self._wake_loop.set()

    async def _heartbeat_loop(self) -> None:
        while True:
            await Pause(int(self.state.check_seconds * SECOND))
            if self.loop.time >= self.no_heartbeat_until:
                with suppress(DetentError):
                    await self._heartbeat.send()

    async def _tick_loop(self) -> None:
        while True:
            self._interrupt_all(self.state.tick(self._lease_clock.read(), self._codes))
            await Pause(int(self.state.seconds_until_tick(self.loop.clock.monotonic(), 1.0) * SECOND))

    async def _poll_loop(self) -> None:
        while True:
            await Pause(3 * SECOND)
            self.notify(MS)

    def _row(self) -> WorkerRow:
        now = self.simulation.clock.now()
        work = (self.state.slots, len(self.state.held), "working", now, now, int(self.lease * SECOND))
        return WorkerRow(self.name, "simulated", 1, "0", None, "[]", *work)


class SimSweeper(Process):
    """The real Sweeper, called from the virtual-time loop."""

    def __init__(self, simulation: "Simulation", name: str) -> None:
        super().__init__(simulation.loop, name)
        reclaim_grace = ReclaimGrace(simulation.config.lease_seconds)
        self.sweeper = Sweeper(simulation.engine, simulation.clock, reclaim_grace, interval=2.0)
        self.start(self._sweep_loop)

    async def _sweep_loop(self) -> None:
        while True:
            pause = 2.0
            with suppress(DetentError):
                pause = await self.sweeper.sweep()
            await Pause(max(MS, int(pause * SECOND)))
