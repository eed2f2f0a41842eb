"""When a batch of results cannot be stored: each is tried alone, and only the culprit is refused."""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from detent.core.errors import DetentError, InvalidInput, StoreRefused
from detent.core.job import Micros
from detent.core.outcome import Outcome, Stopped
from detent.engine import BatchResult, Engine, Settlement
from detent.engine.reads.workers import DRAIN
from detent.handler.context import Context
from detent.handler.handler import Handler
from detent.observability.settings import Settings
from detent.ports.claims import Claimed, ClaimRequest, Extended
from detent.ports.clock import Clock
from detent.ports.listing import WorkerRow
from detent.system.clock import SystemClock

from .background import BackgroundServices
from .heartbeat import Heartbeat, LeaseListener
from .registration import registration_row, worker_name
from .runner import Runner, outcome_of
from .shutdown import StopSignals, abandon
from .slots import Slots
from .state import Batch, Interrupt, WorkerState, reason_of

UNWRITABLE_ERRORS = (StoreRefused, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors that come from what is to be written, not from the store's state: saying it again cannot help."""


async def settle_individually(engine: Engine, settled: Sequence[Settlement]) -> BatchResult:
    """Somebody's outcome stops the whole batch: the others are settled, the culprit is refused."""
    answer = BatchResult()
    for said in settled:
        try:
            await engine.settle(said.id, said.token, said.outcome)
        except DetentError as error:
            answer.refused[said.id] = error
        except UNWRITABLE_ERRORS as error:
            told = f"its outcome cannot be stored: {type(error).__name__}: {error}"
            answer.refused[said.id] = InvalidInput(told, code="OUTCOME_INVALID")
    return answer


log = logging.getLogger("detent.worker")
DEFAULT_SLOTS = 64
_POLL_SECONDS = 1.0
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0
_LAST_WORD_SECONDS = 3.0
"""How long a worker that must end waits for a store that does not answer, and for handlers that do not."""
_IDLE_HORIZON: Micros = 5_000_000


class Worker:
    """Runs the handlers it knows until it is told to stop."""

    def __init__(
        self,
        engine: Engine,
        handlers: Mapping[str, Handler],
        *,
        queues: frozenset[str] | None = None,
        slots: int = DEFAULT_SLOTS,
        lease_seconds: float | None = None,
        grace_seconds: float = 10.0,
        cancel_grace_seconds: float = 30.0,
        until_idle: bool = False,
        sweep: bool = True,
        clock: Clock | None = None,
        processes: int | None = None,
        exclude_contracts: frozenset[str] = frozenset(),
        config: Settings | None = None,
        metrics_port: int | None = None,
        metrics_host: str = "127.0.0.1",
    ) -> None:
        self.engine = engine
        self.handlers = handlers
        self.id = worker_name(engine.ids)
        self.state = WorkerState(slots, cancel_grace_seconds, engine.store.max_batches_in_flight)
        self.lease_seconds = lease_seconds or engine.contract(None).lease_seconds
        self.grace_seconds = grace_seconds
        self.until_idle = until_idle
        self.done = 0
        self.refused = 0
        self.draining = False
        self._queues = queues
        self._excluded = exclude_contracts
        self._clock = clock or SystemClock()
        self.background = BackgroundServices(
            engine, self._clock, self.lease_seconds, config or Settings(), metrics_host, metrics_port
        )
        self._reclaim_grace = self.background.reclaim_grace
        self._sweeper = self.background.sweeper if sweep else None
        self._histograms = self.background.histograms
        self._runner = Runner(slots, processes)
        self._slots = Slots(slots, self._execute)
        self._running: dict[str, tuple[asyncio.Task[None], Context, Handler]] = {}
        self._nudge = asyncio.Event()
        self._idle = asyncio.Event()
        self._stops = 0
        self._given_up = False
        self._quiet = False
        self._closing = False
        self._reclaimed_at = float("-inf")
        self._word = False
        """We were woken by word of new work, not by the clock."""
        self._started_at = engine.store.now()
        self._timeout_codes = {name: c.code("timeout") for name, c in engine.contracts.items()}

    async def run(self, *, handle_signals: bool = True) -> int:
        """Work until stopped (or idle, if asked); 0 when everything was handed back in good order."""
        loop = asyncio.get_running_loop()
        signals = StopSignals(loop, self.stop, self._clock) if handle_signals else None
        heartbeat = self._heartbeat(loop)
        heartbeat.start()
        helpers = [asyncio.create_task(self._watch()), asyncio.create_task(self._tick())]
        helpers += await self.background.start(sweep=self._sweeper is not None)
        more = range(1, self.state.max_in_flight)
        followers = [asyncio.create_task(self._settle_and_claim_loop(leads=False)) for _ in more]
        try:
            await self._settle_and_claim_loop()
        finally:
            for follower in followers:
                follower.cancel()
            await asyncio.gather(*followers, return_exceptions=True)
            await self._hand_back_the_rest()
            await self._end(helpers)
            await asyncio.to_thread(heartbeat.stop)
            self._runner.close()
            self.background.close()
            if signals is not None:
                signals.restore()
            with suppress(DetentError):
                await self.engine.store.write(lambda tx: tx.drop_worker(self.id))
        return 0 if self.state.done else 1

    def _heartbeat(self, loop: asyncio.AbstractEventLoop, keeper: LeaseListener | None = None) -> Heartbeat:
        return Heartbeat(
            self.engine,
            self.lease_seconds,
            lambda: self.state.leases(self._clock.monotonic(), self.lease_seconds),
            self._row,
            lambda answer: loop.call_soon_threadsafe(self._heard, answer),
            keeper,
            lambda act: loop.call_soon_threadsafe(self._ordered, act),
        )

    async def _hand_back_the_rest(self) -> None:
        """run() was cancelled or broke off: what is still ours goes back, if the store takes it."""
        while self.state.in_flight:
            self.state.batch_failed()
        self.state.stop()
        self._give_up()
        with suppress(Exception):
            async with asyncio.timeout(_LAST_WORD_SECONDS):
                while (order := self.state.order()) is not None:
                    self.state.batch_done(await self._settle_and_claim(order), order)

    async def _end(self, helpers: list[asyncio.Task[None]]) -> None:
        """End every task; a handler that refuses to be cancelled is left behind, fenced."""
        self._closing = True
        tasks = [*helpers, *self._slots.tasks]
        for task in tasks:
            task.cancel()
        _, stubborn = await asyncio.wait(tasks, timeout=_LAST_WORD_SECONDS / 3)
        for task in stubborn:
            abandon(task)
        if stubborn:
            log.warning("%d handlers did not end when they were stopped and are left behind", len(stubborn))

    def stop(self) -> None:
        """Once: finish what runs, within the grace. Twice: hand everything back now."""
        self._stops += 1
        if self._stops == 1:
            log.info("stopping: %d jobs are still running", len(self.state.held))
            self.state.stop()
            self._slots.clear()
            asyncio.get_running_loop().call_later(self.grace_seconds, self._give_up)
        else:
            self._give_up()
        self._nudge.set()

    def drain(self) -> None:
        """Claim nothing more, let what runs come to its end however long it takes, then end."""
        self.draining = True
        self.state.stop()
        self._slots.clear()
        self._nudge.set()

    def _ordered(self, act: str) -> None:
        if act == DRAIN:
            self.drain()
        else:
            self.stop()

    def wake(self) -> None:
        """Something may have become claimable."""
        self.state.heard_of_work()
        self._idle.clear()
        self._nudge.set()

    def _give_up(self) -> None:
        self._given_up = True
        self._interrupt(self.state.give_up())
        self._nudge.set()

    async def _settle_and_claim_loop(self, *, leads: bool = True) -> None:
        """Settle and claim until nothing is left to do; others run beside the one that leads if the store can."""
        pause = _FIRST_PAUSE_SECONDS
        claimed: list[Claimed] = []
        while not self.state.done:
            order = self.state.order()
            flight = asyncio.create_task(self._settle_and_claim(order)) if order else None
            self._slots.start(claimed)  # after the order is on its way: they run while the store works
            if claimed:
                self._look_round()
            claimed = []
            if order is None or flight is None:
                await self._rest(leads)
                continue
            try:
                answer = await self._landed(flight, order)
            except Exception as error:
                self.state.batch_failed(order)
                self._reclaim_grace.lost()
                if self._given_up and pause >= _LAST_WORD_SECONDS / 4:
                    log.error("stopping without the store: %d jobs are left to their leases", len(order.settled))
                    return
                log.warning("the store did not take our work, trying again in %.2f s: %s", pause, error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
                continue
            self._reclaim_grace.back()
            if pause > _FIRST_PAUSE_SECONDS:
                log.info("the store answers again")
            pause = _FIRST_PAUSE_SECONDS
            self.done += len(order.settled) - len(answer.refused) - len(answer.later)
            for job_id, refusal in answer.refused.items():
                self.refused += 1
                log.warning("job %s: %s", job_id, refusal)
            if self._sweeper is not None:
                self._sweeper.expect(said.outcome for said in order.settled)
            claimed = self.state.batch_done(answer, order)
            self._histograms.picked_up(claimed, self.engine.store.now())
            self._interrupt(self.state.superseded())
            if not claimed:
                self._look_round()

    def _look_round(self) -> None:
        """The other loops look again; who has had enough listens. Called after handlers are started: they go first."""
        self._nudge.set()
        if not self.state.wants_jobs:
            self._idle.set()

    async def _rest(self, leads: bool) -> None:
        """Until something happens; or, if asked, the end of work when nothing is left to wait for."""
        self._nudge.clear()
        if not leads:
            await self._nudge.wait()
        elif not self.until_idle or self.state.held or self.state.in_flight or not await self._nothing_left():
            self._quiet = False
            await self._nudge.wait()
        elif self._quiet and not self.state.wants_jobs:
            self.state.stop()
        else:  # what became claimable before we looked is found by one more claim
            self._quiet = self.state.wants_jobs = True

    async def _landed(self, flight: "asyncio.Task[BatchResult]", order: Batch) -> BatchResult:
        """An order's end, even if we are cancelled meanwhile: a claim nobody heard of would be lost time."""
        try:
            return await asyncio.shield(flight)
        except asyncio.CancelledError:
            with suppress(Exception):
                answer = await asyncio.wait_for(flight, _LAST_WORD_SECONDS)
                self.state.stop()
                self.state.batch_done(answer, order)
            raise

    async def _settle_and_claim(self, order: Batch) -> BatchResult:
        try:
            return await self.engine.settle_and_claim(order.settled, self._request(order.want) if order.want else None)
        except UNWRITABLE_ERRORS as error:
            if not order.settled:
                raise
            log.error("one of %d results cannot be stored (%s); each is tried alone", len(order.settled), error)
            self.state.heard_of_work()
            return await settle_individually(self.engine, order.settled)

    def _request(self, want: int) -> ClaimRequest:
        """Expired leases of others are looked for now and then; rather not while a new job waits to be started."""
        now = self._clock.monotonic()
        every = min(_POLL_SECONDS / 2, self.lease_seconds / 3)
        since = now - self._reclaimed_at
        reclaim = self._reclaim_grace.over and (since >= 2 * every or (since >= every and not self._word))
        if reclaim:
            self._reclaimed_at = now
        return self.engine.claim_request(
            self.id,
            want,
            self.lease_seconds,
            job_types=frozenset(self.handlers),
            queues=self._queues,
            exclude_contracts=self._excluded,
            reclaim=reclaim,
        )

    async def _execute(self, claimed: Claimed, task: asyncio.Task[None]) -> None:
        handler = self.handlers[claimed.job_type]
        timeout = handler.options.timeout if claimed.timeout_ms is None else claimed.timeout_ms / 1_000
        began = self._clock.monotonic()
        if not self.state.started(claimed.id, began, timeout):
            return
        options = handler.options
        context = Context(claimed, self.engine, options.park_seconds, strict_steps=options.strict_steps)
        contract = self.engine.contract(claimed.contract)
        self._running[claimed.id] = (task, context, handler)
        try:
            outcome = await self._runner.run(handler, contract, claimed, context)
        except asyncio.CancelledError as cancelled:
            if self._closing:
                raise
            # Stopped by us, or cancelled by something inside the handler: then that is its failure.
            outcome = Stopped() if task.cancelling() else outcome_of(cancelled, handler, contract.codes)
        while task.cancelling():  # or the next job in this slot would look cancelled
            task.uncancel()
        if self._running.get(claimed.id, (None, None))[1] is context:
            del self._running[claimed.id]
        self._histograms.executed(claimed, self._clock.monotonic() - began)
        in_time = self.state.ended(claimed.id, claimed.token, outcome)
        self._nudge.set()
        if not in_time and not isinstance(outcome, Stopped):
            await self._tell_late(claimed, outcome)

    async def _tell_late(self, claimed: Claimed, outcome: Outcome) -> None:
        """A result of a job that was taken from us is refused and noted; nothing else would tell of it."""
        if any(said.id == claimed.id for said in self.state.unsettled()):
            return  # what we ourselves said in its place goes first
        self.refused += 1
        try:
            await self.engine.settle(claimed.id, claimed.token, outcome)
        except Exception as refusal:
            log.warning("job %s: its late result was dropped: %s", claimed.id, refusal)

    def _interrupt(self, orders: Iterable[Interrupt]) -> None:
        for order in orders:
            task, context, handler = self._running.get(order.id, (None, None, None))
            if task is None or context is None or handler is None:
                self._slots.drop(order.id)
                continue
            context.ask_to_stop(reason_of(order.why) if order.gentle else order.why)
            if order.gentle:
                continue
            log.warning("job %s: %s, its handler is being stopped", order.id, order.why)
            if handler.mode == "loop":  # elsewhere it runs on, fenced, and its slot with it
                task.cancel()
        if self.state.finished:
            self._nudge.set()

    def _heard(self, answer: Extended) -> None:
        self._interrupt(self.state.extended(answer, self._clock.monotonic()))
        self._nudge.set()

    async def _tick(self) -> None:
        """One timer for all deadlines."""
        while True:
            self._reclaim_grace.look()
            self._interrupt(self.state.ticked(self._clock.monotonic(), self._timeout_codes))
            deadline = self.state.next_deadline()
            pause = 0.1 if deadline is None else min(0.1, max(0.001, deadline - self._clock.monotonic()))
            await asyncio.sleep(pause)

    async def _watch(self) -> None:
        """While there is room, wait for word of new work; a poll each second is the floor."""
        watch = self.engine.store.watch()
        while True:
            await self._idle.wait()
            try:
                self._word = await watch.changed(await self._until_due())
            except Exception as error:  # a worker that does not listen is alive but deaf
                log.warning("cannot hear of new work, looking again in %g s: %s", _POLL_SECONDS, error)
                await asyncio.sleep(_POLL_SECONDS)
            self.wake()

    async def _until_due(self) -> float:
        due: int | None = await self.engine.store.read(lambda tx: tx.next_due())
        opens = self.engine.store.held_back()[1]
        due = min((moment for moment in (due, opens) if moment is not None), default=None)
        if due is None:
            return _POLL_SECONDS
        # What is overdue and was not claimed is not for us: the longer it is, the more rarely we look.
        return min(_POLL_SECONDS, max(0.001, abs(due - self.engine.store.now()) / 1_000_000))

    async def _nothing_left(self) -> bool:
        types = list(self.handlers)
        if self.engine.store.held_back()[0]:
            return False
        try:
            return not await self.engine.store.read(lambda tx: tx.anything_left(types, _IDLE_HORIZON))
        except DetentError as error:
            log.warning("cannot see whether anything is left: %s", error)
            return False

    def _row(self) -> WorkerRow:
        return registration_row(self, self._queues, self._started_at)
