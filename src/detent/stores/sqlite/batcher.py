"""Short acts in turns: all that ask within one turn of the loop share a commit, made there while commits are quick."""

import asyncio
from functools import partial
from typing import Any

from detent.ports.clock import Clock

from .session import Posted, Session

_QUICK_SECONDS = 0.001
_TRY_AGAIN_AFTER = 16
_WEIGHT = 0.2


class CallBatcher:
    """Hopping to a thread and back costs more than a commit on a quick disk, and less than one on a slow disk."""

    def __init__(self, session: Session, clock: Clock) -> None:
        self._session = session
        self._clock = clock
        self._waiting: list[tuple[Posted, asyncio.Future[Any]]] = []
        self._usual = 0.0
        self._since_slow = 0

    def add(self, posted: Posted, loop: asyncio.AbstractEventLoop) -> "asyncio.Future[Any]":
        answer: asyncio.Future[Any] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._go, loop)
        self._waiting.append((posted, answer))
        return answer

    def _go(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting, self._waiting = self._waiting, []
        batch = [posted for posted, _ in waiting]
        if self._is_quick():
            started = self._clock.monotonic()
            if self._session.run_if_free(batch):
                self._learn(self._clock.monotonic() - started)
                for (_, future, _), answer in waiting:
                    _hand_over(future, answer)
                return
        for (_, future, _), answer in waiting:
            future.add_done_callback(partial(_back_to, loop, answer))
        self._session.post_all(batch)

    def _is_quick(self) -> bool:
        if self._usual < _QUICK_SECONDS:
            return True
        self._since_slow += 1
        return self._since_slow % _TRY_AGAIN_AFTER == 0

    def _learn(self, seconds: float) -> None:
        """One slow commit, as when the log is moved into the file, is not yet a slow disk."""
        self._usual += _WEIGHT * (min(seconds, 2 * _QUICK_SECONDS) - self._usual)


def _back_to(loop: asyncio.AbstractEventLoop, answer: "asyncio.Future[Any]", done: Any) -> None:
    loop.call_soon_threadsafe(_hand_over, done, answer)


def _hand_over(done: Any, answer: "asyncio.Future[Any]") -> None:
    if answer.done():
        return
    problem = done.exception()
    if problem is None:
        answer.set_result(done.result())
    else:
        answer.set_exception(problem)
