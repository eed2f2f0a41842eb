"""Fires many due schedules in one transaction with a fixed number of statements.

Schedules that need more than that (a job to cancel, an error to record, part of a quota) are left to be fired alone.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from detent.core.errors import DetentError, IdempotencyConflict, QuotaExceeded, VersionConflict
from detent.core.job import Job, Micros
from detent.core.schedule import Advance, Fire, Overlap, Plan, Schedule, plan
from detent.core.times import SECOND
from detent.engine.runtime import Runtime
from detent.engine.submit import quotas
from detent.engine.submit.prepare import Prepared, submit_batch
from detent.ports.limits import TenantQuota
from detent.ports.tx import Tx

from .fire_job import prepare_job

log = logging.getLogger("detent.schedules")
OVERLAP_LOOKBACK = 100
"""How many of the last fires are checked for unfinished jobs."""
QUOTA_RETRY_DELAY: Micros = 5 * SECOND
"""Delay before a fire is retried that exceeded its tenant's backlog quota."""


class FiredBatch(NamedTuple):
    """What happened to the schedules of a batch."""

    jobs: list[Job]
    fired: int = 0
    """Schedules that were advanced."""
    postponed: Sequence[tuple[Schedule, QuotaExceeded]] = ()
    left: Sequence[tuple[Schedule, Plan]] = ()
    """Schedules that must be fired alone."""


@dataclass(slots=True)
class _Due:
    """A due schedule, the fires that submit a job, and these jobs."""

    schedule: Schedule
    plan: Plan
    moments: tuple[Micros, ...] = ()
    prepared: list[Prepared] = field(default_factory=list)

    @property
    def jobs(self) -> list[Job]:
        return [p.change.after for p in self.prepared]

    def advance(self) -> Advance:
        made = len(self.moments)
        last = (self.moments[-1], self.jobs[-1].id) if made else None
        error = error_after(self.schedule, self.plan)
        return Advance(self.schedule, self.plan, error, made, len(self.plan.fires) - made, last)


def error_after(schedule: Schedule, planned: Plan) -> str | None:
    """The last_error of a schedule after these fires: kept only if a fire that waited for a quota was missed."""
    return schedule.last_error if schedule.retry_at is not None and not planned.fires else None


async def fire_batch(runtime: Runtime, contracts: Sequence[str], limit: int, tx: Tx) -> FiredBatch:
    """Fire up to `limit` due schedules. Raises IdempotencyConflict if a fire or its key exists: fire fewer then."""
    due = plan_all(await tx.schedules.due_schedules(limit, contracts), tx.now)
    exclusive = [one.schedule.id for one in due if one.schedule.overlap != Overlap.ALLOW]
    running = await tx.fires.unfinished_fires(exclusive, OVERLAP_LOOKBACK)
    tenant_quotas = await quotas.lock_quotas(tx.quotas, (one.schedule.tenant_id for one in due)) if due else []
    room = await quotas.room_in_backlogs(tx.quotas, tenant_quotas)
    batch: list[_Due] = []
    full: list[tuple[Schedule, QuotaExceeded]] = []
    left: list[tuple[Schedule, Plan]] = []
    for one in due:
        schedule, tenant = one.schedule, one.schedule.tenant_id
        if not _prepare(runtime, one, schedule.id in running, tenant_quotas, tx.now):
            left.append((schedule, one.plan))
        elif tenant not in room or len(one.moments) <= room[tenant].places:
            if tenant in room:
                room[tenant].places -= len(one.moments)
            batch.append(one)
        elif len(one.moments) == 1:
            full.append((schedule, room[tenant].error))
        else:
            left.append((schedule, one.plan))
    jobs = await _write(tx, batch)
    await postpone(full, tx)
    return FiredBatch(jobs, len(batch), full, left)


def plan_all(schedules: Iterable[Schedule], now: Micros) -> list[_Due]:
    """Plans of due schedules, without those that this process cannot plan."""
    planned = []
    for schedule in schedules:
        try:
            planned.append(_Due(schedule, plan(schedule, now)))
        except Exception as error:  # e.g. a time zone that this machine lacks and another worker may have
            log.warning("schedule %s (%s) cannot be planned by this process: %s", schedule.name, schedule.id, error)
    return planned


async def postpone(refused: Sequence[tuple[Schedule, QuotaExceeded]], tx: Tx) -> None:
    """Retry fires later that a backlog quota refused."""
    errors = [(schedule, f"{error.code}: {error.message}") for schedule, error in refused]
    if errors:
        await tx.fires.postpone_fires(errors, tx.now + QUOTA_RETRY_DELAY)


def log_postponed(refused: Iterable[tuple[Schedule, QuotaExceeded]]) -> None:
    for schedule, error in refused:
        log.warning("schedule %s (%s) postponed: %s", schedule.name, schedule.id, error.message)


def _prepare(runtime: Runtime, one: _Due, running: bool, tenant_quotas: list[TenantQuota], now: Micros) -> bool:
    """Prepare the jobs of the fires. False: a job of an earlier fire must be cancelled, or a job cannot be created."""
    schedule, one.moments = one.schedule, one.plan.fires
    if schedule.overlap == Overlap.CANCEL and (running or len(one.moments) > 1):
        return False
    if schedule.overlap == Overlap.SKIP:
        one.moments = () if running else one.moments[:1]
    try:
        actor = f"schedule:{schedule.name}"
        one.prepared = [prepare_job(runtime, schedule, moment, now, actor) for moment in one.moments]
        quotas.check_payloads(tenant_quotas, one.jobs)
    except DetentError:
        return False
    return True


async def _write(tx: Tx, batch: Sequence[_Due]) -> list[Job]:
    """The compare-and-set of the schedules comes first: a process that loses it writes nothing."""
    if batch and await tx.schedules.advance_schedules([one.advance() for one in batch]) < len(batch):
        raise VersionConflict("a due schedule was fired or changed meanwhile; the next sweep tries again")
    prepared = [p for one in batch for p in one.prepared]
    if not prepared:
        return []
    fires = [
        Fire(one.schedule.id, moment, job.id, tx.now)
        for one in batch
        for moment, job in zip(one.moments, one.jobs, strict=True)
    ]
    if await tx.fires.add_fires(fires) < len(fires) or await submit_batch(tx, prepared) is None:
        raise IdempotencyConflict("a fire of this batch or its key exists; its schedule is fired alone")
    return [p.change.after for p in prepared]
