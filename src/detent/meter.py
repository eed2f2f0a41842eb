"""What one process measures itself: how long jobs waited to be picked up and how long they ran. Bounded, no I/O."""

from bisect import bisect_left
from collections.abc import Iterable

from .core.job import Micros
from .ports import Claimed

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0)
KINDS_AT_MOST = 200
"""Kinds of jobs told apart; later ones are summed up as OTHER."""
OTHER = "other"
Kind = tuple[str, ...]
"""(contract, job_type, queue), as they stand side by side in a claim."""


class Histogram:
    """Counts by upper bound, the last one without; and the sum."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """(le, how many up to it), cumulative."""
        rows, below = [], 0
        for bound, number in zip((*BOUNDS, None), self.counts, strict=True):
            below += number
            rows.append(("+Inf" if bound is None else repr(float(bound)), float(below)))
        return rows


class Meter:
    """Starts at zero with its process, as Prometheus expects of what a process tells of itself."""

    def __init__(self) -> None:
        self.pickup: dict[Kind, Histogram] = {}
        self.execution: dict[Kind, Histogram] = {}

    def picked_up(self, claimed: Iterable[Claimed], now: Micros) -> None:
        for job in claimed:
            if job.due_at is not None:
                self._of(self.pickup, job[2:5]).add(max(0, now - job.due_at) / 1_000_000)

    def executed(self, job: Claimed, seconds: float) -> None:
        self._of(self.execution, job[2:5]).add(seconds)

    def _of(self, table: dict[Kind, Histogram], kind: Kind) -> Histogram:
        found = table.get(kind)
        if found is None:
            if len(table) >= KINDS_AT_MOST:
                kind = (OTHER, OTHER, OTHER)
            found = table.setdefault(kind, Histogram())
        return found
