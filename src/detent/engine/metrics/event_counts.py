"""What the logs add up to: every event and note counted once, in commit order, by whichever process comes by.

The sums are stored with the place up to which they hold, so they equal the log's after any restart. A stretch is
counted in a reading transaction; adding it up is a compare-and-set, so of several who counted the same one adds.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.core.contract.model import Contract, Edge, Move
from detent.core.times import SECOND
from detent.ports.tx import Tx

if TYPE_CHECKING:
    from detent.engine.engine import Engine

EVENTS, NOTES, LOSSES = "events", "notes", "losses"
SLOT = 10 * SECOND
"""How finely the last hours are told apart."""
KEEP_SLOTS = 2 * 3_600 * SECOND // SLOT
_FIRST_STRETCH = 4_096
_LONGEST_STRETCH = 1 << 40
_HOT = "abcdefgh"
"""The places of the query that counts without sorting."""
_ENOUGH = 20_000
"""Rows in one stretch; fewer make the next one longer, more make it shorter."""


class Group(NamedTuple):
    """One kind of job."""

    contract: str
    queue: str
    job_type: str


UNKNOWN = Group("other", "other", "other")


class Key(NamedTuple):
    """One edge walked by one kind of job; party only where it matters whose job it was."""

    lane_group: int
    party: int
    source: str
    event: str
    target: str


@dataclass(frozen=True, slots=True)
class Counted:
    """A stretch of one log: where it ends, and what happened in it, in all and by moment."""

    log: str
    position: int
    version: int
    until: int
    end: int
    sums: Mapping[Key, int]
    slots: Mapping[tuple[int, Key], int]


class Follower:
    """Counts on from where the database says. Knows only how long the next stretch should be."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._stretch = {EVENTS: _FIRST_STRETCH, NOTES: _FIRST_STRETCH}
        self._hot: list[list[Any]] = []
        """The kinds of events there were most of in the last stretch, as rows of the query."""
        self.groups: dict[int, Group] = {}

    async def catch_up(self, steps: int = 64) -> bool:
        """Count what was logged meanwhile, at most so many stretches of each log; True if nothing is left."""
        return all([await self._catch_up(log, steps) for log in (EVENTS, NOTES)])

    async def _catch_up(self, log: str, steps: int) -> bool:
        for _ in range(steps):
            found = await self._engine.store.read(partial(self._count, log))
            if found.until == found.position:
                return True
            await self._engine.store.write(partial(_add_up, found))
            rows = sum(found.sums.values())
            if rows < _ENOUGH // 2:
                self._stretch[log] = min(self._stretch[log] * 4, _LONGEST_STRETCH)
            elif rows > _ENOUGH * 2:
                self._stretch[log] = max(self._stretch[log] // 2, 1)
            if found.until >= found.end:
                return True
        return False

    async def _count(self, log: str, tx: Tx) -> Counted:
        position, version = {row[0]: row[1:3] for row in await tx.query("tails")}.get(log, (0, 0))
        await tx.query("tail_mode")
        end = (await tx.query(f"tail_end_{log}"))[0][0]
        until = max(position, min(end, position + self._stretch[log]))
        rows = await self._rows(tx, log, position, until) if until > position else []
        if any(row[1] not in self.groups for row in rows):
            self.groups = await groups(tx)
        sums, slots = _sorted_out(rows, self.groups, self._engine.contracts)
        return Counted(log, position, version, until, end, sums, slots)

    async def _rows(self, tx: Tx, log: str, position: int, until: int) -> list[Any]:
        """Under load nearly all events are of a few kinds: those are counted without sorting, if that tells all."""
        values = {"position": position, "until": until, "slot": SLOT}
        if log == EVENTS and self._hot:
            (found,) = await tx.query("count_hot_events", **values, **_names(self._hot))
            total, first, last, *numbers = found
            if first == last and sum(numbers) == total:
                return [[*row[:6], first, n] for row, n in zip(self._hot, numbers, strict=False) if n]
        rows = await tx.query(f"count_{log}", **values)
        if log == EVENTS:
            kinds = {(row[0], row[3], row[4]): row for row in rows if row[0] is not None}
            self._hot = [list(row) for row in sorted(kinds.values(), key=lambda row: -row[7])[: len(_HOT)]]
        return rows


def _names(hot: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """The values of the query's places; a place without a kind asks for one that does not exist."""
    names: dict[str, Any] = {}
    for place, dead_letter in enumerate(_HOT):
        lane, source, event = (hot[place][0], hot[place][3], hot[place][4]) if place < len(hot) else (-1, "", "")
        names |= {f"lane_{dead_letter}": lane, f"source_{dead_letter}": source, f"event_{dead_letter}": event}
    return names


async def count_going(engine: "Engine", tx: Tx, ids: Sequence[str]) -> None:
    """Before jobs are deleted: what of their logs nobody has counted is counted as it goes."""
    for log in (EVENTS, NOTES):
        await tx.change("first_tail", log=log)
    await tx.query("lock_tails")
    text = json.dumps(list(ids))
    for log in (EVENTS, NOTES):
        rows = await tx.query(f"count_going_{log}", ids=text, slot=SLOT)
        if rows:
            sums, slots = _sorted_out(rows, await groups(tx), engine.contracts)
            await _store(tx, log, sums, slots)
            await tx.change("recount_tail", log=log)


async def clamp(tx: Tx) -> None:
    """After jobs were deleted: a position never lies beyond the end of its log."""
    for log in (EVENTS, NOTES):
        await tx.change(f"clamp_tail_{log}")


async def groups(tx: Tx) -> dict[int, Group]:
    return {0: UNKNOWN} | {row[0]: Group(*row[1:]) for row in await tx.query("lane_groups")}


async def count_losses(tx: Tx, charged: int, uncharged: int) -> None:
    """Jobs taken from lost workers, in the transaction that takes them."""
    told = {Key(0, 0, "", "charged", ""): charged, Key(0, 0, "", "uncharged", ""): uncharged}
    await _store(tx, LOSSES, {key: number for key, number in told.items() if number}, {})


async def _add_up(found: Counted, tx: Tx) -> bool:
    await tx.change("first_tail", log=found.log)
    values = {"log": found.log, "position": found.position, "version": found.version, "until": found.until}
    if not await tx.change("advance_tail", **values):
        return False
    await _store(tx, found.log, found.sums, found.slots)
    return True


async def _store(tx: Tx, log: str, sums: Mapping[Key, int], slots: Mapping[tuple[int, Key], int]) -> None:
    if sums:
        await tx.change("add_tallies", log=log, rows=json.dumps([[*key, number] for key, number in sums.items()]))
    oldest = tx.now // SLOT - KEEP_SLOTS
    fresh = [[slot, *key, number] for (slot, key), number in slots.items() if slot >= oldest]
    if fresh:
        await tx.change("add_tally_slots", log=log, rows=json.dumps(fresh))


def _sorted_out(
    rows: Iterable[Any], known: Mapping[int, Group], contracts: Mapping[str, Contract]
) -> tuple[Counter[Key], Counter[tuple[int, Key]]]:
    sums: Counter[Key] = Counter()
    slots: Counter[tuple[int, Key]] = Counter()
    for _, group, party, source, event, target, slot, number in rows:
        edge = edge_of(contracts.get(known.get(group, UNKNOWN).contract), source, event, target)
        whose = party if edge is not None and edge.move is Move.FAIL else 0
        key = Key(group, whose, source, event, target)
        sums[key] += number
        slots[slot, key] += number
    return sums, slots


def edge_of(contract: Contract | None, source: str, event: str, target: str) -> Edge | None:
    """The edge of the table an event walked; None for what the contract does not know (any more)."""
    if contract is None:
        return None
    for edge in contract.edges:
        if edge.event == event and edge.target == target and (edge.source or "") == source:
            return edge
    return None
