"""Group commit on SQLite: calls made in one iteration of the event loop share one commit."""

import asyncio
from functools import partial
from typing import Any

from detent.ports.clock import Clock

from .session import PendingCall, Session

_FAST_COMMIT_SECONDS = 0.001
_RETRY_INLINE_EVERY = 16
_WEIGHT = 0.2
"""Weight of the newest commit in the moving average of commit times."""


class CallBatcher:
    """Commits on the event loop's thread while commits are fast, else on the writer thread.

    Switching to a thread and back costs more than a commit on a fast disk, and less than one on a slow disk.
    """

    def __init__(self, session: Session, clock: Clock) -> None:
        self._session = session
        self._clock = clock
        self._waiting: list[tuple[PendingCall, asyncio.Future[Any]]] = []
        self._average_seconds = 0.0
        self._flushes_since_slow = 0

    def add(self, call: PendingCall, loop: asyncio.AbstractEventLoop) -> "asyncio.Future[Any]":
        caller_future: asyncio.Future[Any] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._flush, loop)
        self._waiting.append((call, caller_future))
        return caller_future

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting, self._waiting = self._waiting, []
        batch = [call for call, _ in waiting]
        if self._try_inline():
            started = self._clock.monotonic()
            if self._session.run_if_free(batch):
                self._record_duration(self._clock.monotonic() - started)
                for (_, future, _), caller_future in waiting:
                    _copy_outcome(future, caller_future)
                return
        for (_, future, _), caller_future in waiting:
            future.add_done_callback(partial(_copy_outcome_threadsafe, loop, caller_future))
        self._session.enqueue_all(batch)

    def _try_inline(self) -> bool:
        if self._average_seconds < _FAST_COMMIT_SECONDS:
            return True
        self._flushes_since_slow += 1
        return self._flushes_since_slow % _RETRY_INLINE_EVERY == 0

    def _record_duration(self, seconds: float) -> None:
        """Update the average. Long times are capped: one slow commit, as at a WAL checkpoint, is no slow disk."""
        self._average_seconds += _WEIGHT * (min(seconds, 2 * _FAST_COMMIT_SECONDS) - self._average_seconds)


def _copy_outcome_threadsafe(
    loop: asyncio.AbstractEventLoop, caller_future: "asyncio.Future[Any]", call_future: Any
) -> None:
    loop.call_soon_threadsafe(_copy_outcome, call_future, caller_future)


def _copy_outcome(call_future: Any, caller_future: "asyncio.Future[Any]") -> None:
    if caller_future.done():
        return
    error = call_future.exception()
    if error is None:
        caller_future.set_result(call_future.result())
    else:
        caller_future.set_exception(error)
