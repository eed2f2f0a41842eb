"""Backfill: creates the missing jobs for a schedule's fires in a past range, on request of a person."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Annotated

from detent.core.access import Scope
from detent.core.errors import InvalidInput, QuotaExceeded
from detent.core.job import Micros
from detent.core.schedule import Schedule, fires_between
from detent.core.times import interval_between_jobs, iso
from detent.engine.pruning import fires_deleted_until
from detent.engine.runtime import Runtime
from detent.ports.access import Audit
from detent.ports.tx import Tx

from .firing import make_job
from .request import INVALID, moment_of

MAX_FIRES = 10_000
_BATCH = 200


@dataclass(frozen=True, slots=True)
class Backfill:
    """The result of a backfill."""

    fires: Annotated[int, "Number of runs in the range."]
    known: Annotated[int, "Number of runs that already had a job."] = 0
    made: Annotated[int, "Number of jobs created, or that would be created in a dry run."] = 0
    job_ids: Annotated[Sequence[str], "The new jobs."] = ()


@dataclass(frozen=True, slots=True)
class _BackfillOptions:
    schedule: Schedule
    scope: Scope
    interval: Micros
    """The delay between the due times of two jobs."""


async def backfill(
    runtime: Runtime,
    schedule: Schedule,
    span: tuple[str | datetime, str | datetime],
    scope: Scope,
    *,
    rate: float | None,
    dry_run: bool,
) -> Backfill:
    """Create a job for each fire within the span (first, last) that has none; see `Schedules.backfill`."""
    moments = _fire_times(runtime, schedule, *span)
    limit = await runtime.store.read(partial(fires_deleted_until, schedule.id))
    if limit is not None and moments and moments[0] <= limit:
        raise InvalidInput(
            f"the records of fires up to {iso(limit)} were pruned; start after that time",
            code="BACKFILL_FORGOTTEN",
            field="from",
            limit=iso(limit),
        )
    options = _BackfillOptions(schedule, scope, interval_between_jobs(rate))
    result = Backfill(len(moments))
    for start in range(0, len(moments), _BATCH):
        part = moments[start : start + _BATCH]
        missing = await runtime.store.read(partial(_without_job, schedule, part))
        if dry_run:
            known = result.known + len(part) - len(missing)
            result = replace(result, known=known, made=result.made + len(missing))
        elif missing:
            job_ids = await _create_jobs_in_transaction(runtime, options, missing, result.made)
            known = result.known + len(part) - len(job_ids)
            all_ids = (*result.job_ids, *job_ids)
            result = replace(result, known=known, made=result.made + len(job_ids), job_ids=all_ids)
        else:
            result = replace(result, known=result.known + len(part))
    return result


async def _without_job(schedule: Schedule, part: list[Micros], tx: Tx) -> list[Micros]:
    fired = {fire.fire_at for fire in await tx.fires.list_fires(schedule.id, part[0], part[-1], MAX_FIRES * 10)}
    return [moment for moment in part if moment not in fired]


async def _create_jobs_in_transaction(
    runtime: Runtime, options: _BackfillOptions, moments: list[Micros], before: int
) -> list[str]:
    try:
        return await runtime.run(partial(_create_jobs, runtime, options, moments, before))
    except QuotaExceeded as error:
        message = f"{error.message}; {before} jobs of this backfill were created, repeat it to continue"
        raise QuotaExceeded(message, **error.extra, made=before) from None


async def _create_jobs(
    runtime: Runtime, options: _BackfillOptions, moments: list[Micros], before: int, tx: Tx
) -> list[str]:
    job_ids: list[str] = []
    scope = options.scope
    for moment in moments:
        later = (before + len(job_ids)) * options.interval
        job = await make_job(runtime, tx, options.schedule, moment, scope.actor, later)
        if job is not None:
            job_ids.append(job.id)
    if job_ids:
        data = {"from": iso(moments[0]), "to": iso(moments[-1]), "jobs": len(job_ids)}
        subject, tenant = options.schedule.id, options.schedule.tenant_id
        await tx.audit.add_audit(Audit(scope.actor, "schedule.backfill", subject, tenant, scope.reason, data))
    return job_ids


def _fire_times(runtime: Runtime, schedule: Schedule, first: str | datetime, last: str | datetime) -> list[Micros]:
    start, end = moment_of(first, "from", schedule.timezone), moment_of(last, "to", schedule.timezone)
    if end < start or end > runtime.store.now():
        raise InvalidInput("'to' must not be before 'from', nor in the future", code=INVALID, field="to")
    moments = list(islice(fires_between(schedule, start, end), MAX_FIRES + 1))
    if len(moments) > MAX_FIRES:
        raise InvalidInput(
            f"the range has more than {MAX_FIRES} fires; split it into shorter ranges",
            code="BACKFILL_TOO_LARGE",
            limit=MAX_FIRES,
        )
    return moments
