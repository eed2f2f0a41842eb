"""A worker without time, for tests: the real engine on SQLite in memory, a clock moved by hand, and sudden death.

The rig claims, runs and settles one job at a time. When the process under test dies, its handler is left where it
stands, its outcome is dropped, and the lease runs out on the clock; then a new process goes on.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import wraps
from types import TracebackType
from typing import Any

from detent.client.app import Detent
from detent.client.job import JobDefinition
from detent.core.contract.model import Phase
from detent.core.job import APPROVAL, CHILDREN, Job, Micros
from detent.core.outcome import Outcome
from detent.core.times import SECOND
from detent.engine import Engine, Settlement
from detent.handler.context import Context
from detent.handler.handler import Handler
from detent.ports.claims import Claimed
from detent.ports.store import Store
from detent.stores.sqlite.store import SqliteStore
from detent.system.ids import SeededIds
from detent.worker.runner import Runner

START: Micros = 1_767_225_600 * SECOND
"""2026-01-01T00:00:00Z"""
LEASE_SECONDS = 30.0
MAX_EXECUTIONS = 200


class ManualClock:
    """Time that moves only when told."""

    def __init__(self, now: Micros = START) -> None:
        self._now = now

    def now(self) -> Micros:
        return self._now

    def monotonic(self) -> float:
        return self._now / SECOND

    def advance(self, seconds: float) -> None:
        self._now += round(seconds * SECOND)

    def advance_to(self, moment: Micros) -> None:
        self._now = max(self._now, moment)


class ProcessDied(BaseException):
    """The process under test is gone. Nothing it would have done after this happens."""


class Process:
    """One life of a worker process; what happens in it after its death stays without effect."""

    def __init__(self) -> None:
        self.dead = False
        """May be set from a handler's thread: whoever waits for that thread looks at it."""
        self._died = asyncio.Event()
        self._released = asyncio.Event()

    def die(self) -> None:
        self.dead = True
        self._died.set()

    async def death(self) -> None:
        await self._died.wait()

    async def hang(self) -> None:
        """Where a call of a dead process ends: it comes back only when the rig is taken down, and as ProcessDied."""
        self.die()
        await self._released.wait()
        raise ProcessDied("the process under test died here")

    def release(self) -> None:
        self._released.set()


