"""Ending a worker's process: the signals that ask for it, and tasks that would not let it end."""

import asyncio
import os
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

from detent.ports.clock import Clock

_DEAF_SECONDS = 1.0


class StopSignals:
    """Each SIGTERM or SIGINT calls `stop` on the loop. If the loop is blocked, the second one ends the process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None], clock: Clock) -> None:
        self._loop = loop
        self._stop = stop
        self._clock = clock
        self._unheard_since: float | None = None
        self._before: dict[int, Any] = {}
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                self._before[number] = signal.signal(number, self._caught)
            except ValueError:  # not the main thread: the owner calls stop()
                break

    def restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _caught(self, number: int, frame: FrameType | None) -> None:
        now = self._clock.monotonic()
        if self._unheard_since is not None and now - self._unheard_since > _DEAF_SECONDS:
            signal.signal(number, signal.SIG_DFL)  # a handler blocks the loop: our jobs are left to their leases
            os.kill(os.getpid(), number)
            return
        if self._unheard_since is None:
            self._unheard_since = now
        self._loop.call_soon_threadsafe(self._heard)

    def _heard(self) -> None:
        self._unheard_since = None
        self._stop()


def abandon(task: "asyncio.Task[Any]") -> None:
    """asyncio.run waits for every task it knows: make it forget one that swallows its cancellation."""
    asyncio._unregister_task(task)
    task._log_destroy_pending = False  # type: ignore[attr-defined]
