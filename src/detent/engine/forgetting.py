"""Forgetting what grows: old fires of schedules (how far back is on record), counts of limits that nobody asks for."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ..core.job import Micros
from ..core.schedule import Schedule
from ..core.times import SECOND
from ..ports import Filter, Tx
from ..pruning_port import Mark

if TYPE_CHECKING:
    from . import Engine

_PAGE = 200
_IDLE: Micros = 86_400 * SECOND


async def forget_fires(engine: "Engine", keep_seconds: float, batch: int) -> int:
    """Of every schedule the oldest fires whose jobs are gone; never the last one. How many rows went."""
    cutoff = engine.store.now() - int(keep_seconds * SECOND)
    gone, page = 0, Filter(limit=_PAGE)
    while found := await engine.store.read(partial(_schedules, page)):
        for schedule in found:
            number = batch
            while number == batch:
                number = await engine.store.write(partial(_forget, schedule, cutoff, batch))
                gone += number
        page = replace(page, before=found[-1].id)
    return gone


async def forget_meters(engine: "Engine") -> int:
    """Counts by key that were not asked for longer than any limit looks back; the next job begins at nothing."""

    async def act(tx: Tx) -> int:
        limits = [limit for limit, _ in await tx.limits()]
        longest = max((limit.period or 0 for limit in limits), default=0)
        return await tx.forget_meters(tx.now - longest - _IDLE) if limits else 0

    return await engine.store.write(act)


async def _schedules(page: Filter, tx: Tx) -> list[Schedule]:
    return await tx.schedules(page)


async def _forget(schedule: Schedule, cutoff: Micros, batch: int, tx: Tx) -> int:
    before = min(cutoff, schedule.last_fire_at or cutoff)
    upto, number = None, 0
    for fire_at, has_job in await tx.old_fires(schedule.id, before, batch):
        if has_job:
            break
        upto, number = fire_at, number + 1
    if upto is not None:
        await tx.put_mark(_scope(schedule.id), Mark(str(upto), "", "", tx.now))
        await tx.drop_fires(schedule.id, upto)
    return number


async def forgotten(schedule_id: str, tx: Tx) -> Micros | None:
    """Up to this moment nobody knows any more which fires made jobs."""
    mark = await tx.mark(_scope(schedule_id))
    return None if mark is None else int(mark.position)


def _scope(schedule_id: str) -> str:
    return f"fires {schedule_id}"
