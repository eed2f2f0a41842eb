"""The worker: claims jobs, runs their handlers in slots, settles the results in batches. `WorkerState` decides."""

import asyncio
import json
import logging
import os
import socket
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from detent.core.errors import DetentError, StaleLease
from detent.core.job import Micros
from detent.core.outcome import NotBound, Outcome, Stopped
from detent.core.times import SECOND
from detent.engine import BatchResult, Engine
from detent.engine.reads.workers import DRAIN
from detent.handler.context import Context
from detent.handler.handler import Handler
from detent.handler.hooks import Hooks
from detent.handler.lease import Lease, LeaseClock
from detent.handler.stop_requests import StopKind
from detent.observability.settings import Settings
from detent.ports.claims import Claimed
from detent.ports.clock import Clock
from detent.ports.ids import Ids
from detent.ports.listing import WorkerRow
from detent.ports.store import Watch
from detent.system.clock import SystemClock
from detent.system.tasks import cancel_and_wait
from detent.version import __version__

from .background import BackgroundServices
from .heartbeat import Heartbeat, LeaseListener
from .loop_watch import LoopWatch
from .reporting import ExecutionReporter, call_lifecycle_hooks
from .runner import Runner, execution_context, outcome_of
from .shutdown import StopSignals, abandon_task
from .slots import Slots
from .state import (
    LEASE_LOST,
    POLL_SECONDS,
    Batch,
    HeartbeatAnswer,
    Interrupt,
    WorkerState,
    cancel_reason,
    seconds_until_due,
)

log = logging.getLogger("detent.worker.worker")
DEFAULT_SLOTS = 64
_SHUTDOWN_SECONDS = 3.0
"""How long a worker that must end waits for a store that does not answer, and for handlers that do not end."""
_IDLE_HORIZON: Micros = 5_000_000


def worker_name(ids: Ids) -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{ids.token()[:6]}"


