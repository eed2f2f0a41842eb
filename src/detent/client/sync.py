"""A submitted job for callers without an event loop: the handle whose calls block."""

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
    """A handle whose calls block."""

    def __init__(self, client: "SyncClient", handle: "Handle[R]") -> None:
        self.id, self.hit = handle.id, handle.hit
        self._client, self._handle = client, handle

    def status(self) -> str:
        return self._client.run(self._handle.status())

    def result(self, timeout: float | None = None) -> R:
        return self._client.run(self._handle.result(timeout))

    def events(self) -> list[dict[str, Any]]:
        return self._client.run(self._handle.events())

    def show(self) -> dict[str, Any]:
        return self._client.run(self._handle.show())

    def cancel(self, reason: str | None = None, *, actor: str = "app") -> Job:
        return self._client.run(self._handle.cancel(reason, actor=actor))

    def signal(self, name: str, data: Any = None, *, actor: str = "app") -> bool:
        return self._client.run(self._handle.signal(name, data, actor=actor))

    def approve(self, **word: Any) -> Job:
        """by=, reason=, roles=, digest="""
        return self._client.run(self._handle.approve(**word))

    def reject(self, **word: Any) -> Job:
        return self._client.run(self._handle.reject(**word))


if TYPE_CHECKING:
    pass


class SyncClient:
    """The same client without an event loop: one implementation, run on a loop in a thread of its own."""

    def __init__(self, app: "Detent") -> None:
        self._app = app
        self.schedules = SyncSchedules(self, app.schedules)
        self.dead_letters = SyncDeadLetters(self, app.dead_letters)
        self._forget()
        forget = weakref.WeakMethod(self._forget)
        os.register_at_fork(after_in_child=lambda: (method := forget()) and method())

    def _forget(self) -> None:
        """In a new process there is no thread yet, and a lock that was held at the fork is held for ever."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run any call of the app to its end: app.sync.run(handle.result())."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._own_loop()).result()

    def enqueue(self, job: "JobDefinition[P, R]", *args: P.args, **kwargs: P.kwargs) -> "SyncHandle[R]":
        return SyncHandle(self, self.run(job.enqueue(*args, **kwargs)))

    def enqueue_many(self, job: "JobDefinition[P, R]", arguments: Sequence[Mapping[str, Any]]) -> "list[SyncHandle[R]]":
        return [SyncHandle(self, handle) for handle in self.run(job.enqueue_many(arguments))]

    def close(self) -> None:
        """Close the connection and end the thread; the next call opens both again."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(self._app.close(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _own_loop(self) -> asyncio.AbstractEventLoop:
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
