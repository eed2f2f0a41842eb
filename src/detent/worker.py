"""The worker: thin asyncio around the machine. Slots run handlers, one loop settles and claims, a heart beats apart."""

import asyncio
import json
import logging
import os
import signal
import socket
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress

from .clock import SystemClock
from .context import Context
from .core.errors import DetentError
from .core.job import Micros
from .core.outcome import Stopped
from .engine import Engine
from .handlers import Handler
from .heart import Heart
from .machine import Interrupt, Machine
from .ports import Claimed, ClaimRequest, Clock, Extended, WorkerRow
from .runner import Runner
from .sweeper import Sweeper
from .version import __version__

log = logging.getLogger("detent.worker")
DEFAULT_SLOTS = 64
_POLL_SECONDS = 1.0
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
    ) -> None:
        self.engine = engine
        self.handlers = handlers
        self.id = f"{socket.gethostname()}-{os.getpid()}-{engine.ids.token()[:6]}"
        self.machine = Machine(slots, cancel_grace_seconds)
        self.lease_seconds = lease_seconds or engine.contract(None).lease_seconds
        self.grace_seconds = grace_seconds
        self.until_idle = until_idle
        self.done = 0
        self.refused = 0
        self._queues = queues
        self._sweep = sweep
        self._clock = clock or SystemClock()
        self._runner = Runner(slots, processes)
        self._queue: deque[Claimed] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._running: dict[str, tuple[asyncio.Task[None], Context]] = {}
        self._slot_tasks: list[asyncio.Task[None]] = []
        self._nudge = asyncio.Event()
        self._sated = asyncio.Event()
        self._stops = 0
        self._started_at = engine.store.now()
        self._timeout_codes = {name: c.code("timeout") for name, c in engine.contracts.items()}

    async def run(self, *, handle_signals: bool = True) -> int:
        """Work until stopped (or idle, if asked); 0 when everything was handed back in good order."""
        loop = asyncio.get_running_loop()
        removers = self._listen_for_signals(loop) if handle_signals else []
        heart = Heart(
            self.engine,
            self.lease_seconds,
            lambda: self.machine.leases(self._clock.monotonic(), self.lease_seconds),
            self._row,
            lambda answer: loop.call_soon_threadsafe(self._heard, answer),
        )
        heart.start()
        helpers = [asyncio.create_task(self._watch()), asyncio.create_task(self._tick())]
        if self._sweep:
            sweeper = Sweeper(self.engine, self._clock, self.lease_seconds)
            helpers.append(asyncio.create_task(sweeper.run()))
        try:
            await self._cycles()
        finally:
            for task in (*helpers, *self._slot_tasks):
                task.cancel()
            await asyncio.gather(*helpers, *self._slot_tasks, return_exceptions=True)
            await asyncio.to_thread(heart.stop)
            self._runner.close()
            for remove in removers:
                remove()
            with suppress(DetentError):
                await self.engine.store.write(lambda tx: tx.drop_worker(self.id))
        return 0

    def stop(self) -> None:
        """Once: finish what runs, within the grace. Twice: hand everything back now."""
        self._stops += 1
        if self._stops == 1:
            log.info("stopping: %d jobs are still running", len(self.machine.held))
            self.machine.stop()
            self._queue.clear()
            asyncio.get_running_loop().call_later(self.grace_seconds, self._give_up)
        else:
            self._give_up()
        self._nudge.set()

    def wake(self) -> None:
        """Something may have become claimable."""
        self.machine.hungry = True
        self._sated.clear()
        self._nudge.set()

    def _give_up(self) -> None:
        for order in self.machine.give_up():
            self._interrupt(order)
        self._nudge.set()

    async def _cycles(self) -> None:
        """Settle and claim until there is nothing left to do here; one transaction at a time."""
        pause = 0.05
        while not self.machine.done:
            order = self.machine.order()
            if order is None:
                self._nudge.clear()
                if self.until_idle and not self.machine.held and await self._nothing_left():
                    self.machine.stop()
                    continue
                await self._nudge.wait()
                continue
            request = self._request(order.want) if order.want else None
            try:
                answer = await self.engine.cycle(order.settled, request)
            except DetentError as error:
                self.machine.cycle_failed()
                log.warning("the store did not take our work, trying again in %.2f s: %s", pause, error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 2.0)
                continue
            pause = 0.05
            self.done += len(order.settled) - len(answer.refused)
            for job_id, refusal in answer.refused.items():
                self.refused += 1
                log.warning("job %s: %s", job_id, refusal)
            self._start(self.machine.cycled(answer))
            if not self.machine.hungry:
                self._sated.set()

    def _request(self, want: int) -> ClaimRequest:
        return self.engine.claim_request(
            self.id,
            want,
            self.lease_seconds,
            job_types=frozenset(self.handlers),
            queues=self._queues,
            reclaim=not self.machine.held,
        )

    def _start(self, claimed: list[Claimed]) -> None:
        self._queue.extend(claimed)
        if not claimed:
            return
        if not self._idle and len(self._slot_tasks) < self.machine.slots:
            self._slot_tasks.append(asyncio.create_task(self._slot()))
        self._wake_slot()

    def _wake_slot(self) -> None:
        while self._idle:
            sleeper = self._idle.pop()
            if not sleeper.done():
                sleeper.set_result(None)
                return
        if self._queue and len(self._slot_tasks) < self.machine.slots:
            self._slot_tasks.append(asyncio.create_task(self._slot()))

    async def _slot(self) -> None:
        """A long-lived task that takes jobs from the queue; before each it calls the next slot."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None
        while True:
            while self._queue:
                claimed = self._queue.popleft()
                if self._queue:
                    self._wake_slot()
                await self._execute(claimed, task)
            sleeper = loop.create_future()
            self._idle.append(sleeper)
            await sleeper

    async def _execute(self, claimed: Claimed, task: asyncio.Task[None]) -> None:
        handler = self.handlers[claimed.job_type]
        timeout = handler.options.timeout if claimed.timeout_ms is None else claimed.timeout_ms / 1_000
        if not self.machine.started(claimed.id, self._clock.monotonic(), timeout):
            return
        context = Context(claimed, self.engine)
        self._running[claimed.id] = (task, context)
        try:
            outcome = await self._runner.run(handler, self.engine.contract(claimed.contract), claimed, context)
        except asyncio.CancelledError:
            if claimed.id in self.machine.held and self._stops == 0:
                raise
            task.uncancel()
            outcome = Stopped()
        if self._running.get(claimed.id, (None, None))[1] is context:
            del self._running[claimed.id]
        self.machine.ended(claimed.id, claimed.token, outcome)
        self._nudge.set()

    def _interrupt(self, order: Interrupt) -> None:
        task, context = self._running.get(order.id, (None, None))
        if task is None or context is None:
            self._queue = deque(c for c in self._queue if c.id != order.id)
            return
        context.ask_to_stop(order.why)
        if not order.gentle:
            log.warning("job %s: %s, its handler is being stopped", order.id, order.why)
            task.cancel()
        self._nudge.set()

    def _heard(self, answer: Extended) -> None:
        for order in self.machine.extended(answer, self._clock.monotonic()):
            self._interrupt(order)
        self._nudge.set()

    async def _tick(self) -> None:
        """One timer for all deadlines."""
        while True:
            for order in self.machine.ticked(self._clock.monotonic(), self._timeout_codes):
                self._interrupt(order)
            deadline = self.machine.next_deadline()
            pause = 0.1 if deadline is None else min(0.1, max(0.001, deadline - self._clock.monotonic()))
            await asyncio.sleep(pause)

    async def _watch(self) -> None:
        """While there is room, wait for word of new work; a poll each second is the floor."""
        watch = self.engine.store.watch()
        while True:
            await self._sated.wait()
            try:
                await watch.changed(await self._until_due())
            except DetentError:
                await asyncio.sleep(_POLL_SECONDS)
            self.wake()

    async def _until_due(self) -> float:
        due: int | None = await self.engine.store.read(lambda tx: tx.next_due())
        if due is None:
            return _POLL_SECONDS
        return min(_POLL_SECONDS, max(0.001, (due - self.engine.store.now()) / 1_000_000))

    async def _nothing_left(self) -> bool:
        if self.machine.hungry:
            return False
        types = list(self.handlers)
        return not await self.engine.store.read(lambda tx: tx.anything_left(types, _IDLE_HORIZON))

    def _row(self) -> WorkerRow:
        return WorkerRow(
            id=self.id,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            queues=None if self._queues is None else json.dumps(sorted(self._queues)),
            job_types=json.dumps(sorted(self.handlers)),
            slots=self.machine.slots,
            busy=len(self.machine.held) + self.machine.ghosts,
            state="stopping" if self.machine.stopping else "working",
            started_at=self._started_at,
            seen_at=self._started_at,
            lease=int(self.lease_seconds * 1_000_000),
        )

    def _listen_for_signals(self, loop: asyncio.AbstractEventLoop) -> list[Callable[[], object]]:
        removers: list[Callable[[], object]] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                loop.add_signal_handler(number, self.stop)
            except (RuntimeError, ValueError):  # not the main thread, or not on this system: the owner calls stop()
                continue
            removers.append(lambda number=number: loop.remove_signal_handler(number))  # type: ignore[misc]
        return removers
