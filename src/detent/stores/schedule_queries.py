"""The part of a transaction that reads and writes schedules and their fires; the same in every store."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from detent.core.job import Micros
from detent.core.schedule import Advance, Fire, Schedule
from detent.ports.listing import Filter
from detent.ports.schedules import MissedSchedule, OldFire

from .named_queries import REACH_TESTS, NamedQueries
from .rows import columns_of

SCHEDULE_COLUMNS = columns_of(Schedule)
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
    """Schedules and fires."""

    async def list_schedules(self, filter: Filter) -> list[Schedule]:
        return [Schedule(*row) for row in await self.matching("schedules", _FILTERS, **asdict(filter))]

    async def schedules_matching(self, reference: str) -> list[Schedule]:
        return await self.fetch(Schedule, "schedules_matching", reference=reference)

    async def next_fire(self, contracts: Sequence[str]) -> Micros | None:
        rows = await self.query("next_fire", contracts=json.dumps(list(contracts)))
        return rows[0][0] if rows else None

    async def due_schedules(self, limit: int, contracts: Sequence[str]) -> list[Schedule]:
        names = json.dumps(list(contracts))
        return await self.fetch(Schedule, "due_schedules", now=self.now, limit=limit, contracts=names)

    async def missed_schedules(self, since: Micros) -> list[MissedSchedule]:
        return await self.fetch(MissedSchedule, "missed_schedules", now=self.now, since=since)

    async def put_schedule(self, schedule: Schedule) -> bool:
        return await self.change("put_schedule", **asdict(schedule)) == 1

    async def change_schedule(self, before: Schedule, after: Schedule) -> bool:
        values = {name: getattr(after, name) for name in (*DECIDED, "next_fire_at")}
        return await self.change("change_schedule", **values, id=before.id, before_version=before.version) == 1

    async def advance_schedules(self, advances: Sequence[Advance]) -> int:
        return await self.change("advance_schedules", rows=json.dumps([_row(advance) for advance in advances]))

    async def postpone_fires(self, errors: Sequence[tuple[Schedule, str]], retry_at: Micros) -> None:
        rows = [{**_due(schedule), "error": error} for schedule, error in errors]
        await self.change("postpone_fires", rows=json.dumps(rows), retry_at=retry_at)

    async def record_fires(
        self, schedule_id: str, fires: int, overlapped: int, last: tuple[Micros, str] | None, error: str | None
    ) -> None:
        at, job_id = last or (None, None)
        values = {"made": fires, "skipped": overlapped, "last_at": at, "last_job": job_id, "error": error}
        await self.change("record_fires", id=schedule_id, **values)

    async def drop_schedule(self, schedule_id: str) -> None:
        await self.change("drop_schedule", id=schedule_id)

    async def add_fires(self, fires: Sequence[Fire]) -> int:
        return await self.change("add_fires", rows=json.dumps(fires))

    async def list_fires(self, schedule_id: str, first: Micros | None, last: Micros | None, limit: int) -> list[Fire]:
        tests = {"first": "fire_at >= :first", "last": "fire_at <= :last"}
        values = {"schedule_id": schedule_id, "first": first, "last": last, "limit": limit}
        return [Fire(*row) for row in await self.matching("fires", tests, **values)]

    async def unfinished_fires(self, schedule_ids: Sequence[str], limit: int) -> dict[str, list[str]]:
        jobs: dict[str, list[str]] = {}
        if not schedule_ids:
            return jobs
        ids = json.dumps(list(schedule_ids))
        for schedule_id, job_id in await self.query("unfinished_fires", ids=ids, limit=limit):
            jobs.setdefault(schedule_id, []).append(job_id)
        return jobs

    async def old_fires(self, schedule_id: str, before: Micros, limit: int) -> list[OldFire]:
        rows = await self.query("old_fires", schedule_id=schedule_id, before=before, limit=limit)
        return [OldFire(row[0], bool(row[1])) for row in rows]

    async def drop_fires(self, schedule_id: str, upto: Micros) -> None:
        await self.change("drop_fires", schedule_id=schedule_id, upto=upto)


def _due(schedule: Schedule) -> dict[str, Any]:
    """What the compare-and-set of a schedule's row compares."""
    return {"id": schedule.id, "due": schedule.next_fire_at, "version": schedule.version}


def _row(advance: Advance) -> dict[str, Any]:
    plan, (last_at, last_job) = advance.plan, advance.last or (None, None)
    counters = {"missed": plan.missed, "made": advance.made, "overlapped": advance.overlapped}
    times = {"next": plan.next, "last_missed": plan.last_missed, "last_at": last_at}
    return {**_due(advance.before), **counters, **times, "last_job": last_job, "error": advance.error}


_TEXT = "id || ' ' || name || ' ' || job_type || ' ' || expression"
_FILTERS = {
    **{name: f"{name} = :{name}" for name in ("contract", "queue", "tenant_id", "job_type")},
    **REACH_TESTS,
    "before": "id < :before",
    "text": f"{{contains}}({_TEXT} || ' ' || payload, :text) > 0",
    "text_outside": f"{{contains}}({_TEXT}, :text_outside) > 0",
}
