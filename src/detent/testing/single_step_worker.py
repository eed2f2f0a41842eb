"""A worker for tests that runs one job at a time: the real engine on SQLite in memory, and a manual clock.

It can simulate the death of the worker process: the handler stops where it is, its outcome is dropped, and the lease
expires on the manual clock; then a new process continues.
"""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import wraps
from types import TracebackType
from typing import Any

from detent.client.app import Detent
from detent.client.job import JobDefinition
from detent.core.access import Scope
from detent.core.contract.model import Phase
from detent.core.job import APPROVAL, CHILDREN, Job, Micros
from detent.core.outcome import Outcome
from detent.core.schedule import parse_interval
from detent.core.times import SECOND
from detent.engine import Engine, Settlement
from detent.handler.handler import Handler
from detent.handler.outcomes import Interrupted
from detent.ports.claims import Claimed
from detent.ports.store import Store
from detent.stores.sqlite.store import SqliteStore
from detent.system.ids import SeededIds
from detent.system.run_now import run_now
from detent.worker.runner import Runner, execution_context

from .clocks import ManualClock

LEASE_SECONDS = 30.0
MAX_EXECUTIONS = 200
_MAX_DRAINED = 100_000
_FIRED_AT_ONCE = 500


class ProcessDied(Interrupted):
    """Raise it in a handler to simulate that the worker process dies at this point.

    A real worker goes on, and hands the job back as a worker does that stops.
    """


class SimulatedProcess:
    """One worker process under test. After its death, calls to the store never return."""

    def __init__(self) -> None:
        self.dead = False
        """May be set from a handler's thread; read after this thread has ended."""
        self.died = asyncio.Event()
        self._released = asyncio.Event()

    def die(self) -> None:
        """Simulate the death of the process."""
        self.dead = True
        self.died.set()

    async def hang(self) -> None:
        """Die, and block the caller until the test ends; then raise ProcessDied."""
        self.die()
        await self._released.wait()
        raise ProcessDied("the process under test died here")

    def release(self) -> None:
        """End the calls that hang."""
        self._released.set()


