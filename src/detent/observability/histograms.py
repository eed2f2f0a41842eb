"""Histograms of one process: how long jobs waited before pickup, and how long they ran. In memory, of bounded size."""

from bisect import bisect_right
from collections.abc import Iterable

from detent.core.job import Micros
from detent.ports.claims import Claimed

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0)
MAX_KINDS = 200
"""Kinds of jobs with a histogram of their own; later ones share the histogram OTHER."""
OTHER = "other"
Kind = tuple[str, ...]
"""(contract, job_type, queue): fields 2 to 4 of Claimed."""
_MAX_RAW = 2_048


class Histogram:
    """Counts per upper bound, the last one unbounded, and the sum.

    Values are collected in `raw` and sorted into the buckets many at a time, which is cheaper.
    """

    __slots__ = ("_counts", "_total", "raw")

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS) + 1)
        self._total = 0.0
        self.raw: list[float] = []
        """Seconds that are not in a bucket yet."""

    def add(self, seconds: float) -> None:
        self.raw.append(seconds)
        if len(self.raw) >= _MAX_RAW:
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

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound, how many values up to it), cumulative as Prometheus expects."""
        self._sort_in()
        rows, below = [], 0
        for bound, number in zip((*BOUNDS, None), self._counts, strict=True):
            below += number
            rows.append(("+Inf" if bound is None else repr(float(bound)), float(below)))
        return rows


class ExecutionHistograms:
    """The histograms of one process, by kind of job. They start at zero with the process, as Prometheus expects."""

    def __init__(self) -> None:
        self.pickup: dict[Kind, Histogram] = {}
        self.execution: dict[Kind, Histogram] = {}
        self.blocked: dict[Kind, Histogram] = {}

    def record_pickups(self, claimed: Iterable[Claimed], now: Micros) -> None:
        kind: Kind = ()
        histogram: Histogram | None = None
        for job in claimed:
            due = job.due_at
            if due is None:
                continue
            job_kind = job[2:5]
            if histogram is None or job_kind != kind:
                kind, histogram = job_kind, self._histogram(self.pickup, job_kind)
            histogram.add((now - due) / 1_000_000 if now > due else 0.0)

    def record_execution(self, job: Claimed, seconds: float) -> None:
        kind = job[2:5]
        (self.execution.get(kind) or self._histogram(self.execution, kind)).add(seconds)

    def record_block(self, job: Claimed | None, seconds: float) -> None:
        """The event loop was blocked for so long, by the handler of this job if it is known."""
        self._histogram(self.blocked, (OTHER, OTHER, OTHER) if job is None else job[2:5]).add(seconds)

    def _histogram(self, table: dict[Kind, Histogram], kind: Kind) -> Histogram:
        histogram = table.get(kind)
        if histogram is None:
            if len(table) >= MAX_KINDS:
                kind = (OTHER, OTHER, OTHER)
            histogram = table.setdefault(kind, Histogram())
        return histogram