class SingleStepWorker:
    """One database, one worker process at a time, and everything in the order in which it is called."""

    def __init__(
        self,
        app: Detent,
        *,
        clock: ManualClock | None = None,
        lease_seconds: float = LEASE_SECONDS,
        through: Callable[[Store, Process], Store] | None = None,
    ) -> None:
        """through: what the process under test sees instead of the store itself."""
        self.clock = clock or ManualClock()
        self.lease_seconds = lease_seconds
        self.store = SqliteStore(":memory:", clock=self.clock, inline=True, synchronous="OFF")
        self.engine = Engine(self.store, app.contracts, ids=SeededIds("rig"))
        self.process = Process()
        self.deaths = 0
        self.settling: Outcome | None = None
        self._handlers = {name: definition.handler for name, definition in app.jobs.items()}
        self._through = through or (lambda store, process: store)
        self._runner = Runner(slots=32)
        self._left_behind: list[tuple[Process, asyncio.Task[Outcome]]] = []

    async def __aenter__(self) -> "SingleStepWorker":
        await self.engine.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process, _ in self._left_behind:
            process.release()
        await asyncio.gather(*(task for _, task in self._left_behind), return_exceptions=True)
        self._runner.close()
        await self.store.close()

    async def submit(self, job: JobDefinition[Any, Any], **arguments: Any) -> Job:
        """As `job.enqueue` would, into this database."""
        return (await self.engine.submit(job.submission(job.handler.payload((), arguments)))).job

    async def run(self, job_id: str, signals: Mapping[str, Any] | None = None) -> Job:
        """Until this job has ended: executions, backoffs, waits, deaths and recoveries, in the shortest time."""
        for _ in range(MAX_EXECUTIONS):
            while await self.execute_next():
                pass
            job = await self.engine.job(job_id)
            if job.phase is Phase.FINAL:
                return job
            await self._let_time_pass(job, signals or {})
        raise AssertionError(f"job {job_id} has not ended after {MAX_EXECUTIONS} executions; it is {job.status}")

    async def execute_next(self) -> bool:
        """Claim one job, run it and settle it; False if there was none to claim."""
        request = self.engine.claim_request(
            f"rig-{self.deaths + 1}", 1, self.lease_seconds, job_types=frozenset(self._handlers), reclaim=True
        )
        claimed = await self.engine.claim(request)
        if not claimed:
            return False
        outcome = await self._execute(claimed[0])
        if outcome is not None:
            await self._settle(claimed[0], outcome)
        if self.process.dead:
            self.store.forsake()
            self.deaths += 1
            self.process = Process()
        return True

    async def _execute(self, claimed: Claimed) -> Outcome | None:
        """The handler's outcome, or None if the process died under it."""
        process = self.process
        engine = self._engine_of(process)
        handler = _mortal(self._handlers[claimed.job_type], process)
        contract = engine.contract(claimed.contract)
        options = handler.options
        context = Context(claimed, engine, options.park_seconds, strict_steps=options.strict_steps)
        task = asyncio.create_task(self._runner.run(handler, contract, claimed, context))
        await _first(task, process.death())
        if process.dead:
            self._left_behind.append((process, task))
            return None
        return await task

    async def _settle(self, claimed: Claimed, outcome: Outcome) -> None:
        said = Settlement(claimed.id, claimed.token, claimed.contract, outcome, claimed.parent_id)
        engine = self._engine_of(self.process)
        self.settling = outcome
        task = asyncio.create_task(engine.settle_and_claim([said], None))
        try:
            await _first(task, self.process.death())
        finally:
            self.settling = None
        if self.process.dead:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            return
        refused = (await task).refused
        if refused:
            raise refused[claimed.id]

    def _engine_of(self, process: Process) -> Engine:
        engine = Engine(self._through(self.store, process), ids=self.engine.ids)
        engine.contracts = self.engine.contracts
        return engine

    async def _let_time_pass(self, job: Job, signals: Mapping[str, Any]) -> None:
        """Do what a sweep would; send what the job, or an open child of it, waits for; else move the clock on."""
        if await self.engine.process_child_events():
            return
        if job.phase is Phase.BLOCKED and job.wait_kind == CHILDREN:
            children = await self.store.read(lambda tx: tx.children(job.id, limit=MAX_EXECUTIONS))
            open_ones = [child for child in children if child.phase is not Phase.FINAL]
            held = [child for child in open_ones if child.phase is Phase.LEASED]
            if open_ones:
                await self._let_time_pass((held or open_ones)[0], signals)
                return
        if job.phase is Phase.LEASED:
            self.clock.advance(self.lease_seconds)
            await self.engine.expire()
        elif job.wait_kind == APPROVAL and job.wait_name in signals:
            decide = self.engine.approve if signals[job.wait_name or ""] else self.engine.reject
            await decide(job.id, actor="rig")
        elif job.wait_name in signals:
            await self.engine.signal(job.id, job.wait_name or "", signals[job.wait_name or ""], actor="rig")
        elif job.due_at is not None:
            self.clock.advance_to(job.due_at)
            await self.engine.wake()
        else:
            waits = f"waits for {job.wait_name!r}" if job.wait_name else f"rests in {job.status}"
            raise AssertionError(f"job {job.id} {waits} and nobody will come; give the rig that signal")


def _mortal(handler: Handler, process: Process) -> Handler:
    """The same handler; ProcessDied raised in it kills the process instead of failing the job."""
    function = handler.function
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def on_the_loop(*args: Any, **kwargs: Any) -> Any:
            try:
                return await function(*args, **kwargs)
            except ProcessDied:
                await process.hang()

        return replace(handler, function=on_the_loop)

    @wraps(function)
    def in_a_thread(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except ProcessDied:
            process.dead = True
            raise

    return replace(handler, function=in_a_thread, mode="thread")


async def _first(task: "asyncio.Task[Any]", death: Awaitable[None]) -> None:
    """Until the task is done, or the process it runs in is dead."""
    watch = asyncio.ensure_future(death)
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        watch.cancel()
