"""Counts every event and note exactly once, in commit order; any process may do it.

The totals are stored with the log position up to which they are complete, so they are exact after any restart. A range
of the log is counted in a read transaction. Adding its counts is a compare-and-set of the position, so if several
processes count the same range, one of them adds it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from detent.core.contract.model import Contract, Edge, Move
from detent.core.times import SECOND
from detent.ports.metrics import CountedEntries, EventCountTable, Group, Key, LogPosition, LogPositionTable
from detent.ports.tx import Tx

if TYPE_CHECKING:
    from detent.engine.engine import Engine

EVENTS, NOTES, LOSSES = "events", "notes", "losses"
SLOT = 10 * SECOND
"""Length of the time slots in which recent events are counted, in microseconds."""
KEEP_SLOTS = 2 * 3_600 * SECOND // SLOT
_FIRST_RANGE = 4_096
_MAX_RANGE = 1 << 40
_FREQUENT_KINDS = 8
_TARGET_ROWS = 20_000
"""Target number of events per range; the size of the next range is adapted to it."""


UNKNOWN = Group("other", "other", "other")


@dataclass(frozen=True, slots=True)
class CountedRange:
    """The counts of one range of a log, in total and by time slot. end: the end of the log when it was read."""

    log: str
    since: LogPosition
    until: int
    end: int
    sums: Mapping[Key, int]
    slots: Mapping[tuple[int, Key], int]


class EventCounter:
    """Counts from the stored position on. Its only state is the size of the next range and the frequent kinds."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._range_size = {EVENTS: _FIRST_RANGE, NOTES: _FIRST_RANGE}
        self._frequent: list[CountedEntries] = []
        """The most frequent kinds of events in the last range."""
        self.groups: dict[int, Group] = {}

    async def catch_up(self, steps: int = 64) -> bool:
        """Count new log entries, at most `steps` ranges of each log; True if the end was reached."""
        return all([await self._catch_up(log, steps) for log in (EVENTS, NOTES)])

    async def _catch_up(self, log: str, steps: int) -> bool:
        for _ in range(steps):
            counted = await self._engine.store.read(partial(self._count, log))
            if counted.until == counted.since.position:
                return True
            await self._engine.store.write(partial(_add_counts, counted))
            rows = sum(counted.sums.values())
            if rows < _TARGET_ROWS // 2:
                self._range_size[log] = min(self._range_size[log] * 4, _MAX_RANGE)
            elif rows > _TARGET_ROWS * 2:
                self._range_size[log] = max(self._range_size[log] // 2, 1)
            if counted.until >= counted.end:
                return True
        return False

    async def _count(self, log: str, tx: Tx) -> CountedRange:
        since, end = await tx.log_positions.log_position(log), await tx.log_positions.log_end(log)
        position = since.position
        until = max(position, min(end, position + self._range_size[log]))
        rows = await self._rows(tx.event_counts, log, position, until) if until > position else []
        if any(row.lane_group not in self.groups for row in rows):
            self.groups = await read_groups(tx.event_counts)
        sums, slots = _sum_rows(rows, self.groups, self._engine.contracts)
        return CountedRange(log, since, until, end, sums, slots)

    async def _rows(self, counts: EventCountTable, log: str, position: int, until: int) -> list[CountedEntries]:
        """Under load nearly all events are of a few kinds. If the range has only these, one query without a sort
        is enough; else the general query runs."""
        if log == EVENTS and self._frequent:
            total, first, last, numbers = await counts.count_frequent(self._frequent, position, until, SLOT)
            if first is not None and first == last and sum(numbers) == total:
                kinds = zip(self._frequent, numbers, strict=False)
                return [kind._replace(slot=first, number=number) for kind, number in kinds if number]
        rows = await counts.count_log(log, position, until, SLOT)
        if log == EVENTS:
            frequent = {(row.lane, row.source, row.event): row for row in rows if row.lane is not None}
            self._frequent = sorted(frequent.values(), key=lambda row: -row.number)[:_FREQUENT_KINDS]
        return rows


async def count_before_delete(engine: "Engine", tx: Tx, ids: Sequence[str]) -> None:
    """Before jobs are deleted, count those of their log entries that are not counted yet."""
    await tx.log_positions.lock_logs((EVENTS, NOTES))
    for log in (EVENTS, NOTES):
        rows = await tx.event_counts.count_uncounted(log, ids, SLOT)
        if rows:
            sums, slots = _sum_rows(rows, await read_groups(tx.event_counts), engine.contracts)
            await _add_rows(tx, log, sums, slots)
            await tx.log_positions.recount_log(log)


async def clamp_positions(positions: LogPositionTable) -> None:
    """After jobs are deleted, move stored positions back to the end of their log if they are beyond it."""
    for log in (EVENTS, NOTES):
        await positions.clamp_log(log)


async def read_groups(counts: EventCountTable) -> dict[int, Group]:
    return {0: UNKNOWN} | await counts.lane_groups()


async def count_losses(counts: EventCountTable, charged: int, uncharged: int) -> None:
    """Count jobs taken back from lost workers, in the transaction that takes them back."""
    numbers = {Key(0, 0, "", "charged", ""): charged, Key(0, 0, "", "uncharged", ""): uncharged}
    await counts.add_counts(LOSSES, {key: number for key, number in numbers.items() if number})


async def _add_counts(counted: CountedRange, tx: Tx) -> None:
    if await tx.log_positions.advance_log(counted.log, counted.since, counted.until):
        await _add_rows(tx, counted.log, counted.sums, counted.slots)


async def _add_rows(tx: Tx, log: str, sums: Mapping[Key, int], slots: Mapping[tuple[int, Key], int]) -> None:
    oldest = tx.now // SLOT - KEEP_SLOTS
    await tx.event_counts.add_counts(log, sums)
    await tx.event_counts.add_recent_counts(log, {key: number for key, number in slots.items() if key[0] >= oldest})


def _sum_rows(
    rows: Iterable[CountedEntries], groups: Mapping[int, Group], contracts: Mapping[str, Contract]
) -> tuple[Counter[Key], Counter[tuple[int, Key]]]:
    sums: Counter[Key] = Counter()
    slots: Counter[tuple[int, Key]] = Counter()
    for row in rows:
        edge = edge_of(contracts.get(groups.get(row.lane_group, UNKNOWN).contract), row.source, row.event, row.target)
        counted_party = row.party if edge is not None and edge.move is Move.FAIL else 0
        key = Key(row.lane_group, counted_party, row.source, row.event, row.target)
        sums[key] += row.number
        slots[row.slot, key] += row.number
    return sums, slots


def edge_of(contract: Contract | None, source: str, event: str, target: str) -> Edge | None:
    """The contract's edge that this event took; None if the contract has no such edge (any more)."""
    if contract is None:
        return None
    for edge in contract.edges:
        if edge.event == event and edge.target == target and (edge.source or "") == source:
            return edge
    return None