class SingleStepWorker:
    """Runs jobs one at a time, without real time: a database in memory, a manual clock, one simulated process.

        async with SingleStepWorker(app) as worker:
            job = await worker.submit(charge, order_id=7)
            job = await worker.run(job.id, signals={"confirmed": {"user": "ann"}})
            assert job.result == '{"ok":true}'

    `engine` and `store` are the real ones, `clock` is the ManualClock, `deaths` counts simulated deaths.
    """

    def __init__(
        self,
        app: Detent,
        *,
        clock: ManualClock | None = None,
        lease_seconds: float = LEASE_SECONDS,
        wrap_store: Callable[[Store, SimulatedProcess], Store] | None = None,
    ) -> None:
        """wrap_store: returns the store that the process under test uses, to observe or fail its calls."""
        self.app = app
        self.clock = clock or ManualClock()
        self.lease_seconds = lease_seconds
        self.store = SqliteStore(":memory:", clock=self.clock, inline=True, synchronous="OFF")
        self.engine = app.make_engine(self.store, SeededIds("test"))
        self.process = SimulatedProcess()
        self.deaths = 0
        self.settling: Outcome | None = None
        """The outcome that is being settled now."""
        self._wrap_store = wrap_store
        self._runner = Runner(slots=32)
        self._abandoned: list[tuple[SimulatedProcess, asyncio.Task[Outcome]]] = []
        """Handlers of processes that died; they hang until the test ends."""

    async def __aenter__(self) -> "SingleStepWorker":
        await self.engine.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process, _ in self._abandoned:
            process.release()
        await asyncio.gather(*(task for _, task in self._abandoned), return_exceptions=True)
        self.close_now()

    def close_now(self) -> None:
        """Close the database. Handlers of simulated processes that died are left as they are."""
        self._runner.close()
        if self.engine.observer is not None:
            self.engine.observer.close()
        run_now(self.store.close())

    async def submit(self, job: JobDefinition[Any, Any], **arguments: Any) -> Job:
        """Enqueue a job into this database, as `job.enqueue` does; returns its row."""
        return (await self.engine.jobs.submit(job.submission(job.handler.payload((), arguments)))).job

    async def run(self, job_id: str, signals: Mapping[str, Any] | None = None) -> Job:
        """Run jobs and advance the clock until this job has ended; returns its row.

        signals: {name: data}: sent as soon as the job, or a child of it, waits for this name; for an approval of this
        name, whether it is approved. Raises AssertionError if the job waits for something else or does not end.
        """
        job: Job | None = None
        for _ in range(MAX_EXECUTIONS):
            while await self.execute_next():
                pass
            await self._wait_for_hooks()
            job = await self.engine.jobs.get(job_id)
            if job.phase is Phase.FINAL:
                return job
            await self._let_time_pass(job, signals or {})
        status = job and job.status
        raise AssertionError(f"job {job_id} has not ended after {MAX_EXECUTIONS} executions; it is {status}")

    async def drain(self) -> int:
        """Run jobs until none is due any more, with their retries, children and schedules; returns how many ran."""
        ran = 0
        while await self._sweep() or await self.execute_next():
            ran += 1
            assert ran < _MAX_DRAINED, f"jobs are still due after {ran} executions; does a job enqueue itself?"
        return ran

    async def advance(self, duration: float | timedelta | str) -> int:
        """Let time pass, and run what becomes due, each at its moment; returns how many executions that were.

        duration: seconds, a timedelta, or text such as "2 h", "90 s" or "1 d".
        """
        end = self.clock.now() + _micros(duration)
        ran = await self.drain()
        while (moment := await self._next_moment()) is not None and moment <= end:
            self.clock.advance_to(moment)
            ran += await self.drain()
        self.clock.advance_to(end)
        return ran + await self.drain()

    async def _sweep(self) -> bool:
        """What the sweeper of a worker does; True if it changed something. Hooks may have enqueued jobs."""
        await self._wait_for_hooks()
        expired, woken = await self.engine.expire(), await self.engine.wake()
        fired = await self.engine.schedules.fire_due(_FIRED_AT_ONCE)
        return bool(expired or woken or fired.jobs or await self.engine.process_child_events())

    async def _wait_for_hooks(self) -> None:
        if self.engine.observer is not None:
            await self.engine.observer.wait_for_hooks(0)

    async def _next_moment(self) -> Micros | None:
        """When a job becomes due, a wait times out or a schedule fires next; None if never."""
        due = await self.store.read(lambda tx: tx.due.next_due())
        wake = await self.store.read(lambda tx: tx.due.next_wake())
        fire = (await self.engine.schedules.fire_due(_FIRED_AT_ONCE)).next
        moments = [moment for moment in (due, wake, fire) if moment is not None and moment > self.clock.now()]
        return min(moments, default=None)

    async def execute_next(self) -> bool:
        """Claim one job, run it and settle it; False if there was no job to claim."""
        request = self.engine.claim_request(
            f"process-{self.deaths + 1}", 1, self.lease_seconds, job_types=frozenset(self.app.jobs), reclaim=True
        )
        claimed = await self.engine.claim(request)
        if not claimed:
            return False
        outcome = await self._execute(claimed[0])
        if outcome is not None:
            await self._settle(claimed[0], outcome)
        if self.process.dead:
            self.store.abandon_transaction()
            self.deaths += 1
            self.process = SimulatedProcess()
        return True

    async def _execute(self, claimed: Claimed) -> Outcome | None:
        """The handler's outcome, or None if the process died meanwhile."""
        process = self.process
        engine = self._engine_of(process)
        handler = _killable(self.app.jobs[claimed.job_type].handler, process)
        contract = engine.contract(claimed.contract)
        context = execution_context(handler, claimed, engine)
        task = asyncio.create_task(self._runner.run(handler, contract, claimed, context))
        await _wait_first(task, process.died)
        if process.dead:
            self._abandoned.append((process, task))
            return None
        return await task

    async def _settle(self, claimed: Claimed, outcome: Outcome) -> None:
        settlement = Settlement(claimed.id, claimed.token, claimed.contract, outcome, claimed.parent_id, claimed)
        engine = self._engine_of(self.process)
        self.settling = outcome
        task = asyncio.create_task(engine.settle_and_claim([settlement], None))
        try:
            await _wait_first(task, self.process.died)
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

    def _engine_of(self, process: SimulatedProcess) -> Engine:
        return self.engine if self._wrap_store is None else self.engine.on_store(self._wrap_store(self.store, process))

    async def _let_time_pass(self, job: Job, signals: Mapping[str, Any]) -> None:
        """Sweep; send the signal that the job or an unfinished child waits for; otherwise advance the clock."""
        if await self.engine.process_child_events():
            return
        if job.phase is Phase.BLOCKED and job.wait_kind == CHILDREN:
            children = await self.store.read(lambda tx: tx.children.list_children(job.id, limit=MAX_EXECUTIONS))
            unfinished = [child for child in children if child.phase is not Phase.FINAL]
            leased = [child for child in unfinished if child.phase is Phase.LEASED]
            if unfinished:
                await self._let_time_pass((leased or unfinished)[0], signals)
                return
        if job.phase is Phase.LEASED:
            self.clock.advance(self.lease_seconds)
            await self.engine.expire()
        elif job.wait_kind == APPROVAL and job.wait_name in signals:
            decide = self.engine.approvals.approve if signals[job.wait_name or ""] else self.engine.approvals.reject
            await decide(job.id, Scope("test"))
        elif job.wait_name in signals:
            await self.engine.jobs.signal(job.id, job.wait_name or "", Scope("test"), signals[job.wait_name or ""])
        elif job.due_at is not None:
            self.clock.advance_to(job.due_at)
            await self.engine.wake()
        else:
            state = f"waits for {job.wait_name!r}" if job.wait_name else f"stays {job.status}"
            raise AssertionError(f"job {job.id} {state} and will not continue; pass this name in signals=")


def _micros(duration: float | timedelta | str) -> Micros:
    if isinstance(duration, timedelta):
        return duration // timedelta(microseconds=1)
    return parse_interval(duration.replace(" ", "")) if isinstance(duration, str) else round(duration * SECOND)


def _killable(handler: Handler, process: SimulatedProcess) -> Handler:
    """The same handler, in which ProcessDied kills the process instead of failing the job."""
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


async def _wait_first(task: "asyncio.Task[Any]", died: asyncio.Event) -> None:
    """Wait until the task is done or its process is dead."""
    watch = asyncio.create_task(died.wait())
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        watch.cancel()
