"""Throughput and latency over time, of all jobs and by queue, job type and tenant; summed from the log in commit order.

Each range of the log is added to slots of several widths. Narrow slots are kept for minutes, wide ones for a month, and
the number of queues, types and tenants with slots of their own is bounded, so the size of the table is bounded too.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from detent.core.contract.model import Contract, Move, Phase
from detent.core.times import SECOND
from detent.engine.reads.operations import SpanName
from detent.engine.runtime import Runtime
from detent.ports.metrics import Group, SlotKey, SlotSums, Subject, SubjectSlot, Timed
from detent.ports.tx import Tx

from .buckets import LAST
from .event_counts import EVENTS, UNKNOWN, edge_of, read_groups
from .log_follower import LogFollower

LOG = "series"
KEEP = {10: 1_200, 60: 3_900, 300: 23_400, 900: 93_600, 7_200: 2_678_400, 86_400: 2_678_400}
"""Width of a slot -> for how long it is kept, in seconds: 20 and 65 minutes, 6.5 and 26 hours, 31 days."""
SLOT = min(KEEP)
TOTALS = 0
"""The width of the slot that is never deleted; only groups have it, for the histograms of Prometheus."""
MAX_SUBJECTS = {"all": 1, "queue": 1_000, "job_type": 1_000, "tenant": 1_000, "group": 200}
"""How many subjects of a kind have slots of their own; the others share one."""
ALL = Subject("all", "*")
_TARGET_EVENTS = 20_000
_DROP_SECONDS = 300


class SpanRule(NamedTuple):
    """Length of a span, length of its points, width of the slots that it reads; in seconds."""

    seconds: int
    point: int
    slot: int


SPANS: dict[SpanName, SpanRule] = {
    "5m": SpanRule(300, 10, 10),
    "15m": SpanRule(900, 30, 10),
    "hour": SpanRule(3_600, 60, 60),
    "6h": SpanRule(21_600, 300, 300),
    "day": SpanRule(86_400, 900, 900),
    "week": SpanRule(604_800, 7_200, 7_200),
    "30d": SpanRule(2_592_000, 28_800, 7_200),
}
GROUP_SPANS: dict[SpanName, SpanRule] = {
    "5m": SpanRule(300, 60, 60),
    "15m": SpanRule(900, 60, 60),
    "hour": SpanRule(3_600, 300, 300),
    "6h": SpanRule(21_600, 900, 900),
    "day": SpanRule(86_400, 7_200, 7_200),
    "week": SpanRule(604_800, 86_400, 86_400),
    "30d": SpanRule(2_592_000, 86_400, 86_400),
}
"""The same for lists of all queues, types or tenants: at most 30 slots of each, so that a thousand are read fast."""
Sums = dict[tuple[int, Subject], SlotSums]
"""(slot of SLOT seconds, subject) -> its sums"""


class SeriesRecorder(LogFollower[Sums]):
    """Sums events from the stored position on."""

    def __init__(self, engine: Runtime) -> None:
        super().__init__(engine, LOG, EVENTS, self._sum_range, self._add_sums, target_entries=_TARGET_EVENTS)
        self._groups: dict[int, Group] = {}
        self._dropped_at = 0

    async def _sum_range(self, tx: Tx, position: int, until: int) -> tuple[int, Sums]:
        rows = await tx.series.time_events(position, until, SLOT * SECOND)
        if any(row.lane_group not in self._groups for row in rows):
            self._groups = await read_groups(tx.event_counts)
        return sum(row.number for row in rows), sum_events(rows, self._groups, self.runtime.contracts)

    async def _add_sums(self, tx: Tx, sums: Sums) -> None:
        now = tx.now // SECOND
        ids = await tx.series.subject_ids({subject for _, subject in sums}, MAX_SUBJECTS)
        slots: dict[SlotKey, SlotSums] = {}
        for (slot, subject), slot_sums in sums.items():
            for width in _widths(subject, now - slot * SLOT):
                key = SlotKey(width, ids[subject], slot * SLOT // width if width else 0)
                slots.setdefault(key, SlotSums()).add(slot_sums)
        await tx.series.add_slots(slots)
        if now - self._dropped_at >= _DROP_SECONDS:
            await tx.series.drop_slots({width: (now - seconds) // width for width, seconds in KEEP.items()})
            self._dropped_at = now


def _widths(subject: Subject, age: int) -> Iterator[int]:
    """The widths of the slots to which events of this age are added."""
    if subject.kind == "group":
        yield TOTALS
    else:
        yield from (width for width, seconds in KEEP.items() if age < seconds)


def sum_events(rows: Iterable[Timed], groups: Mapping[int, Group], contracts: Mapping[str, Contract]) -> Sums:
    """Sum events per slot and subject by the meaning of their contract's edge; events without an edge are left out."""
    sums: Sums = {}
    for row in rows:
        group = groups.get(row.lane_group, UNKNOWN)
        row_sums = sums_of(contracts.get(group.contract), row)
        if row_sums is None:
            continue
        subjects = (
            ALL,
            Subject("queue", group.queue),
            Subject("job_type", group.job_type),
            Subject("tenant", row.tenant),
            Subject("group", str(row.lane_group)),
        )
        for subject in subjects:
            sums.setdefault((row.slot, subject), SlotSums()).add(row_sums)
    return sums


def sums_of(contract: Contract | None, row: Timed) -> SlotSums | None:
    """What these events mean; None if their contract has no such edge (any more)."""
    edge = edge_of(contract, row.source, row.event, row.target)
    if contract is None or edge is None:
        return None
    sums = SlotSums()
    durations = {} if row.bucket is None else {min(row.bucket, LAST): row.number}
    if edge.source is None:
        sums.submitted = row.number
    elif contract.phase(edge.source) is Phase.LEASED:
        sums.runs, sums.ran = durations, row.took
    elif edge.move is Move.CLAIM:
        sums.waits, sums.waited = durations, row.took
    if edge.move is Move.RETRY:
        sums.retried = row.number
    elif edge.move is Move.SUCCEED:
        sums.succeeded = row.number
    elif edge.move is not Move.CANCEL and contract.phase(edge.target) is Phase.FINAL:
        sums.failed = row.number
    return sums


async def read_totals(tx: Tx) -> list[SubjectSlot]:
    """The histograms of each group since the beginning; the name is the group's number, '' for the others."""
    return await tx.series.read_slots(TOTALS, 0, 1, "group", None)
