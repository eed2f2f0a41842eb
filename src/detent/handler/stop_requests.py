"""Requests of the worker to one execution: a cancel, a soft timeout, a stop of the worker, or the end of its lease."""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from enum import StrEnum
from functools import partial
from typing import Any

from .outcomes import CancelRequested, SoftTimeout


class StopKind(StrEnum):
    """What the worker asks of an execution."""

    END = "end"
    """Its result no longer counts: timeout, lost lease, forced cancel, end of the worker's grace."""
    CANCEL = "cancel"
    """Clean up and end within the cancel grace."""
    SOFT_TIMEOUT = "soft_timeout"
    """End before the timeout does it."""
    WORKER_STOPS = "worker_stops"
    """The worker ends after its grace. The execution may go on until then."""


class StopRequests:
    """Written by the worker, read by each call of the context. One object is shared by all contexts of an execution."""

    entries: tuple[tuple[StopKind, str | None], ...] = ()
    _pending: BaseException | None = None
    """What the next call of the context raises."""
    _listener: Callable[[StopKind, str | None], bool] | None = None

    def add(self, kind: StopKind, reason: str | None) -> None:
        """The same request a second time changes nothing."""
        if (kind, reason) in self.entries:
            return
        self.entries = (*self.entries, (kind, reason))
        listener = self._listener  # another thread may remove it
        if listener is not None and listener(kind, reason):
            return
        if kind is StopKind.END:  # from here on the calls of the context raise StaleLease
            self._pending = None
        elif kind is StopKind.CANCEL:
            self._pending = CancelRequested(reason)
        elif kind is StopKind.SOFT_TIMEOUT and self._pending is None:
            self._pending = SoftTimeout(reason)

    def listen(self, listener: Callable[[StopKind, str | None], bool] | None) -> None:
        """Pass each request on, also those made before; a listener that returns True raises the exception itself."""
        self._listener = listener
        if listener is not None and [entry for entry in self.entries if listener(*entry)]:
            self._pending = None

    def raise_pending(self) -> None:
        """Raise CancelRequested or SoftTimeout, once for each request."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            raise pending

    @property
    def stopping(self) -> bool:
        return any(kind is StopKind.WORKER_STOPS for kind, _ in self.entries)

    @property
    def reasons(self) -> list[str | None]:
        """Why the execution should end; empty if it may go on."""
        return [reason for kind, reason in self.entries if kind is not StopKind.WORKER_STOPS]


class Interruptible:
    """Awaits a coroutine, in which a soft timeout raises SoftTimeout at the place where it waits.

    Like every cancellation it begins with `task.cancel()`, so that what the coroutine awaits is cancelled, too.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any], requests: StopRequests) -> None:
        self._coroutine = coroutine
        self._task = asyncio.current_task()
        self._soft_timeout: SoftTimeout | None = None
        requests.listen(self._on_request)

    def _on_request(self, kind: StopKind, reason: str | None) -> bool:
        if kind is not StopKind.SOFT_TIMEOUT or self._task is None:
            return False
        self._soft_timeout = SoftTimeout(reason)
        self._task.cancel()
        return True

    def __await__(self) -> Generator[Any, Any, Any]:
        resume = partial(self._coroutine.send, None)
        while True:
            try:
                awaited = resume()
            except BaseException as end:
                self._task = None  # what follows the handler, its settlement, must not be cancelled
                if isinstance(end, StopIteration):
                    return end.value
                raise
            try:
                resume = partial(self._coroutine.send, (yield awaited))
            except BaseException as error:
                resume = partial(self._coroutine.throw, self._replaced(error))

    def _replaced(self, error: BaseException) -> BaseException:
        """SoftTimeout instead of the CancelledError that it caused; a cancellation by the worker stays what it is."""
        soft_timeout, self._soft_timeout = self._soft_timeout, None
        if soft_timeout is None or self._task is None or not isinstance(error, asyncio.CancelledError):
            return error
        return soft_timeout if self._task.uncancel() == 0 else error
