"""Backfill: creates the missing jobs for a schedule's fires in a past range, on request of a person."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Annotated

from detent.core.access import Scope
from detent.core.errors import InvalidInput, InvalidSchedule, QuotaExceeded
from detent.core.job import Micros
from detent.core.schedule import Schedule, fires_between
from detent.core.times import interval_between_jobs, iso
from detent.engine.pruning import fires_deleted_until
from detent.engine.refusal import audit
from detent.engine.runtime import Runtime, Service
from detent.ports.tx import Tx

from .firing import make_job
from .request import find_schedule, moment_of

MAX_FIRES = 10_000
_BATCH = 200


@dataclass(frozen=True, slots=True)
class Backfill:
    """The result of a backfill."""

    fires: Annotated[int, "Number of runs in the range."]
    known: Annotated[int, "Number of runs that already had a job."] = 0
    made: Annotated[int, "Number of jobs created, or that would be created in a dry run."] = 0
    job_ids: Annotated[Sequence[str], "The new jobs."] = ()


async def backfill(
    self: Service,
    reference: str,
    first: str | datetime,
    last: str | datetime,
    scope: Scope,
    *,
    rate: float | None = None,
    dry_run: bool = False,
) -> Backfill:
    """Create a job for each fire from first to last that has none. rate: how many jobs fall due per second.

    Repeat it after a crash to continue. The schedule's overlap and misfire rules do not apply.
    """
    runtime = self._runtime
    schedule = await runtime.store.read(lambda tx: find_schedule(runtime, tx, reference, scope))
    moments = _fire_times(runtime, schedule, first, last)
    limit = await runtime.store.read(partial(fires_deleted_until, schedule.id))
    if limit is not None and moments and moments[0] <= limit:
        text = f"the records of fires up to {iso(limit)} were pruned; start after that time"
        raise InvalidInput(text, code="BACKFILL_FORGOTTEN", field="from", limit=iso(limit))
    interval, known, made = interval_between_jobs(rate), 0, 0
    job_ids: list[str] = []
    for start in range(0, len(moments), _BATCH):
        part = moments[start : start + _BATCH]
        missing = await runtime.store.read(partial(_without_job, schedule, part))
        new_ids: list[str] = []
        if missing and not dry_run:
            try:
                new_ids = await runtime.run(partial(_create_jobs, runtime, schedule, missing, scope, made, interval))
            except QuotaExceeded as error:
                message = f"{error.message}; {made} jobs of this backfill were created, repeat it to continue"
                raise QuotaExceeded(message, **error.extra, made=made) from None
        number = len(missing) if dry_run else len(new_ids)
        known, made, job_ids = known + len(part) - number, made + number, job_ids + new_ids
    return Backfill(len(moments), known, made, tuple(job_ids))


async def _without_job(schedule: Schedule, part: list[Micros], tx: Tx) -> list[Micros]:
    fired = {fire.fire_at for fire in await tx.fires.list_fires(schedule.id, part[0], part[-1], MAX_FIRES * 10)}
    return [moment for moment in part if moment not in fired]


async def _create_jobs(
    runtime: Runtime, schedule: Schedule, moments: list[Micros], scope: Scope, before: int, interval: Micros, tx: Tx
) -> list[str]:
    """Create the jobs of these fires, each due `interval` after the one before it. before: the jobs created so far."""
    job_ids: list[str] = []
    for moment in moments:
        later = (before + len(job_ids)) * interval
        job = await make_job(runtime, tx, schedule, moment, scope.actor, later)
        if job is not None:
            job_ids.append(job.id)
    if job_ids:
        data = {"from": iso(moments[0]), "to": iso(moments[-1]), "jobs": len(job_ids)}
        await audit(tx, scope, "schedule.backfill", schedule.id, schedule.tenant_id, data)
    return job_ids


def _fire_times(runtime: Runtime, schedule: Schedule, first: str | datetime, last: str | datetime) -> list[Micros]:
    start, end = moment_of(first, "from", schedule.timezone), moment_of(last, "to", schedule.timezone)
    if end < start or end > runtime.store.now():
        raise InvalidSchedule("'to' must not be before 'from', nor in the future", field="to")
    moments = list(islice(fires_between(schedule, start, end), MAX_FIRES + 1))
    if len(moments) > MAX_FIRES:
        message = f"the range has more than {MAX_FIRES} fires; split it into shorter ranges"
        raise InvalidInput(message, code="BACKFILL_TOO_LARGE", limit=MAX_FIRES)
    return moments
