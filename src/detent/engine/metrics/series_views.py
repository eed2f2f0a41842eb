"""The time series as the API shows them: points over a span, and totals by queue, job type or tenant."""

import asyncio
from functools import partial
from typing import Literal, NamedTuple

from detent.core.job import Micros
from detent.core.times import SECOND, iso
from detent.engine.reads import operations
from detent.engine.reads.operations import SpanName
from detent.engine.reads.responses import show
from detent.engine.runtime import Runtime
from detent.ports.metrics import BucketCounts, SlotSums, Subject, SubjectSlot
from detent.ports.tx import Tx

from .buckets import quantile
from .time_series import GROUP_SPANS, SPANS, SpanRule

Dimension = Literal["queue", "job_type", "tenant"]
_SHOWN_FROM_SECONDS = 10
"""A point that is not over is shown from this age on: the rate of a shorter one says little."""


class _Window(NamedTuple):
    """The points of a span: numbers of the first one and after the last one, and the time of reading."""

    rule: SpanRule
    first: int
    last: int
    now: Micros

    @property
    def points(self) -> range:
        return range(self.first, self.last)

    def of_slot(self, slot: int) -> int:
        return slot * self.rule.slot // self.rule.point

    def start(self, point: int) -> Micros:
        return point * self.rule.point * SECOND

    def seconds(self, point: int) -> int:
        return min(self.rule.point, (self.now - self.start(point)) // SECOND)

    @property
    def covered(self) -> int:
        """Seconds from the first point up to now."""
        return max(1, (self.now - self.start(self.first)) // SECOND)


async def series_view(runtime: Runtime, span: SpanName, subject: Subject) -> operations.TimeSeries:
    """The series of one subject: complete points, the current one if enough of it is over, and the total up to now."""
    rule = SPANS[span]
    window, rows = await runtime.store.read(partial(_read, rule=rule, kind=subject.kind, name=subject.name))
    sums = {point: SlotSums() for point in window.points}
    total = SlotSums()
    for row in rows:
        total.add(row.sums)
        if point_sums := sums.get(window.of_slot(row.slot)):
            point_sums.add(row.sums)
    return show(
        operations.TimeSeries,
        None,
        span=span,
        by=subject.kind,
        name=None if subject.kind == "all" else subject.name,
        at=iso(window.now),
        bucket_seconds=window.rule.point,
        seconds=window.covered,
        points=[_point(window, point, point_sums) for point, point_sums in sums.items()],
        total=_sums_view(total),
    )


async def groups_view(runtime: Runtime, span: SpanName, by: Dimension) -> operations.SeriesGroups:
    """The totals of each queue, job type or tenant, up to now. Summed in a thread: a thousand take a while."""
    window, rows = await runtime.store.read(partial(_read, rule=GROUP_SPANS[span], kind=by, name=None))
    items = await asyncio.to_thread(_groups, window, rows)
    return {
        "span": span,
        "by": by,
        "at": iso(window.now) or "",
        "bucket_seconds": window.rule.point,
        "seconds": window.covered,
        "items": items,
        "next_cursor": None,
    }


async def _read(tx: Tx, *, rule: SpanRule, kind: str, name: str | None) -> tuple[_Window, list[SubjectSlot]]:
    """The window, and its slots up to now, also those of a current point that is too short to be shown."""
    current = tx.now // SECOND // rule.point
    window = _Window(rule, current - rule.seconds // rule.point, current, tx.now)
    if window.seconds(current) >= _SHOWN_FROM_SECONDS:
        window = window._replace(first=window.first + 1, last=current + 1)
    slots = rule.point // rule.slot
    rows = await tx.series.read_slots(rule.slot, window.first * slots, (current + 1) * slots, kind, name)
    return window, rows


def _groups(window: _Window, rows: list[SubjectSlot]) -> list[operations.SeriesGroup]:
    totals: dict[str, SlotSums] = {}
    finished: dict[str, dict[int, int]] = {}
    for row in rows:
        totals.setdefault(row.name, SlotSums()).add(row.sums)
        counts = finished.setdefault(row.name, dict.fromkeys(window.points, 0))
        if (point := window.of_slot(row.slot)) in counts:
            counts[point] += row.sums.succeeded + row.sums.failed
    ordered = sorted(totals.items(), key=lambda entry: (-entry[1].succeeded - entry[1].failed, entry[0]))
    return [
        {"name": name or None, **_sums_view(sums), "finished": list(finished[name].values())} for name, sums in ordered
    ]


def _point(window: _Window, point: int, sums: SlotSums) -> operations.SeriesPoint:
    view = _sums_view(sums)
    return {
        "at": iso(window.start(point)) or "",
        "seconds": window.seconds(point),
        **view,
        "wait_ms": _milliseconds(view["wait"]["mean_seconds"]),
        "run_ms": _milliseconds(view["run"]["mean_seconds"]),
    }


def _sums_view(sums: SlotSums) -> operations.SeriesSums:
    return {
        "submitted": sums.submitted,
        "ended_well": sums.succeeded,
        "ended_badly": sums.failed,
        "retries": sums.retried,
        "wait": latency_view(sums.waits, sums.waited),
        "run": latency_view(sums.runs, sums.ran),
    }


def latency_view(histogram: BucketCounts, total: Micros) -> operations.Latency:
    number = sum(histogram.values())
    p50, p95, p99 = (_rounded(quantile(histogram, share)) for share in (0.5, 0.95, 0.99))
    mean = _rounded(total / SECOND / number) if number else None
    return {"number": number, "mean_seconds": mean, "p50_seconds": p50, "p95_seconds": p95, "p99_seconds": p99}


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1_000, 3)