class Worker:
    """Runs handlers until it is stopped. Claims only jobs of the types it has a handler for.

    `idle` is an asyncio.Event: set while the worker holds no job, settles and claims none, and waits to be notified of
    new jobs. `await worker.idle.wait()` waits until it is ready. An enqueue does not clear it at once: for the end of
    one job, wait for its result.
    """

    new_state: type[WorkerState] = WorkerState
    """Replaced by the simulator, which adds checks and plants bugs."""
    tick_seconds = 0.1
    """How often deadlines are checked for which no timer is set yet."""

    def __init__(
        self,
        engine: Engine,
        handlers: Mapping[str, Handler],
        *,
        queues: frozenset[str] | None = None,
        slots: int = DEFAULT_SLOTS,
        lease_seconds: float | None = None,
        until_idle: bool = False,
        sweep: bool = True,
        clock: Clock | None = None,
        url: str | None = None,
        exclude_contracts: frozenset[str] = frozenset(),
        config: Settings | None = None,
        metrics_port: int | None = None,
        metrics_host: str = "127.0.0.1",
        hooks: Hooks | None = None,
        block_warning_seconds: float = 1.0,
        **limits: Any,
    ) -> None:
        """url: the database, for handlers that run in other processes. limits: fields of WorkerSettings."""
        config = config or Settings()
        settings = config.worker.changed(limits)
        self.engine = engine
        self._hooks = hooks or Hooks()
        self._observer = engine.observer = engine.observer or ExecutionReporter(self._hooks)
        self.handlers = handlers
        self.id = worker_name(engine.ids)
        self.lease_seconds = lease_seconds or engine.contract(None).lease_seconds
        in_flight = engine.store.max_batches_in_flight
        self._clock = clock or SystemClock()
        self._lease_clock = LeaseClock(self._clock, self.lease_seconds)
        self.state = self.new_state(slots, settings.cancel_grace_seconds, in_flight, self.lease_seconds)
        self.grace_seconds = settings.grace_seconds
        self.until_idle = until_idle
        self.done = 0
        self.refused = 0
        self.draining = False
        self._queues = queues
        self._exclude_contracts = exclude_contracts
        self.background = BackgroundServices(
            engine, self._clock, self.state.reclaim_grace, config, metrics_host, metrics_port
        )
        self._sweeper = self.background.sweeper if sweep else None
        self._histograms = self.background.histograms
        self._loop_watch = LoopWatch(
            block_warning_seconds, self._clock, engine.store.now, self._histograms, self._running_jobs
        )
        self._runner = Runner(slots, settings, url)
        self._slots = Slots(slots, self._execute)
        self._running: dict[str, tuple[asyncio.Task[None], Context, Handler]] = {}
        self._state_changed = asyncio.Event()
        self.idle = asyncio.Event()
        self._wants_notifications = asyncio.Event()
        self._waits_for_notification = False
        self._stop_calls = 0
        self._closing = False
        self._started_at = engine.store.now()
        self._timeout_codes = {name: c.code("timeout") for name, c in engine.contracts.items()}

    async def run(self, *, handle_signals: bool = True) -> int:
        """Work until stopped (or idle, with `until_idle`); 0 if every job was settled or handed back."""
        loop = asyncio.get_running_loop()
        signals = StopSignals(loop, self.stop, self._clock, self.grace_seconds) if handle_signals else None
        await call_lifecycle_hooks(self._hooks.worker_start)
        heartbeat = self._heartbeat(loop)
        heartbeat.start()
        self._loop_watch.start()
        helpers = [asyncio.create_task(self._watch()), asyncio.create_task(self._tick())]
        helpers += await self.background.start(sweep=self._sweeper is not None)
        more = range(1, self.state.max_in_flight)
        followers = [asyncio.create_task(self._settle_and_claim_loop(leads=False)) for _ in more]
        try:
            await self._settle_and_claim_loop()
        finally:
            await cancel_and_wait(followers)
            await self._hand_back_remaining()
            await self._cancel_tasks(helpers)
            self._loop_watch.stop()
            await asyncio.to_thread(heartbeat.stop)
            await self._observer.wait_for_hooks(0, _SHUTDOWN_SECONDS)
            await call_lifecycle_hooks(self._hooks.worker_stop, _SHUTDOWN_SECONDS)
            self._runner.close()
            self.background.close()
            if signals is not None:
                signals.restore()
            with suppress(DetentError):
                await self.engine.store.write(lambda tx: tx.workers.drop_worker(self.id))
        return 0 if self.state.done else 1

    def _heartbeat(self, loop: asyncio.AbstractEventLoop, listener: LeaseListener | None = None) -> Heartbeat:
        return Heartbeat(
            self.engine,
            self.state,
            self._lease_clock,
            self.registration_row,
            lambda answer: loop.call_soon_threadsafe(self._on_heartbeat_answer, answer),
            lambda act: loop.call_soon_threadsafe(self._on_command, act),
            listener,
        )

    def registration_row(self) -> WorkerRow:
        state = self.state
        return WorkerRow(
            id=self.id,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            queues=None if self._queues is None else json.dumps(sorted(self._queues)),
            job_types=json.dumps(sorted(self.handlers)),
            slots=state.slots,
            busy=len(state.held) + state.abandoned,
            state="draining" if self.draining else "stopping" if state.stopping else "working",
            started_at=self._started_at,
            seen_at=self._started_at,
            lease=int(self.lease_seconds * 1_000_000),
            blocked=self._loop_watch.report,
        )

    def _running_jobs(self) -> list[tuple["asyncio.Task[None]", Claimed]]:
        return [(task, context._claimed) for task, context, _ in list(self._running.values())]

    async def _hand_back_remaining(self) -> None:
        """run() was cancelled or failed: hand back the jobs the worker still holds, if the store answers."""
        while self.state.in_flight:
            self.state.batch_failed()
        self.state.stop()
        self._hand_back_running()
        with suppress(Exception):
            async with asyncio.timeout(_SHUTDOWN_SECONDS):
                while (batch := self.state.next_batch()) is not None:
                    self.state.batch_done(await self._settle_and_claim(batch), batch)

    async def _cancel_tasks(self, helpers: list[asyncio.Task[None]]) -> None:
        """Cancel every task. A handler that ignores its cancellation is left running; its token is stale by then."""
        self._closing = True
        tasks = [*helpers, *self._slots.tasks]
        for task in tasks:
            task.cancel()
        _, still_running = await asyncio.wait(tasks, timeout=_SHUTDOWN_SECONDS / 3)
        for task in still_running:
            abandon_task(task)
        if still_running:
            log.warning("%d handlers ignored their cancellation and are left running", len(still_running))

    def stop(self) -> None:
        """First call: finish running jobs within the grace. Second call: hand back everything now."""
        self._stop_calls += 1
        if self._stop_calls == 1:
            log.info("stopping: %d jobs are still running", len(self.state.held))
            self.state.stop()
            self._slots.clear()
            for _, context, _ in self._running.values():
                context.request_stop(StopKind.WORKER_STOPS, None)
            asyncio.get_running_loop().call_later(self.grace_seconds, self._hand_back_running)
        else:
            self._hand_back_running()
        self._state_changed.set()

    def drain(self) -> None:
        """Claim nothing more, wait without a limit for the running jobs, then end."""
        self.draining = True
        self.state.stop()
        self._slots.clear()
        self._state_changed.set()

    def _on_command(self, act: str) -> None:
        if act == DRAIN:
            self.drain()
        else:
            self.stop()

    def wake(self, *, notified: bool | None = None) -> None:
        """Jobs may have become claimable."""
        self.state.notify_work_available(notified=notified)
        self._wants_notifications.clear()
        self._waits_for_notification = False
        self.idle.clear()
        self._state_changed.set()

    def _hand_back_running(self) -> None:
        self._interrupt(self.state.hand_back_running())
        self._state_changed.set()

    async def _settle_and_claim_loop(self, *, leads: bool = True) -> None:
        """Settle and claim until the worker is done. Further loops run beside the leading one if the store can."""
        claimed: list[Claimed] = []
        while not self.state.done:
            await self._observer.wait_for_hooks()
            reading = self._lease_clock.read()
            batch = self.state.next_batch(reading)
            if batch is not None:
                self.idle.clear()
            transaction = asyncio.create_task(self._settle_and_claim(batch)) if batch else None
            if batch is None and (suspect := self.state.next_suspect()) is not None:
                log.warning("job %s: its last executions were lost with their workers, it runs alone", suspect.id)
                claimed.append(suspect)
            self._slots.start(claimed)  # after the batch is sent: the handlers run while the store works
            if claimed:
                self._wake_loops()
            claimed = []
            if batch is None or transaction is None:
                await self._wait_for_change(leads)
                continue
            try:
                result = await self._batch_result(transaction, batch)
            except Exception as error:
                pause = self.state.batch_failed(batch)
                if pause is None:
                    log.error("stopping without the store: the leases of %d jobs will expire", len(batch.settled))
                    return
                log.warning("settling and claiming failed, trying again in %.2f s: %s", pause, error)
                await asyncio.sleep(pause)
                continue
            if self.state.store_failing:
                log.info("the store answers again")
            self.done += len(batch.settled) - len(result.refused) - len(result.later)
            for job_id, refusal in result.refused.items():
                self.refused += 1  # other refusals fail the job, which is logged when that is settled
                level = logging.WARNING if isinstance(refusal, StaleLease) else logging.INFO
                log.log(level, "job %s: %s", job_id, refusal)
            if self._sweeper is not None:
                self._sweeper.expect_timeouts(settlement.outcome for settlement in batch.settled)
            new_lease = partial(Lease, clock=self._lease_clock, confirmed=reading)
            claimed = self.state.batch_done(result, batch, self._clock.monotonic(), new_lease)
            self._histograms.record_pickups(claimed, self.engine.store.now())
            self._interrupt(self.state.pop_superseded())
            if not claimed:
                self._wake_loops()

    def _wake_loops(self) -> None:
        """Wake the other loops, and wait for notifications if no more jobs are wanted. Handlers are started first."""
        self._state_changed.set()
        if not self.state.wants_jobs:
            self._wants_notifications.set()

    async def _wait_for_change(self, leads: bool) -> None:
        """Wait until the state changes. With `until_idle`, the leading loop stops the worker when no work is left."""
        self._state_changed.clear()
        self._set_idle()
        if leads and self.until_idle:
            idle = not self.state.busy and await self._no_work_left()
            if not self.state.waits_for_change(idle=idle):
                return
        await self._state_changed.wait()

    async def _batch_result(self, transaction: "asyncio.Task[BatchResult]", batch: Batch) -> BatchResult:
        """The result of a batch. If this task is cancelled, the claimed jobs are still recorded, to be handed back."""
        try:
            return await asyncio.shield(transaction)
        except asyncio.CancelledError:
            with suppress(Exception):
                async with asyncio.timeout(_SHUTDOWN_SECONDS):
                    result = await transaction
                self.state.stop()
                self.state.batch_done(result, batch)
            raise

    async def _settle_and_claim(self, batch: Batch) -> BatchResult:
        if not batch.claim_limit:
            return await self.engine.settle_and_claim(batch.settled, None)
        request = self.engine.claim_request(
            self.id,
            batch.claim_limit,
            self.lease_seconds,
            job_types=frozenset(self.handlers),
            queues=self._queues,
            exclude_contracts=self._exclude_contracts,
            reclaim=batch.reclaim,
            suspects=batch.may_claim_suspect,
        )
        return await self.engine.settle_and_claim(batch.settled, request)

    async def _execute(self, claimed: Claimed, task: asyncio.Task[None]) -> None:
        handler = self.handlers[claimed.job_type]
        timeout = handler.options.timeout if claimed.timeout_ms is None else claimed.timeout_ms / 1_000
        began = self._clock.monotonic()
        held = self.state.handler_started(claimed.id, claimed.token, began, timeout, handler.options.soft_timeout)
        if held is None:
            return
        context = execution_context(handler, claimed, self.engine, held.lease)
        if held.deadline is not None:
            context._deadline_at = self._clock.now() + int((held.deadline - began) * SECOND)
        contract = self.engine.contract(claimed.contract)
        self._running[claimed.id] = (task, context, handler)
        try:
            outcome = await self._runner.run(handler, contract, claimed, context)
        except asyncio.CancelledError as cancelled:
            if self._closing:
                raise
            # Cancelled by the worker, or by code inside the handler: the latter is a failure of the job.
            outcome = Stopped() if task.cancelling() else outcome_of(cancelled, handler, contract.codes)
        while task.cancelling():  # otherwise the next job in this slot would look cancelled
            task.uncancel()
        if self._running.get(claimed.id, (None, None))[1] is context:
            del self._running[claimed.id]
        if isinstance(outcome, NotBound):
            log.warning("job %s: the code of this worker cannot run it: %s", claimed.id, outcome.failure.message)
        self._histograms.record_execution(claimed, self._clock.monotonic() - began)
        in_time = self.state.handler_ended(claimed.id, claimed.token, outcome)
        self._state_changed.set()
        if not in_time and self.state.reports_late(claimed.id, outcome):
            await self._report_late_result(claimed, outcome)

    async def _report_late_result(self, claimed: Claimed, outcome: Outcome) -> None:
        """Settle a job that was taken from this worker: the engine refuses it and writes the note of the refusal."""
        self.refused += 1
        try:
            await self.engine.settle(claimed.id, claimed.token, outcome)
        except Exception as refusal:
            log.info("job %s: its late result was dropped: %s", claimed.id, refusal)

    def _interrupt(self, interrupts: Iterable[Interrupt]) -> None:
        for interrupt in interrupts:
            task, context, handler = self._running.get(interrupt.id, (None, None, None))
            if task is None or context is None or handler is None:
                self._slots.drop(interrupt.id)
                continue
            cancel = interrupt.kind is StopKind.CANCEL
            context.request_stop(interrupt.kind, cancel_reason(interrupt.reason) if cancel else interrupt.reason)
            if interrupt.kind is not StopKind.END:
                continue
            level = logging.WARNING if interrupt.reason == LEASE_LOST else logging.INFO
            log.log(level, "job %s: %s, its handler is being stopped", interrupt.id, interrupt.reason)
            if handler.mode != "thread":  # a thread runs on in its slot, with a stale token; a process is killed
                task.cancel()
        if self.state.finished:
            self._state_changed.set()

    def _on_heartbeat_answer(self, answer: HeartbeatAnswer) -> None:
        self._interrupt(self.state.heartbeat_answered(answer, self._clock.monotonic()))
        self._state_changed.set()

    async def _tick(self) -> None:
        """One timer for the deadlines of all jobs."""
        while True:
            self._loop_watch.tick()
            self._interrupt(self.state.tick(self._lease_clock.read(), self._timeout_codes))
            await asyncio.sleep(self.state.seconds_until_tick(self._clock.monotonic(), self.tick_seconds))

    async def _watch(self) -> None:
        """While slots are free, wait for a notification of new work, at most until the next poll."""
        watch: Watch | None = None
        while True:
            notified = None
            try:
                watch = watch or self.engine.store.watch()
                await self._wants_notifications.wait()
                seconds = await self._seconds_until_due()
                self._start_waiting_for_notification()
                notified = await watch.changed(seconds)
            except Exception as error:
                log.warning("waiting for notifications failed, polling every %g s: %s", POLL_SECONDS, error)
                await asyncio.sleep(POLL_SECONDS)
            self.wake(notified=notified)

    def _start_waiting_for_notification(self) -> None:
        """`idle` is set only if the wait that follows suspends: a notification may have arrived before it."""
        self._waits_for_notification = True
        asyncio.get_running_loop().call_soon(self._set_idle)

    def _set_idle(self) -> None:
        if self._waits_for_notification and self.state.idle:
            self.idle.set()

    async def _seconds_until_due(self) -> float:
        due: int | None = await self.engine.store.read(lambda tx: tx.due.next_due())
        opens = self.engine.store.claim_limits.opens_at
        return seconds_until_due((due, opens), self.engine.store.now(), POLL_SECONDS)

    async def _no_work_left(self) -> bool:
        types = list(self.handlers)
        if self.engine.store.claim_limits.held_back:
            return False
        try:
            return not await self.engine.store.read(lambda tx: tx.due.any_leased_or_due(types, _IDLE_HORIZON))
        except DetentError as error:
            log.warning("checking for remaining work failed: %s", error)
            return False
