"""The client for callers without an event loop: `app.sync`, with blocking versions of handles and operations."""

import asyncio
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from detent.handler.blocking import Blocking, Run, blocking
from detent.handler.handler import Arguments

from .dead_letters import DeadLetters
from .handles import Handle
from .jobs import Jobs
from .operations import Queues
from .schedules import Schedules

if TYPE_CHECKING:
    from .app import Detent
    from .job import JobDefinition

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class SyncHandle(Blocking[Handle[R]]):
    """An enqueued job, returned by `app.sync.enqueue`: a Handle whose calls block, with the same arguments and errors.

    `id` is the job's id. `hit` is True if the idempotency key existed before, so that this is the earlier job.
    """

    def __init__(self, handle: Handle[R], run: Run) -> None:
        super().__init__(handle, run)
        self.id, self.hit = handle.id, handle.hit

    job = blocking(Handle.job)
    status = blocking(Handle.status)
    events = blocking(Handle.events)
    show = blocking(Handle.show)
    result = blocking(Handle[R].result)
    cancel = blocking(Handle.cancel)
    signal = blocking(Handle.signal)
    approve = blocking(Handle.approve)
    reject = blocking(Handle.reject)


def returning_handle(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, Handle[R]]],
) -> Callable[Concatenate[Blocking[A], P], SyncHandle[R]]:
    """Like `blocking`, for a method that returns a Handle: the blocking version returns a SyncHandle."""
    get_handle = blocking(method)

    @wraps(get_handle)
    def call(self: Blocking[A], /, *args: P.args, **kwargs: P.kwargs) -> SyncHandle[R]:
        return SyncHandle(get_handle(self, *args, **kwargs), self._run)

    return call


class SyncSchedules(Blocking[Schedules]):
    """`app.sync.schedules`: the operations of Schedules as blocking calls, with the same arguments and errors."""

    add = blocking(Schedules.add)
    edit = blocking(Schedules.edit)
    pause = blocking(Schedules.pause)
    resume = blocking(Schedules.resume)
    remove = blocking(Schedules.remove)
    get = blocking(Schedules.get)
    list = blocking(Schedules.list)
    fires = blocking(Schedules.fires)
    preview = blocking(Schedules.preview)
    backfill = blocking(Schedules.backfill)


class SyncDeadLetters(Blocking[DeadLetters]):
    """`app.sync.dead_letters`: the operations of DeadLetters as blocking calls, with the same arguments and errors."""

    list = blocking(DeadLetters.list)
    show = blocking(DeadLetters.show)
    requeue = blocking(DeadLetters.requeue)
    requeue_many = blocking(DeadLetters.requeue_many)
    discard = blocking(DeadLetters.discard)
    discard_many = blocking(DeadLetters.discard_many)


class SyncJobs(Blocking[Jobs]):
    """`app.sync.jobs`: the operations of Jobs as blocking calls, with the same arguments and errors."""

    list = blocking(Jobs.list)
    show = blocking(Jobs.show)
    why = blocking(Jobs.why)
    cancel = blocking(Jobs.cancel)
    abort = blocking(Jobs.abort)
    reopen = blocking(Jobs.reopen)
    cancel_many = blocking(Jobs.cancel_many)
    requeue_many = blocking(Jobs.requeue_many)
    handle = returning_handle(Jobs.handle)
    requeue = returning_handle(Jobs.requeue)


class SyncQueues(Blocking[Queues]):
    """`app.sync.queues`: the operations of Queues as blocking calls, with the same arguments and errors."""

    list = blocking(Queues.list)
    pause = blocking(Queues.pause)
    resume = blocking(Queues.resume)


class SyncClient:
    """`app.sync`: the application without an event loop. Calls run on an event loop in a thread of its own, and block.

        handle = app.sync.enqueue(charge, order_id=7, amount=100)
        handle.result(timeout=10)

    `jobs`, `queues`, `schedules` and `dead_letters` have the operations on those. Works after a fork: the child gets
    its own thread.
    """

    jobs: SyncJobs
    """Lists, cancels and requeues jobs."""
    queues: SyncQueues
    """Lists, pauses and resumes queues."""
    schedules: SyncSchedules
    """Adds, edits, pauses, removes, previews and backfills schedules."""
    dead_letters: SyncDeadLetters
    """Lists, requeues and discards dead letters."""

    def __init__(self, app: "Detent") -> None:
        self._app = app
        self.jobs = SyncJobs(app.jobs, self.run)
        self.queues = SyncQueues(app.queues, self.run)
        self.schedules = SyncSchedules(app.schedules, self.run)
        self.dead_letters = SyncDeadLetters(app.dead_letters, self.run)
        self._reset()
        reset = weakref.WeakMethod(self._reset)
        os.register_at_fork(after_in_child=lambda: (method := reset()) and method())

    def _reset(self) -> None:
        """A forked child has no thread, and a lock that was held at the fork would never be released."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run any coroutine of the app and return its result: `app.sync.run(app.handle(job_id))`."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def enqueue(self, job: "JobDefinition[P, R]", *args: P.args, **kwargs: P.kwargs) -> "SyncHandle[R]":
        """Enqueue one job with these arguments; for options pass `job.using(...)`.

            handle = app.sync.enqueue(charge.using(key="order-7"), order_id=7, amount=100)

        Raises what `JobDefinition.enqueue` raises.
        """
        return SyncHandle(self.run(job.enqueue(*args, **kwargs)), self.run)

    def enqueue_many(
        self, job: "JobDefinition[P, R]", arguments: Sequence[Mapping[str, Any] | Arguments[P]]
    ) -> "list[SyncHandle[R]]":
        """Enqueue one job for each item, all in one commit: all of them or none; see `JobDefinition.enqueue_many`."""
        return [SyncHandle(handle, self.run) for handle in self.run(job.enqueue_many(arguments))]

    def handle(self, job_id: str) -> "SyncHandle[Any]":
        """The handle of a job by its id. Raises NotFound (JOB_NOT_FOUND)."""
        return SyncHandle(self.run(self._app.handle(job_id)), self.run)

    def approvals(self, **options: Any) -> list[dict[str, Any]]:
        """Jobs that wait for an approval, oldest first. Options are those of `Detent.approvals`."""
        return self.run(self._app.approvals(**options))

    def events(self, **options: Any) -> Iterator[dict[str, Any]]:
        """The events of all jobs in the order of their commits. Options are those of `Detent.events`."""
        events = self._app.events(**options)
        try:
            while (event := self.run(_next(events))) is not None:
                yield event
        finally:
            self.run(_close(events))

    def close(self) -> None:
        """Close the database connections and end the thread; the next call starts both again."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(self._app.close(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop in the thread of this client, which is started if it does not run."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_serve, args=(self._loop,), name="detent-sync", daemon=True)
                self._thread.start()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


async def _next(events: AsyncIterator[T]) -> T | None:
    return await anext(events, None)


async def _close(events: Any) -> None:
    await events.aclose()
