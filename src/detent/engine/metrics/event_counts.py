"""Counts every event and note exactly once, in total and by time slot; any process may do it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from detent.core.contract.model import Contract, Edge, Move
from detent.core.times import SECOND
from detent.engine.runtime import Runtime
from detent.ports.metrics import CountedEntries, EventCountTable, Group, Key
from detent.ports.tx import Tx

from .log_follower import LogFollower

EVENTS, NOTES, LOSSES = "events", "notes", "losses"
SLOT = 10 * SECOND
"""Length of the time slots in which recent events are counted, in microseconds."""
KEEP_SLOTS = 2 * 3_600 * SECOND // SLOT
_FREQUENT_KINDS = 8
_TARGET_ROWS = 20_000
"""Target number of events per range."""


UNKNOWN = Group("other", "other", "other")


class Counts(NamedTuple):
    """The counts of one range of a log, in total and by time slot."""

    sums: Mapping[Key, int]
    slots: Mapping[tuple[int, Key], int]


class EventCounter:
    """Counts from the stored positions on. Its only state is the sizes of the next ranges and the frequent kinds."""

    def __init__(self, engine: Runtime) -> None:
        self._engine = engine
        self._followers = [
            LogFollower(
                engine, log, log, partial(self._count, log), partial(_add_rows, log), target_entries=_TARGET_ROWS
            )
            for log in (EVENTS, NOTES)
        ]
        self._frequent: list[CountedEntries] = []
        """The most frequent kinds of events in the last range."""
        self.groups: dict[int, Group] = {}

    async def catch_up(self, steps: int = 64) -> bool:
        """Count new log entries, at most `steps` ranges of each log; True if the end was reached."""
        return all([await follower.catch_up(steps) for follower in self._followers])

    async def _count(self, log: str, tx: Tx, position: int, until: int) -> tuple[int, Counts]:
        rows = await self._rows(tx.event_counts, log, position, until)
        if any(row.lane_group not in self.groups for row in rows):
            self.groups = await read_groups(tx.event_counts)
        counts = _sum_rows(rows, self.groups, self._engine.contracts)
        return sum(counts.sums.values()), counts

    async def _rows(self, table: EventCountTable, log: str, position: int, until: int) -> list[CountedEntries]:
        """Under load nearly all events are of a few kinds. If the range has only these, one query without a sort
        is enough; else the general query runs."""
        if log == EVENTS and self._frequent:
            total, first, last, numbers = await table.count_frequent(self._frequent, position, until, SLOT)
            if first is not None and first == last and sum(numbers) == total:
                kinds = zip(self._frequent, numbers, strict=False)
                return [kind._replace(slot=first, number=number) for kind, number in kinds if number]
        rows = await table.count_log(log, position, until, SLOT)
        if log == EVENTS:
            frequent = {(row.lane, row.source, row.event): row for row in rows if row.lane is not None}
            self._frequent = sorted(frequent.values(), key=lambda row: -row.number)[:_FREQUENT_KINDS]
        return rows


async def count_before_delete(runtime: Runtime, tx: Tx, events_of: Sequence[str], notes_of: Sequence[str]) -> None:
    """Before events and notes of these jobs are deleted, count those that are not counted yet."""
    await tx.log_positions.lock_logs((EVENTS, NOTES))
    for log, ids in ((EVENTS, events_of), (NOTES, notes_of)):
        rows = await tx.event_counts.count_uncounted(log, ids, SLOT) if ids else []
        if rows:
            await _add_rows(log, tx, _sum_rows(rows, await read_groups(tx.event_counts), runtime.contracts))
            await tx.log_positions.recount_log(log)


async def read_groups(counts: EventCountTable) -> dict[int, Group]:
    return {0: UNKNOWN} | await counts.lane_groups()


async def count_losses(counts: EventCountTable, charged: int, uncharged: int) -> None:
    """Count jobs taken back from lost workers, in the transaction that takes them back."""
    numbers = {Key(0, 0, "", "charged", ""): charged, Key(0, 0, "", "uncharged", ""): uncharged}
    await counts.add_counts(LOSSES, {key: number for key, number in numbers.items() if number})


async def _add_rows(log: str, tx: Tx, counts: Counts) -> None:
    oldest = tx.now // SLOT - KEEP_SLOTS
    recent = {key: number for key, number in counts.slots.items() if key[0] >= oldest}
    await tx.event_counts.add_counts(log, counts.sums)
    await tx.event_counts.add_recent_counts(log, recent)


def _sum_rows(rows: Iterable[CountedEntries], groups: Mapping[int, Group], contracts: Mapping[str, Contract]) -> Counts:
    sums: Counter[Key] = Counter()
    slots: Counter[tuple[int, Key]] = Counter()
    for row in rows:
        edge = edge_of(contracts.get(groups.get(row.lane_group, UNKNOWN).contract), row.source, row.event, row.target)
        counted_party = row.party if edge is not None and edge.move is Move.FAIL else 0
        key = Key(row.lane_group, counted_party, row.source, row.event, row.target)
        sums[key] += row.number
        slots[row.slot, key] += row.number
    return Counts(sums, slots)


def edge_of(contract: Contract | None, source: str, event: str, target: str) -> Edge | None:
    """The contract's edge that this event took; None if the contract has no such edge (any more)."""
    if contract is None:
        return None
    for edge in contract.edges:
        if edge.event == event and edge.target == target and (edge.source or "") == source:
            return edge
    return None
