"""Throughput and latency in slots of ten seconds, summed from the log in commit order and kept for a week."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from detent.core.contract.model import Contract, Move, Phase
from detent.core.times import SECOND, iso
from detent.engine.runtime import Runtime
from detent.ports.tx import Tx

from .event_counts import EVENTS, UNKNOWN, Group, edge_of, read_groups
from .log_follower import LogFollower

LOG = "series"
SLOT = 10 * SECOND
KEEP_SLOTS = 8 * 86_400 * SECOND // SLOT
SPANS = {"hour": (3_600, 30), "day": (86_400, 900), "week": (604_800, 7_200)}
"""Name of a span -> (its length in seconds, seconds per point)."""
_TARGET_EVENTS = 5_000
_COLUMNS = 8
SUBMITTED, SUCCEEDED, FAILED, RETRIED, WAITS, WAITED, RUNS, RAN = range(_COLUMNS)


class Timed(NamedTuple):
    """Events of one kind in one slot. took: total microseconds that their jobs spent in the source status."""

    lane_group: int
    source: str
    event: str
    target: str
    before: str
    slot: int
    number: int
    took: int


SlotSums = dict[int, list[int]]


class SeriesRecorder:
    """Sums events from the stored position on."""

    def __init__(self, engine: Runtime) -> None:
        self._engine = engine
        self._groups: dict[int, Group] = {}
        self._follower = LogFollower(engine, LOG, EVENTS, self._sum_range, _add_sums, target_entries=_TARGET_EVENTS)

    async def catch_up(self, steps: int = 16) -> bool:
        """Sum new events in at most `steps` ranges; True if the end of the log was reached."""
        return await self._follower.catch_up(steps)

    async def _sum_range(self, tx: Tx, values: dict[str, Any]) -> tuple[int, SlotSums]:
        rows = [Timed(*row) for row in await tx.query("time_events", **values, slot=SLOT)]
        if any(row.lane_group not in self._groups for row in rows):
            self._groups = await read_groups(tx)
        return sum(row.number for row in rows), sum_events(rows, self._groups, self._engine.contracts)


async def _add_sums(tx: Tx, slot_sums: SlotSums) -> None:
    oldest = tx.now // SLOT - KEEP_SLOTS
    rows = [[slot, *sums] for slot, sums in slot_sums.items() if slot >= oldest]
    if rows:
        await tx.change("add_series", rows=json.dumps(rows))
    await tx.change("drop_series", before=oldest)


def sum_events(rows: Iterable[Timed], groups: Mapping[int, Group], contracts: Mapping[str, Contract]) -> SlotSums:
    """Sum events per slot by the meaning of their contract's edge; events without an edge are left out."""
    sums: SlotSums = {}
    for row in rows:
        contract = contracts.get(groups.get(row.lane_group, UNKNOWN).contract)
        edge = edge_of(contract, row.source, row.event, row.target)
        if contract is None or edge is None:
            continue
        slot_sums = sums.setdefault(row.slot, [0] * _COLUMNS)
        if edge.source is None:
            slot_sums[SUBMITTED] += row.number
        if edge.move is Move.CLAIM and not _waited_for_retry(contract, row):
            slot_sums[WAITS] += row.number
            slot_sums[WAITED] += row.took
        if edge.source is not None and contract.phase(edge.source) is Phase.LEASED:
            slot_sums[RUNS] += row.number
            slot_sums[RAN] += row.took
        if edge.move is Move.RETRY:
            slot_sums[RETRIED] += row.number
        elif edge.move is Move.SUCCEED:
            slot_sums[SUCCEEDED] += row.number
        elif edge.move is not Move.CANCEL and contract.phase(edge.target) is Phase.FINAL:
            slot_sums[FAILED] += row.number
    return sums


def _waited_for_retry(contract: Contract, row: Timed) -> bool:
    """True for a job claimed after a retry: it waited for its backoff, so it does not count for the claim latency."""
    return any(e.move is Move.RETRY and e.event == row.before and e.target == row.source for e in contract.edges)


async def series_view(engine: Runtime, span: str) -> dict[str, Any]:
    """The series for one span. Only complete points: the current one would look like a drop."""
    seconds, width = SPANS[span]
    slots = width * SECOND // SLOT

    async def read(tx: Tx) -> tuple[int, list[Any]]:
        last = tx.now // (width * SECOND)
        first = last - seconds // width
        return last, await tx.query("series", width=slots, first=first * slots, last=last * slots)

    last, rows = await engine.store.read(read)
    sums = {row[0]: [int(value) for value in row[1:]] for row in rows}
    points = [_point(at, width, sums.get(at, [0] * _COLUMNS)) for at in range(last - seconds // width, last)]
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
