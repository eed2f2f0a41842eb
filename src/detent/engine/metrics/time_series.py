"""How it has been going: throughput and latency by ten seconds, added up from the log in commit order, kept for a week.

Like the tallies, a stretch is read in one transaction and added up by compare-and-set in another, so several processes
that record count everything once.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.core.contract.model import Contract, Move, Phase
from detent.core.times import SECOND, iso
from detent.ports.tx import Tx

from .event_counts import UNKNOWN, Group, edge_of, groups

if TYPE_CHECKING:
    from detent.engine.engine import Engine

LOG = "series"
SLOT = 10 * SECOND
KEEP_SLOTS = 8 * 86_400 * SECOND // SLOT
SPANS = {"hour": (3_600, 30), "day": (86_400, 900), "week": (604_800, 7_200)}
"""Span -> (its seconds, the seconds of one point)."""
_FIRST_STRETCH = 4_096
_LONGEST_STRETCH = 1 << 40
_ENOUGH = 5_000
_COLUMNS = 8
SUBMITTED, SUCCEEDED, FAILED, RETRIED, WAITS, WAITED, RUNS, RAN = range(_COLUMNS)


class Timed(NamedTuple):
    """Events of one kind within ten seconds: how many, and how long jobs had been where they found them, together."""

    lane_group: int
    source: str
    event: str
    target: str
    before: str
    slot: int
    number: int
    took: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the log, added up."""

    position: int
    version: int
    until: int
    end: int
    events: int
    sums: Mapping[int, list[int]]


class Recorder:
    """Goes on from where the database says; knows only how long the next stretch should be."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._stretch = _FIRST_STRETCH
        self._groups: dict[int, Group] = {}

    async def catch_up(self, steps: int = 16) -> bool:
        """Add up what was logged meanwhile, in at most so many stretches; True if nothing is left."""
        for _ in range(steps):
            found = await self._engine.store.read(self._look)
            if found.until == found.position:
                return True
            await self._engine.store.write(partial(_add, found))
            if found.events < _ENOUGH // 2:
                self._stretch = min(self._stretch * 4, _LONGEST_STRETCH)
            elif found.events > _ENOUGH * 2:
                self._stretch = max(self._stretch // 2, 1)
            if found.until >= found.end:
                return True
        return False

    async def _look(self, tx: Tx) -> Stretch:
        position, version = {row[0]: row[1:3] for row in await tx.query("tails")}.get(LOG, (0, 0))
        await tx.query("tail_mode")
        end = (await tx.query("tail_end_events"))[0][0]
        until = min(end, position + self._stretch)
        rows: list[Timed] = []
        if until > position:
            values = {"position": position, "until": until, "slot": SLOT}
            rows = [Timed(*row) for row in await tx.query("time_events", **values)]
        if any(row.lane_group not in self._groups for row in rows):
            self._groups = await groups(tx)
        sums = added_up(rows, self._groups, self._engine.contracts)
        return Stretch(position, version, until, end, sum(row.number for row in rows), sums)


async def _add(found: Stretch, tx: Tx) -> None:
    await tx.change("first_tail", log=LOG)
    values = {"log": LOG, "position": found.position, "version": found.version, "until": found.until}
    if not await tx.change("advance_tail", **values):
        return
    oldest = tx.now // SLOT - KEEP_SLOTS
    rows = [[slot, *sums] for slot, sums in found.sums.items() if slot >= oldest]
    if rows:
        await tx.change("add_series", rows=json.dumps(rows))
    await tx.change("drop_series", before=oldest)


def added_up(
    rows: Iterable[Timed], known: Mapping[int, Group], contracts: Mapping[str, Contract]
) -> dict[int, list[int]]:
    """What each event means, by the contract's table; what the table does not know (any more) is left out."""
    sums: dict[int, list[int]] = {}
    for row in rows:
        contract = contracts.get(known.get(row.lane_group, UNKNOWN).contract)
        edge = edge_of(contract, row.source, row.event, row.target)
        if contract is None or edge is None:
            continue
        its = sums.setdefault(row.slot, [0] * _COLUMNS)
        if edge.source is None:
            its[SUBMITTED] += row.number
        if edge.move is Move.CLAIM and not _was_told_to_wait(contract, row):
            its[WAITS] += row.number
            its[WAITED] += row.took
        if edge.source is not None and contract.phase(edge.source) is Phase.LEASED:
            its[RUNS] += row.number
            its[RAN] += row.took
        if edge.move is Move.RETRY:
            its[RETRIED] += row.number
        elif edge.move is Move.SUCCEED:
            its[SUCCEEDED] += row.number
        elif edge.move is not Move.CANCEL and contract.phase(edge.target) is Phase.FINAL:
            its[FAILED] += row.number
    return sums


def _was_told_to_wait(contract: Contract, row: Timed) -> bool:
    """A retry waits because it should; only what was ready at once tells how quickly jobs are picked up."""
    return any(e.move is Move.RETRY and e.event == row.before and e.target == row.source for e in contract.edges)


async def series_view(engine: "Engine", span: str) -> dict[str, Any]:
    """Whole points only: the one under way would look like a fall."""
    seconds, width = SPANS[span]
    slots = width * SECOND // SLOT

    async def look(tx: Tx) -> tuple[int, list[Any]]:
        last = tx.now // (width * SECOND)
        first = last - seconds // width
        return last, await tx.query("series", width=slots, first=first * slots, last=last * slots)

    last, rows = await engine.store.read(look)
    found = {row[0]: [int(value) for value in row[1:]] for row in rows}
    points = [_point(at, width, found.get(at, [0] * _COLUMNS)) for at in range(last - seconds // width, last)]
    return {"span": span, "at": iso(last * width * SECOND), "bucket_seconds": width, "points": points}


def _point(number: int, width: int, sums: list[int]) -> dict[str, Any]:
    return {
        "at": iso(number * width * SECOND),
        "submitted": sums[SUBMITTED],
        "ended_well": sums[SUCCEEDED],
        "ended_badly": sums[FAILED],
        "retries": sums[RETRIED],
        "wait_ms": round(sums[WAITED] / sums[WAITS] / 1_000, 3) if sums[WAITS] else None,
        "run_ms": round(sums[RAN] / sums[RUNS] / 1_000, 3) if sums[RUNS] else None,
    }
