"""The system clock. No other module may read the time or sleep."""

import time

from detent.core.job import Micros


class SystemClock:
    """Wall-clock time for timestamps, monotonic time for durations."""

    def now(self) -> Micros:
        return time.time_ns() // 1_000

    def monotonic(self) -> float:
        return time.monotonic()


def block_thread(seconds: float) -> None:
    """Sleep in this thread, for example to poll a lock of another process. Never call it on an event loop."""
    time.sleep(seconds)
