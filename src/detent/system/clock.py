"""The system clock. No other module may read the time or sleep."""

import logging
import time

from detent.core.job import Micros
from detent.core.times import SECOND
from detent.ports.clock import Clock

log = logging.getLogger("detent.clock")
_WARNING = "the system clock was set back; Detent's time is %.1f s ahead and runs slower (%g) until both agree"
_SLEW = 0.9
"""The speed of a SteadyClock that is ahead of the wall clock: an hour is caught up in 10 hours."""
_MAX_HEAD_START: Micros = 86_400 * SECOND
"""A time in the file that is further ahead than this was not written before a correction of the clock."""


class SystemClock:
    """Wall-clock time for timestamps, monotonic time for durations."""

    monotonic = staticmethod(time.monotonic)

    def now(self) -> Micros:
        return time.time_ns() // 1_000


class SteadyClock:
    """Wall-clock time that never runs backwards, and runs on when the wall clock is set back.

    Due times and leases in a file are wall-clock times, so a clock that is set back by an hour would delay all of them
    by an hour. Instead this clock goes on at 0.9 times the speed until the wall clock has caught up. It follows steps
    forward at once. Processes that run on the same machine all do the same; one that starts later joins them by
    `start_from`.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._last = self._clock.now(), self._clock.monotonic()
        """The last time and when it was read. Replaced as a whole, so that threads need no lock."""
        self._warned = False

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def now(self) -> Micros:
        wall, mono = self._clock.now(), self._clock.monotonic()
        last, read_at = self._last
        ahead = last + (mono - read_at) * SECOND - wall
        if ahead <= SECOND:
            now = wall if wall > last else last
        else:
            if not self._warned:
                self._warned = True
                log.warning(_WARNING, ahead / SECOND, _SLEW)
            now = max(wall, last + max(0, round((mono - read_at) * SECOND * _SLEW)))
        self._last = now, mono
        return now

    def start_from(self, latest: Micros) -> None:
        """Continue after `latest`, the newest time in a database, if the wall clock was set back since."""
        if self.now() < latest <= self._clock.now() + _MAX_HEAD_START:
            self._last = latest, self._clock.monotonic()


def block_thread(seconds: float) -> None:
    """Sleep in this thread, for example to poll a lock of another process. Never call it on an event loop."""
    time.sleep(seconds)
