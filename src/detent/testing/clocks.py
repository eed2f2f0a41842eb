"""ManualClock: a clock for tests that only moves when the test moves it."""

from detent.core.job import Micros
from detent.core.times import SECOND

START: Micros = 1_767_225_600 * SECOND
"""2026-01-01T00:00:00Z"""


class ManualClock:
    """A clock that does not move until `advance` or `advance_to`. Times are microseconds since 1970.

    clock = ManualClock()
    async with SingleStepWorker(app, clock=clock) as worker:
        clock.advance(60)
    """

    def __init__(self, now: Micros = START) -> None:
        self._now = now

    def now(self) -> Micros:
        """The current time in microseconds since 1970."""
        return self._now

    def monotonic(self) -> float:
        """The current time in seconds, for measuring spans."""
        return self._now / SECOND

    def advance(self, seconds: float) -> None:
        """Move the clock forward by this many seconds."""
        self._now += round(seconds * SECOND)

    def advance_to(self, moment: Micros) -> None:
        """Move the clock to this moment; a moment in the past does nothing."""
        self._now = max(self._now, moment)
