"""The client for callers without an event loop: `app.sync`, and handles whose calls block."""

import asyncio
import os
import threading
import weakref
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from detent.core.job import Job

from .dead_letters import SyncDeadLetters
from .handles import Handle
from .schedules import SyncSchedules

if TYPE_CHECKING:
    from .app import Detent
    from .job import JobDefinition

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class SyncHandle(Generic[R]):
    """An enqueued job, returned by `app.sync.enqueue`: a Handle whose calls block.

    `id` is the job's id. `hit` is True if the idempotency key existed before, so that this is the earlier job.
    """

    def __init__(self, client: "SyncClient", handle: "Handle[R]") -> None:
        self.id, self.hit = handle.id, handle.hit
        self._client, self._handle = client, handle

    def status(self) -> str:
        """The name of the job's status in its contract, for example "queued" or "succeeded"."""
        return self._client.run(self._handle.status())

    def result(self, timeout: float | None = None) -> R:
        """Block until the job has ended and return its result, in the type of the handler's return annotation.

        Raises TimeoutError after `timeout` seconds (the job continues), and JobFailed if it failed or was cancelled.
        """
        return self._client.run(self._handle.result(timeout))

    def events(self) -> list[dict[str, Any]]:
        """The job's log in order: its status changes, and notes with `note: True`."""
        return self._client.run(self._handle.events())

    def show(self) -> dict[str, Any]:
        """The job as REST and `detent jobs show --json` show it: a dict with ISO-8601 times."""
        return self._client.run(self._handle.show())

    def cancel(self, reason: str | None = None, *, actor: str = "app") -> Job:
        """Cancel the job; returns its row afterwards. Raises IllegalMove if it cannot be cancelled."""
        return self._client.run(self._handle.cancel(reason, actor=actor))

    def signal(self, name: str, data: Any = None, *, actor: str = "app") -> bool:
        """Send a signal, which `ctx.wait_for(name)` returns. True if it was the first under this name.

        Raises what `Handle.signal` raises.
        """
        return self._client.run(self._handle.signal(name, data, actor=actor))

    def approve(
        self, *, by: str, reason: str | None = None, roles: Sequence[str] | None = None, digest: str | None = None
    ) -> Job:
        """Approve what the job waits for, as the person `by`. Arguments and errors are those of `Handle.approve`."""
        return self._client.run(self._handle.approve(by=by, reason=reason, roles=roles, digest=digest))

    def reject(
        self, *, by: str, reason: str | None = None, roles: Sequence[str] | None = None, digest: str | None = None
    ) -> Job:
        """Reject what the job waits for, as the person `by`. Arguments and errors are those of `Handle.approve`."""
        return self._client.run(self._handle.reject(by=by, reason=reason, roles=roles, digest=digest))


class SyncClient:
    """`app.sync`: the application without an event loop. Calls run on an event loop in a thread of its own, and block.

        handle = app.sync.enqueue(charge, order_id=7, amount=100)
        handle.result(timeout=10)

    `schedules` and `dead_letters` have the operations on those. Works after a fork: the child gets its own thread.
    """

    schedules: SyncSchedules
    """Adds, edits, pauses, removes, previews and backfills schedules."""
    dead_letters: SyncDeadLetters
    """Lists, requeues and discards dead letters."""

    def __init__(self, app: "Detent") -> None:
        self._app = app
        self.schedules = SyncSchedules(self, app.schedules)
        self.dead_letters = SyncDeadLetters(self, app.dead_letters)
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
        return asyncio.run_coroutine_threadsafe(coroutine, self._running_loop()).result()

    def enqueue(self, job: "JobDefinition[P, R]", *args: P.args, **kwargs: P.kwargs) -> "SyncHandle[R]":
        """Enqueue one job with these arguments; for options pass `job.using(...)`.

            handle = app.sync.enqueue(charge.using(key="order-7"), order_id=7, amount=100)

        Raises what `JobDefinition.enqueue` raises.
        """
        return SyncHandle(self, self.run(job.enqueue(*args, **kwargs)))

    def enqueue_many(self, job: "JobDefinition[P, R]", arguments: Sequence[Mapping[str, Any]]) -> "list[SyncHandle[R]]":
        """Enqueue one job for each mapping of arguments, all in one commit: all of them or none."""
        return [SyncHandle(self, handle) for handle in self.run(job.enqueue_many(arguments))]

    def close(self) -> None:
        """Close the database connections and end the thread; the next call starts both again."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(self._app.close(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
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
