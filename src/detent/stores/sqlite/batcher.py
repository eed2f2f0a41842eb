"""Where a batch of acts runs: on the event loop's thread while commits are fast, else on the session's thread."""

import asyncio
from typing import Any

from detent.system.batcher import Batcher

from .session import Call, Done, Session

_MAX_CALLS = 256
_FAST_COMMIT_SECONDS = 0.001
_RETRY_INLINE_EVERY = 16
_WEIGHT = 0.2
"""Weight of the newest commit in the moving average of commit times."""
_LONE_SECONDS = 0.001
"""How long a task that is alone may write before it waits for an iteration of the event loop, and for others."""


class LoopBatcher(Batcher[Call, Any]):
    """Batches of one event loop: calls that arrive while one is being written share the next transaction.

    Switching to a thread and back costs more than a commit on a fast disk, and less than one on a slow disk. Several
    loops may share a session.
    """

    def __init__(self, session: Session, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(self._start_batch, max_size=_MAX_CALLS)
        self._session = session
        self._loop = loop
        self._average_seconds = {True: 0.0, False: 0.0}
        """Of commits that are relaxed, and of those that are not."""
        self._slow_batches = 0
        self._last_task = 0
        """The id of the task that made the last call."""
        self._lone_seconds = 0.0
        """Above 0 after a batch with one call: if the same task calls again, it need not wait for others."""

    async def run(self, call: Call) -> Any:
        """Run one call. Short ones wait for other calls of this event loop iteration, unless their task is alone."""
        task, self._last_task = self._last_task, id(asyncio.current_task())
        alone = task == self._last_task and self._lone_seconds > 0 and self._free and not self._waiting
        if alone and call.short and not call.relaxed:
            outcomes = self._run_inline([call], relaxed=False)
            if outcomes is not None:
                if isinstance(outcomes[0], BaseException):
                    raise outcomes[0]
                return outcomes[0]
        return await self.add(call, at_once=not call.short)

    def _start_batch(self, calls: list[Call], done: Done) -> None:
        if False not in [call.short for call in calls]:
            outcomes = self._run_inline(calls, relaxed=False not in [call.relaxed for call in calls])
            if outcomes is not None:
                self._lone_seconds = _LONE_SECONDS if len(calls) == 1 else 0.0
                done(outcomes)
                return
        if self._session.closed:
            done(self._session.run_batch(calls))
        else:
            self._session.queue.put((calls, self._loop, done))

    def _run_inline(self, calls: list[Call], *, relaxed: bool) -> list[Any] | None:
        """Run calls on this thread; None if that might block the event loop for too long."""
        session, average = self._session, self._average_seconds[relaxed]
        if not session.queue.empty():
            return None
        self._slow_batches += average >= _FAST_COMMIT_SECONDS
        fast = average < _FAST_COMMIT_SECONDS or self._slow_batches % _RETRY_INLINE_EVERY == 0
        if not fast or not session.lock.acquire(blocking=False):
            return None
        began = self._loop.time()
        try:
            outcomes = session.run_batch(calls)
        finally:
            session.lock.release()
        # Long times are capped: one slow commit, as at a WAL checkpoint, is no slow disk.
        seconds = min(self._loop.time() - began, 2 * _FAST_COMMIT_SECONDS)
        self._average_seconds[relaxed] = average + _WEIGHT * (seconds - average)
        self._lone_seconds -= seconds
        return outcomes
