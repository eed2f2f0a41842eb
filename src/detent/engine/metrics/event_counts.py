"""Counts every event and note exactly once, in total and by time slot; any process may do it."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from detent.core.contract.model import Contract, Edge, Move
from detent.core.times import SECOND
from detent.engine.runtime import Runtime
from detent.ports.tx import Tx

from .log_follower import LogFollower

EVENTS, NOTES, LOSSES = "events", "notes", "losses"
SLOT = 10 * SECOND
"""Length of the time slots in which recent events are counted, in microseconds."""
KEEP_SLOTS = 2 * 3_600 * SECOND // SLOT
_PLACES = "abcdefgh"
"""Suffixes of the parameters of count_hot_events, which counts eight kinds of events without sorting."""
_TARGET_ROWS = 20_000
"""Target number of events per range."""


class Group(NamedTuple):
    """Jobs of one contract, queue and job type."""

    contract: str
    queue: str
    job_type: str


UNKNOWN = Group("other", "other", "other")


class Key(NamedTuple):
    """One edge taken by jobs of one group. party: the tenant's number for FAIL edges, else 0."""

    lane_group: int
    party: int
    source: str
    event: str
    target: str


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
        self._frequent: list[list[Any]] = []
        """The most frequent kinds of events in the last range, as rows of the query."""
        self.groups: dict[int, Group] = {}

    async def catch_up(self, steps: int = 64) -> bool:
        """Count new log entries, at most `steps` ranges of each log; True if the end was reached."""
        return all([await follower.catch_up(steps) for follower in self._followers])

    async def _count(self, log: str, tx: Tx, values: dict[str, Any]) -> tuple[int, Counts]:
        rows = await self._rows(tx, log, {**values, "slot": SLOT})
        if any(row[1] not in self.groups for row in rows):
            self.groups = await read_groups(tx)
        counts = _sum_rows(rows, self.groups, self._engine.contracts)
        return sum(counts.sums.values()), counts

    async def _rows(self, tx: Tx, log: str, values: dict[str, Any]) -> list[Any]:
        """Under load nearly all events are of a few kinds. If the range has only these, one query without a sort
        is enough; else the general query runs."""
        if log == EVENTS and self._frequent:
            (row,) = await tx.query("count_hot_events", **values, **_frequent_parameters(self._frequent))
            total, first, last, *numbers = row
            if first == last and sum(numbers) == total:
                return [[*row[:6], first, n] for row, n in zip(self._frequent, numbers, strict=False) if n]
        rows = await tx.query(f"count_{log}", **values)
        if log == EVENTS:
            kinds = {(row[0], row[3], row[4]): row for row in rows if row[0] is not None}
            self._frequent = [list(row) for row in sorted(kinds.values(), key=lambda row: -row[7])[: len(_PLACES)]]
        return rows


def _frequent_parameters(frequent: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """The parameters of count_hot_events; an unused place gets values that match no event."""
    parameters: dict[str, Any] = {}
    for place, suffix in enumerate(_PLACES):
        lane, source, event = (
            (frequent[place][0], frequent[place][3], frequent[place][4]) if place < len(frequent) else (-1, "", "")
        )
        parameters |= {f"lane_{suffix}": lane, f"source_{suffix}": source, f"event_{suffix}": event}
    return parameters


async def count_before_delete(engine: Runtime, tx: Tx, ids: Sequence[str]) -> None:
    """Before jobs are deleted, count those of their log entries that are not counted yet."""
    for log in (EVENTS, NOTES):
        await tx.change("first_tail", log=log)
    await tx.query("lock_tails")
    text = json.dumps(list(ids))
    for log in (EVENTS, NOTES):
        rows = await tx.query(f"count_going_{log}", ids=text, slot=SLOT)
        if rows:
            await _add_rows(log, tx, _sum_rows(rows, await read_groups(tx), engine.contracts))
            await tx.change("recount_tail", log=log)


async def clamp_positions(tx: Tx) -> None:
    """After jobs are deleted, move stored positions back to the end of their log if they are beyond it."""
    for log in (EVENTS, NOTES):
        await tx.change(f"clamp_tail_{log}")


async def read_groups(tx: Tx) -> dict[int, Group]:
    return {0: UNKNOWN} | {row[0]: Group(*row[1:]) for row in await tx.query("lane_groups")}


async def count_losses(tx: Tx, charged: int, uncharged: int) -> None:
    """Count jobs taken back from lost workers, in the transaction that takes them back."""
    counts = {Key(0, 0, "", "charged", ""): charged, Key(0, 0, "", "uncharged", ""): uncharged}
    await _add_rows(LOSSES, tx, Counts({key: number for key, number in counts.items() if number}, {}))


async def _add_rows(log: str, tx: Tx, counts: Counts) -> None:
    if counts.sums:
        rows = [[*key, number] for key, number in counts.sums.items()]
        await tx.change("add_tallies", log=log, rows=json.dumps(rows))
    oldest = tx.now // SLOT - KEEP_SLOTS
    recent = [[slot, *key, number] for (slot, key), number in counts.slots.items() if slot >= oldest]
    if recent:
        await tx.change("add_tally_slots", log=log, rows=json.dumps(recent))


def _sum_rows(rows: Iterable[Any], groups: Mapping[int, Group], contracts: Mapping[str, Contract]) -> Counts:
    sums: Counter[Key] = Counter()
    slots: Counter[tuple[int, Key]] = Counter()
    for _, group, party, source, event, target, slot, number in rows:
        edge = edge_of(contracts.get(groups.get(group, UNKNOWN).contract), source, event, target)
        counted_party = party if edge is not None and edge.move is Move.FAIL else 0
        key = Key(group, counted_party, source, event, target)
        sums[key] += number
        slots[slot, key] += number
    return Counts(sums, slots)


def edge_of(contract: Contract | None, source: str, event: str, target: str) -> Edge | None:
    """The contract's edge that this event took; None if the contract has no such edge (any more)."""
    if contract is None:
        return None
    for edge in contract.edges:
        if edge.event == event and edge.target == target and (edge.source or "") == source:
            return edge
    return None
