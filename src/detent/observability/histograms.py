"""What one process measures itself: how long jobs waited to be picked up and how long they ran. Bounded, no I/O."""

from bisect import bisect_right
from collections.abc import Iterable

from detent.core.job import Micros
from detent.ports.claims import Claimed

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0)
KINDS_AT_MOST = 200
"""Kinds of jobs told apart; later ones are summed up as OTHER."""
OTHER = "other"
Kind = tuple[str, ...]
"""(contract, job_type, queue), as they stand side by side in a claim."""
_RAW_AT_MOST = 2_048


class Histogram:
    """Counts by upper bound, the last one without; and the sum. Values are sorted in many at a time: that is cheap."""

    __slots__ = ("_counts", "_total", "raw")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self._total = 0.0
        self.raw: list[float] = []
        """Seconds not sorted in yet."""

    def add(self, seconds: float) -> None:
        self.raw.append(seconds)
        if len(self.raw) >= _RAW_AT_MOST:
            self._sort_in()

    def _sort_in(self) -> None:
        raw = sorted(self.raw)
        self.raw.clear()
        self._total += sum(raw)
        below = 0
        for place, bound in enumerate(BOUNDS):
            upto = bisect_right(raw, bound)
            self._counts[place] += upto - below
            below = upto
        self._counts[-1] += len(raw) - below

    @property
    def total(self) -> float:
        self._sort_in()
        return self._total

    @property
    def count(self) -> int:
        self._sort_in()
        return sum(self._counts)

    def buckets(self) -> list[tuple[str, float]]:
        """(le, how many up to it), cumulative."""
        self._sort_in()
        rows, below = [], 0
        for bound, number in zip((*BOUNDS, None), self._counts, strict=True):
            below += number
            rows.append(("+Inf" if bound is None else repr(float(bound)), float(below)))
        return rows


class ExecutionHistograms:
    """Starts at zero with its process, as Prometheus expects of what a process tells of itself."""

    def __init__(self) -> None:
        self.pickup: dict[Kind, Histogram] = {}
        self.execution: dict[Kind, Histogram] = {}

    def picked_up(self, claimed: Iterable[Claimed], now: Micros) -> None:
        kind: Kind = ()
        for job in claimed:
            due = job.due_at
            if due is None:
                continue
            its = job[2:5]
            if its != kind:
                kind, found = its, self._of(self.pickup, its)
            found.add((now - due) / 1_000_000 if now > due else 0.0)

    def executed(self, job: Claimed, seconds: float) -> None:
        kind = job[2:5]
        (self.execution.get(kind) or self._of(self.execution, kind)).add(seconds)

    def _of(self, table: dict[Kind, Histogram], kind: Kind) -> Histogram:
        found = table.get(kind)
        if found is None:
            if len(table) >= KINDS_AT_MOST:
                kind = (OTHER, OTHER, OTHER)
            found = table.setdefault(kind, Histogram())
        return found
