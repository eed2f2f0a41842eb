"""Throughput and latency in slots of ten seconds, summed from the log in commit order and kept for a week.

As in event_counts, a range of the log is read in one transaction and added by compare-and-set in another, so that
several recording processes count every event once.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from detent.core.contract.model import Contract, Move, Phase
from detent.core.times import SECOND, iso
from detent.ports.metrics import Group, LogPosition, SlotSums, Timed
from detent.ports.tx import Tx

from .event_counts import EVENTS, UNKNOWN, edge_of, read_groups

if TYPE_CHECKING:
    from detent.engine.engine import Engine

LOG = "series"
SLOT = 10 * SECOND
KEEP_SLOTS = 8 * 86_400 * SECOND // SLOT
SPANS = {"hour": (3_600, 30), "day": (86_400, 900), "week": (604_800, 7_200)}
"""Name of a span -> (its length in seconds, seconds per point)."""
_FIRST_RANGE = 4_096
_MAX_RANGE = 1 << 40
_TARGET_EVENTS = 5_000


@dataclass(frozen=True, slots=True)
class SummedRange:
    """The sums of one range of the log. end: the end of the log when it was read."""

    since: LogPosition
    until: int
    end: int
    events: int
    sums: Mapping[int, SlotSums]


class SeriesRecorder:
    """Sums events from the stored position on. Its only state is the size of the next range."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._range_size = _FIRST_RANGE
        self._groups: dict[int, Group] = {}

    async def catch_up(self, steps: int = 16) -> bool:
        """Sum new events in at most `steps` ranges; True if the end of the log was reached."""
        for _ in range(steps):
            summed = await self._engine.store.read(self._read_range)
            if summed.until == summed.since.position:
                return True
            await self._engine.store.write(partial(_add_sums, summed))
            if summed.events < _TARGET_EVENTS // 2:
                self._range_size = min(self._range_size * 4, _MAX_RANGE)
            elif summed.events > _TARGET_EVENTS * 2:
                self._range_size = max(self._range_size // 2, 1)
            if summed.until >= summed.end:
                return True
        return False

    async def _read_range(self, tx: Tx) -> SummedRange:
        since, end = await tx.log_positions.log_position(LOG), await tx.log_positions.log_end(EVENTS)
        until = min(end, since.position + self._range_size)
        rows = await tx.series.time_events(since.position, until, SLOT) if until > since.position else []
        if any(row.lane_group not in self._groups for row in rows):
            self._groups = await read_groups(tx.event_counts)
        sums = sum_events(rows, self._groups, self._engine.contracts)
        return SummedRange(since, until, end, sum(row.number for row in rows), sums)


async def _add_sums(summed: SummedRange, tx: Tx) -> None:
    if await tx.log_positions.advance_log(LOG, summed.since, summed.until):
        oldest = tx.now // SLOT - KEEP_SLOTS
        await tx.series.add_series({slot: sums for slot, sums in summed.sums.items() if slot >= oldest})
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


async def series_view(engine: "Engine", span: str) -> dict[str, Any]:
    """The series for one span. Only complete points: the current one would look like a drop."""
    seconds, width = SPANS[span]
    slots = width * SECOND // SLOT

    async def read(tx: Tx) -> tuple[int, dict[int, SlotSums]]:
        last = tx.now // (width * SECOND)
        first = last - seconds // width
        return last, await tx.series.read_series(slots, first * slots, last * slots)

    last, sums = await engine.store.read(read)
    points = [_point(at, width, sums.get(at, SlotSums())) for at in range(last - seconds // width, last)]
    return {"span": span, "at": iso(last * width * SECOND), "bucket_seconds": width, "points": points}


def _point(number: int, width: int, sums: SlotSums) -> dict[str, Any]:
    return {
        "at": iso(number * width * SECOND),
        "submitted": sums.submitted,
        "ended_well": sums.succeeded,
        "ended_badly": sums.failed,
        "retries": sums.retried,
        "wait_ms": round(sums.waited / sums.waits / 1_000, 3) if sums.waits else None,
        "run_ms": round(sums.ran / sums.runs / 1_000, 3) if sums.runs else None,
    }
