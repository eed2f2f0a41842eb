"""The real clock, and the only place that reads it or sleeps on it."""

import time

from detent.core.job import Micros


class SystemClock:
    """Wall time for the log, monotonic time for spans."""

    def now(self) -> Micros:
        return time.time_ns() // 1_000

    def monotonic(self) -> float:
        return time.monotonic()


def nap(seconds: float) -> None:
    """Block this thread; for threads that poll a lock held by another process, never for an event loop."""
    time.sleep(seconds)
