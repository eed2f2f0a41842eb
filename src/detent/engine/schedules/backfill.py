"""Backfill: creates the missing jobs for a schedule's fires in a past range, on request of a person."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from detent.core.errors import InvalidInput, QuotaExceeded
from detent.core.job import Micros
from detent.core.schedule import Schedule, fires_between
from detent.core.times import SECOND, iso
from detent.engine.pruning import fires_deleted_until
from detent.ports.access import Audit
from detent.ports.tx import Tx

from .fire_job import make_job
from .request import INVALID, moment_of
from .schedules import get

if TYPE_CHECKING:
    from detent.engine.engine import Engine

MAX_FIRES = 10_000
_BATCH = 200


@dataclass(frozen=True, slots=True)
class Backfill:
    """The result of a backfill; the field names are those of the JSON."""

    fires: int
    """Fires in the range."""
    known: int = 0
    """Fires that had a job before."""
    made: int = 0
    """Jobs created now; in a dry run, jobs that would be created."""
    job_ids: Sequence[str] = ()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _BackfillOptions:
    schedule: Schedule
    actor: str
    reason: str | None
    interval: Micros
    """The delay between the due times of two jobs."""


async def backfill(
    engine: "Engine",
    reference: str,
    first: str | datetime,
    last: str | datetime,
    *,
    actor: str,
    reason: str | None = None,
    tenant: str | None = None,
    rate: float | None = None,
    dry_run: bool = False,
) -> Backfill:
    """Create a job for each fire from first to last that has none. rate: how many jobs fall due per second.

    Repeat it after a crash to continue. The schedule's overlap and misfire rules do not apply.
    """
    schedule = await get(engine, reference, tenant=tenant)
    moments = _fire_times(engine, schedule, first, last)
    limit = await engine.store.read(partial(fires_deleted_until, schedule.id))
    if limit is not None and moments and moments[0] <= limit:
        raise InvalidInput(
            f"the records of fires up to {iso(limit)} were pruned; start after that time",
            code="BACKFILL_FORGOTTEN",
            field="from",
            limit=iso(limit),
        )
    options = _BackfillOptions(schedule, actor, reason, interval_between_jobs(rate))
    result = Backfill(len(moments))
    for start in range(0, len(moments), _BATCH):
        part = moments[start : start + _BATCH]
        missing = await engine.store.read(partial(_without_job, schedule, part))
        if dry_run:
            known = result.known + len(part) - len(missing)
            result = replace(result, known=known, made=result.made + len(missing))
        elif missing:
            job_ids = await _create_jobs_in_transaction(engine, options, missing, result.made)
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
    engine: "Engine", options: _BackfillOptions, moments: list[Micros], before: int
) -> list[str]:
    try:
        return await engine._retry_on_conflict(partial(_create_jobs, engine, options, moments, before))
    except QuotaExceeded as error:
        message = f"{error.message}; {before} jobs of this backfill were created, repeat it to continue"
        raise QuotaExceeded(message, **error.extra, made=before) from None


async def _create_jobs(
    engine: "Engine", options: _BackfillOptions, moments: list[Micros], before: int, tx: Tx
) -> list[str]:
    job_ids: list[str] = []
    for moment in moments:
        later = (before + len(job_ids)) * options.interval
        job = await make_job(engine, tx, options.schedule, moment, options.actor, later)
        if job is not None:
            job_ids.append(job.id)
    if job_ids:
        data = {"from": iso(moments[0]), "to": iso(moments[-1]), "jobs": len(job_ids)}
        subject, tenant = options.schedule.id, options.schedule.tenant_id
        await tx.audit.add_audit(Audit(options.actor, "schedule.backfill", subject, tenant, options.reason, data))
    return job_ids


def _fire_times(engine: "Engine", schedule: Schedule, first: str | datetime, last: str | datetime) -> list[Micros]:
    start, end = moment_of(first, "from", schedule.timezone), moment_of(last, "to", schedule.timezone)
    if end < start or end > engine.store.now():
        raise InvalidInput("'to' must not be before 'from', nor in the future", code=INVALID, field="to")
    moments = list(islice(fires_between(schedule, start, end), MAX_FIRES + 1))
    if len(moments) > MAX_FIRES:
        raise InvalidInput(
            f"the range has more than {MAX_FIRES} fires; split it into shorter ranges",
            code="BACKFILL_TOO_LARGE",
            limit=MAX_FIRES,
        )
    return moments


def interval_between_jobs(rate: float | None) -> Micros:
    """The delay between two jobs at `rate` jobs per second; None: no delay."""
    if rate is None:
        return 0
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0.001 <= rate <= 1_000_000:
        raise InvalidInput(
            f"rate must be a number of jobs per second from 0.001 to 1000000, got {str(rate)[:40]!r}",
            code="RATE_INVALID",
            field="rate",
        )
    return int(SECOND / rate)
