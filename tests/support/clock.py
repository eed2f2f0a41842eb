"""Time that moves only when a test says so."""

from detent.core.times import SECOND, from_iso

START = from_iso("2026-02-25T12:00:00Z", field="start")


class FakeClock:
    def __init__(self, now: int = START) -> None:
        self._now = now

    def now(self) -> int:
        return self._now

    def monotonic(self) -> float:
        return self._now / SECOND

    def advance(self, seconds: float) -> None:
        self._now += round(seconds * SECOND)
