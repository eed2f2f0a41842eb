"""Throughput and latency in slots of ten seconds, summed from the log in commit order and kept for a week."""

from collections.abc import Iterable, Mapping
from typing import Literal

from detent.core.contract.model import Contract, Move, Phase
from detent.core.times import SECOND, iso
from detent.engine.reads import operations
from detent.engine.reads.responses import show
from detent.engine.runtime import Runtime
from detent.ports.metrics import Group, SlotSums, Timed
from detent.ports.tx import Tx

from .event_counts import EVENTS, SLOT, UNKNOWN, edge_of, read_groups
from .log_follower import LogFollower

LOG = "series"
KEEP_SLOTS = 8 * 86_400 * SECOND // SLOT
Span = Literal["hour", "day", "week"]
SPANS: dict[Span, tuple[int, int]] = {"hour": (3_600, 30), "day": (86_400, 900), "week": (604_800, 7_200)}
"""Name of a span -> (its length in seconds, seconds per point)."""
_TARGET_EVENTS = 5_000


class SeriesRecorder(LogFollower[dict[int, SlotSums]]):
    """Sums events from the stored position on."""

    def __init__(self, engine: Runtime) -> None:
        super().__init__(engine, LOG, EVENTS, self._sum_range, _add_sums, target_entries=_TARGET_EVENTS)
        self._groups: dict[int, Group] = {}

    async def _sum_range(self, tx: Tx, position: int, until: int) -> tuple[int, dict[int, SlotSums]]:
        rows = await tx.series.time_events(position, until, SLOT)
        if any(row.lane_group not in self._groups for row in rows):
            self._groups = await read_groups(tx.event_counts)
        return sum(row.number for row in rows), sum_events(rows, self._groups, self.runtime.contracts)


async def _add_sums(tx: Tx, sums: dict[int, SlotSums]) -> None:
    oldest = tx.now // SLOT - KEEP_SLOTS
    await tx.series.add_series({slot: slot_sums for slot, slot_sums in sums.items() if slot >= oldest})
    await tx.series.drop_series(oldest)


def sum_events(
    rows: Iterable[Timed], groups: Mapping[int, Group], contracts: Mapping[str, Contract]
) -> dict[int, SlotSums]:
    """Sum events per slot by the meaning of their contract's edge; events without an edge are left out."""
    sums: dict[int, SlotSums] = {}
    for row in rows:
        contract = contracts.get(groups.get(row.lane_group, UNKNOWN).contract)
        edge = edge_of(contract, row.source, row.event, row.target)
        if contract is None or edge is None:
            continue
        slot_sums = sums.setdefault(row.slot, SlotSums())
        if edge.source is None:
            slot_sums.submitted += row.number
        if edge.move is Move.CLAIM and not _waited_for_retry(contract, row):
            slot_sums.waits += row.number
            slot_sums.waited += row.took
        if edge.source is not None and contract.phase(edge.source) is Phase.LEASED:
            slot_sums.runs += row.number
            slot_sums.ran += row.took
        if edge.move is Move.RETRY:
            slot_sums.retried += row.number
        elif edge.move is Move.SUCCEED:
            slot_sums.succeeded += row.number
        elif edge.move is not Move.CANCEL and contract.phase(edge.target) is Phase.FINAL:
            slot_sums.failed += row.number
    return sums


def _waited_for_retry(contract: Contract, row: Timed) -> bool:
    """True for a job claimed after a retry: it waited for its backoff, so it does not count for the claim latency."""
    return any(e.move is Move.RETRY and e.event == row.before and e.target == row.source for e in contract.edges)


async def series_view(engine: Runtime, span: Span) -> operations.TimeSeries:
    """The series for one span. Only complete points: the current one would look like a drop."""
    seconds, width = SPANS[span]
    slots = width * SECOND // SLOT

    async def read(tx: Tx) -> tuple[int, dict[int, SlotSums]]:
        last = tx.now // (width * SECOND)
        first = last - seconds // width
        return last, await tx.series.read_series(slots, first * slots, last * slots)

    last, sums = await engine.store.read(read)
    points = [_point(at, width, sums.get(at, SlotSums())) for at in range(last - seconds // width, last)]
    at = iso(last * width * SECOND)
    return show(operations.TimeSeries, None, span=span, at=at, bucket_seconds=width, points=points)


def _point(number: int, width: int, sums: SlotSums) -> operations.SeriesPoint:
    return show(
        operations.SeriesPoint,
        sums,
        at=iso(number * width * SECOND),
        ended_well=sums.succeeded,
        ended_badly=sums.failed,
        retries=sums.retried,
        wait_ms=round(sums.waited / sums.waits / 1_000, 3) if sums.waits else None,
        run_ms=round(sums.ran / sums.runs / 1_000, 3) if sums.runs else None,
    )
