"""The part of a transaction that reads and writes schedules and their fires; the same in every store."""

import json
from collections.abc import Sequence
from dataclasses import asdict, fields

from detent.core.job import Micros
from detent.core.schedule import Fire, Plan, Schedule
from detent.ports.listing import Filter

from .named_queries import NamedQueries

SCHEDULE_COLUMNS = tuple(field.name for field in fields(Schedule))
PROGRESS = (
    "next_fire_at",
    "last_fire_at",
    "last_job_id",
    "fires",
    "misfires",
    "last_misfire_at",
    "overlapped",
    "last_error",
    "retry_at",
)
"""Columns changed when a schedule fires; all others are changed by operators and by application code."""
DECIDED = tuple(name for name in SCHEDULE_COLUMNS if name not in (*PROGRESS, "id", "tenant_id", "name", "created_at"))


class ScheduleQueries(NamedQueries):
    """Schedules and fires; the transaction class provides `now`, `query` and `change`."""

    contains: str

    async def schedules(self, filter: Filter) -> list[Schedule]:
        filters = {name: getattr(filter, name) for name in _FILTERS if getattr(filter, name) is not None}
        where = " AND ".join(_FILTERS[name].replace("{contains}", self.contains) for name in filters) or "true"
        return [Schedule(*row) for row in await self.query("schedules", where, **filters, limit=filter.limit)]

    async def schedules_matching(self, reference: str) -> list[Schedule]:
        return [Schedule(*row) for row in await self.query("schedules_matching", reference=reference)]

    async def next_fire(self, contracts: Sequence[str]) -> Micros | None:
        rows = await self.query("next_fire", contracts=json.dumps(list(contracts)))
        return rows[0][0] if rows else None

    async def next_schedules(self, limit: int, contracts: Sequence[str]) -> list[Schedule]:
        rows = await self.query("next_schedules", limit=limit, contracts=json.dumps(list(contracts)))
        return [Schedule(*row) for row in rows]

    async def put_schedule(self, schedule: Schedule) -> bool:
        return await self.change("put_schedule", **asdict(schedule)) == 1

    async def change_schedule(self, before: Schedule, after: Schedule) -> bool:
        values = {name: getattr(after, name) for name in (*DECIDED, "next_fire_at")}
        return await self.change("change_schedule", **values, id=before.id, before_version=before.version) == 1

    async def advance_schedule(self, before: Schedule, plan: Plan) -> bool:
        values = {"due": before.next_fire_at, "before_version": before.version, "next": plan.next}
        misfires = {"missed": plan.missed, "last_missed": plan.last_missed}
        return await self.change("advance_schedule", id=before.id, **values, **misfires) == 1

    async def postpone_fire(self, before: Schedule, retry_at: Micros, error: str) -> None:
        values = {"due": before.next_fire_at, "before_version": before.version}
        await self.change("postpone_fire", id=before.id, **values, retry_at=retry_at, error=error)

    async def record_fires(
        self, schedule_id: str, fires: int, overlapped: int, last: tuple[Micros, str] | None, error: str | None
    ) -> None:
        at, job_id = last or (None, None)
        values = {"made": fires, "skipped": overlapped, "last_at": at, "last_job": job_id, "error": error}
        await self.change("record_fires", id=schedule_id, **values)

    async def drop_schedule(self, schedule_id: str) -> None:
        await self.change("drop_schedule", id=schedule_id)

    async def add_fire(self, fire: Fire) -> bool:
        return await self.change("add_fire", **fire._asdict()) == 1

    async def fires(self, schedule_id: str, first: Micros | None, last: Micros | None, limit: int) -> list[Fire]:
        ends = {"first": first, "last": last}
        values = {name: moment for name, moment in ends.items() if moment is not None}
        signs = {"first": ">=", "last": "<="}
        where = " AND ".join(f"fire_at {signs[name]} :{name}" for name in values) or "true"
        rows = await self.query("fires", where, schedule_id=schedule_id, **values, limit=limit)
        return [Fire(*row) for row in rows]

    async def unfinished_fires(self, schedule_id: str, limit: int) -> list[str]:
        return [row[0] for row in await self.query("unfinished_fires", schedule_id=schedule_id, limit=limit)]

    async def old_fires(self, schedule_id: str, before: Micros, limit: int) -> list[tuple[Micros, bool]]:
        rows = await self.query("old_fires", schedule_id=schedule_id, before=before, limit=limit)
        return [(row[0], bool(row[1])) for row in rows]

    async def drop_fires(self, schedule_id: str, upto: Micros) -> None:
        await self.change("drop_fires", schedule_id=schedule_id, upto=upto)


_FILTERS = {
    **{name: f"{name} = :{name}" for name in ("contract", "queue", "tenant_id", "job_type")},
    "before": "id < :before",
    "text": "{contains}(id || ' ' || name || ' ' || job_type || ' ' || expression || ' ' || payload, :text) > 0",
}
