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


class ClockIds:
    """Ids as they are made in life: their time is the clock's."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._last = 0

    def job(self) -> str:
        self._last += 1
        text = f"{self._clock.now() // 1_000:012x}7{self._last:03x}8{self._last:015x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def token(self) -> str:
        self._last += 1
        return f"token-{self._last}"
