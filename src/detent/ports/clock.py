"""The clock port: wall-clock time and monotonic time."""

from typing import Protocol, TypeVar

from detent.core.job import Micros

T = TypeVar("T")


class Clock(Protocol):
    def now(self) -> Micros: ...

    def monotonic(self) -> float: ...
