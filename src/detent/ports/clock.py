"""The clock port: wall-clock time and monotonic time."""

from typing import Protocol

from detent.core.job import Micros


class Clock(Protocol):
    def now(self) -> Micros: ...
    def monotonic(self) -> float: ...
