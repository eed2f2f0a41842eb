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


class LoopWriter:
    """Runs the batches of one event loop; several loops may share a session.

    Switching to a thread and back costs more than a commit on a fast disk, and less than one on a slow disk.
    """

    def __init__(self, session: Session, loop: asyncio.AbstractEventLoop) -> None:
        self._session = session
        self._loop = loop
        self._average_seconds = {True: 0.0, False: 0.0}
        """Of commits that are relaxed, and of those that are not."""
        self._slow_batches = 0

    def start(self, calls: list[Call], done: Done) -> None:
        session = self._session
        if False not in [call.short for call in calls] and session.queue.empty():
            relaxed = False not in [call.relaxed for call in calls]
            average = self._average_seconds[relaxed]
            self._slow_batches += average >= _FAST_COMMIT_SECONDS
            fast = average < _FAST_COMMIT_SECONDS or self._slow_batches % _RETRY_INLINE_EVERY == 0
            if fast and session.lock.acquire(blocking=False):
                began = self._loop.time()
                try:
                    outcomes = session.run_batch(calls)
                finally:
                    session.lock.release()
                # Long times are capped: one slow commit, as at a WAL checkpoint, is no slow disk.
                seconds = min(self._loop.time() - began, 2 * _FAST_COMMIT_SECONDS)
                self._average_seconds[relaxed] = average + _WEIGHT * (seconds - average)
                done(outcomes)
                return
        if session.closed:
            done(session.run_batch(calls))
        else:
            session.queue.put((calls, self._loop, done))


def loop_batcher(session: Session, loop: asyncio.AbstractEventLoop) -> Batcher[Call, Any]:
    """Calls that arrive while a batch of this loop is being written share the next transaction."""
    return Batcher(LoopWriter(session, loop).start, max_size=_MAX_CALLS)
