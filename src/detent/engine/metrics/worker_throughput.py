"""How many executions one worker ended lately, counted from the newest part of the log when somebody looks.

Nothing is stored per worker. The log is read backwards in ranges until the window or the budget of events is used up,
so that the cost is bounded whatever the load: the busier the system, the shorter the time that is counted.
"""

from collections.abc import Mapping
from typing import cast

from detent.core.contract.model import Contract
from detent.core.job import Micros
from detent.core.times import SECOND, iso
from detent.engine.reads import operations
from detent.ports.metrics import SlotSums, Timed, WorkerEvents
from detent.ports.tx import Tx

from .event_counts import EVENTS
from .time_series import sums_of

MINUTE = 60 * SECOND
WINDOW = 15 * MINUTE
MAX_EVENTS = 50_000
_RANGE_EVENTS = 20_000
_FIRST_RANGE = 4_096
_MAX_RANGES = 40


async def read_throughput(tx: Tx, worker: str, contracts: Mapping[str, Contract]) -> operations.WorkerThroughput:
    """The executions that this worker ended, by minute, in the last 15 minutes or the last 50,000 events."""
    rows, since = await _newest_events(tx, worker)
    slots: dict[int, SlotSums] = {slot: SlotSums() for slot in range(since // MINUTE, tx.now // MINUTE + 1)}
    for row in rows:
        if row.slot in slots:
            timed = Timed(0, "", row.source, row.event, row.target, row.slot, None, row.number, 0)
            slots[row.slot].add(sums_of(contracts.get(row.contract), timed) or SlotSums())
    total = SlotSums()
    for sums in slots.values():
        total.add(sums)
    points = [{"at": iso(slot * MINUTE), **_numbers(sums)} for slot, sums in slots.items()]
    view = {"since": iso(since), "seconds": (tx.now - since) / SECOND, **_numbers(total), "points": points}
    return cast(operations.WorkerThroughput, view)


def _numbers(sums: SlotSums) -> dict[str, int]:
    return {"ended_well": sums.succeeded, "ended_badly": sums.failed, "retries": sums.retried}


async def _newest_events(tx: Tx, worker: str) -> tuple[list[WorkerEvents], Micros]:
    """(the worker's events, the time since which all were read). A range with too many events is read in parts."""
    since, reached = tx.now - WINDOW, tx.now
    until, size, left = await tx.log_positions.log_end(EVENTS), _FIRST_RANGE, MAX_EVENTS
    rows: list[WorkerEvents] = []
    for _ in range(_MAX_RANGES):
        limit = min(_RANGE_EVENTS, left)
        position = max(0, until - size)
        part = await tx.event_counts.events_of_worker(worker, position, until, MINUTE, limit + 1)
        number = sum(row.number for row in part)
        if number > limit and size > 1:
            size = max(1, size // 4)
            continue
        rows += [row for row in part if row.slot is not None]
        reached = min((reached, *(row.first_at for row in part)))
        if position == 0 or reached <= since:
            return rows, since
        until, left = position, left - number
        if left <= 0 or number > limit:
            break
        size = size * 4 if number * 4 < limit else size
    return rows, max(since, reached)
