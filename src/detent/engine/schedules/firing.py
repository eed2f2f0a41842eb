"""Fires due schedules: each fire creates exactly one job, even if several processes run this at the same time.

`fire_batch` fires many schedules in one transaction with a fixed number of statements. Schedules that need more than
that (a job to cancel, an error to record, part of a quota) are left to be fired alone.
"""

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from detent.core.access import Scope
from detent.core.errors import DetentError, IdempotencyConflict, QuotaExceeded, StoreUnavailable, VersionConflict
from detent.core.job import Job, Micros
from detent.core.schedule import Advance, Fire, Overlap, Plan, Schedule, fire_key, first_fire_only, jitter_delay, plan
from detent.core.times import SECOND
from detent.engine.jobs import cancel_job
from detent.engine.runtime import Runtime
from detent.engine.submit import quotas
from detent.engine.submit.prepare import Prepared, prepare, submit_batch, submit_within_quotas
from detent.engine.submit.submission import ScheduledFire, Submission
from detent.ports.limits import TenantQuota
from detent.ports.tx import Tx

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


def prepare_job(
    runtime: Runtime, schedule: Schedule, moment: Micros, now: Micros, actor: str, later: Micros = 0
) -> Prepared:
    """The job of a fire, not stored yet. later: additional delay of the job."""
    wait = max(moment + jitter_delay(schedule, moment) + later - now, later)
    deadline_at = None if schedule.deadline is None else now + wait + schedule.deadline
    submission = Submission(
        **schedule.job_options(payload=json.loads(schedule.payload)),
        idempotency_key=fire_key(schedule.id, moment),
        delay=wait / SECOND,
        actor=actor,
        fire=ScheduledFire(schedule.kind, moment, deadline_at),
    )
    return prepare(runtime, submission, now)


async def make_job(
    runtime: Runtime, tx: Tx, schedule: Schedule, moment: Micros, actor: str, later: Micros = 0
) -> Job | None:
    """Create the job of a fire; None if this fire has created one before. later: additional delay of the job."""
    prepared = prepare_job(runtime, schedule, moment, tx.now, actor, later)
    if not await tx.fires.add_fires([Fire(schedule.id, moment, prepared.change.after.id, tx.now)]):
        return None
    (submitted,) = await submit_within_quotas(tx, [prepared])
    if submitted.hit:
        job_id = submitted.job.id
        raise IdempotencyConflict(f"job {job_id} has this fire's key but another origin", job_id=job_id)
    return submitted.job


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


class Fired(NamedTuple):
    """The created jobs, when the next fire is due (None: no schedule has a next fire), and the schedules handled."""

    jobs: list[Job]
    next: Micros | None
    handled: int = 0


async def fire_due(runtime: Runtime, limit: int) -> Fired:
    """Fire up to `limit` due schedules in one transaction, where possible. Costs one read if none is due."""
    contracts = list(runtime.contracts)
    now, following = await runtime.store.read(partial(_read_next, contracts))
    if following is None or following > now:
        return Fired([], following)
    batch = await _fire_batch_or_fewer(runtime, contracts, limit)
    log_postponed(batch.postponed)
    jobs, handled = batch.jobs, batch.fired + len(batch.postponed) + len(batch.left)
    for schedule, planned in batch.left:
        jobs += await _fire_or_postpone(runtime, schedule, planned)
    _, following = await runtime.store.read(partial(_read_next, contracts))
    return Fired(jobs, following, handled)


async def _read_next(contracts: list[str], tx: Tx) -> tuple[Micros, Micros | None]:
    return tx.now, await tx.schedules.next_fire(contracts)


async def _fire_batch_or_fewer(runtime: Runtime, contracts: list[str], limit: int) -> FiredBatch:
    """Halve a batch that was refused until the schedule that is the cause is the first, and leave that one."""
    while True:
        try:
            return await runtime.store.write(partial(fire_batch, runtime, contracts, limit))
        except StoreUnavailable:
            raise
        except DetentError as error:
            log.debug("firing %d schedules at once was refused: %s", limit, error.message)
            if limit == 1:
                return await runtime.store.read(partial(_first_due, contracts))
            limit = (limit + 1) // 2


async def _first_due(contracts: list[str], tx: Tx) -> FiredBatch:
    planned = plan_all(await tx.schedules.due_schedules(1, contracts), tx.now)
    return FiredBatch([], left=[(one.schedule, one.plan) for one in planned])


async def _fire_or_postpone(runtime: Runtime, schedule: Schedule, planned: Plan) -> list[Job]:
    try:
        return await runtime.store.write(lambda tx: _fire(runtime, tx, schedule, planned))
    except StoreUnavailable:
        raise
    except VersionConflict:  # a concurrent transaction interfered: the fire stays due and the next sweep retries it
        return []
    except QuotaExceeded as error:
        if len(planned.fires) > 1:  # retry with the oldest fire only, which may still fit into the quota
            return await _fire_or_postpone(runtime, schedule, first_fire_only(schedule, planned))
        refused = [(schedule, error)]
        log_postponed(refused)
        await runtime.store.write(partial(postpone, refused))
        return []
    except DetentError as error:
        # A job that cannot be created must not block later fires; it is counted as missed and its error stored.
        missed = planned._replace(
            missed=planned.missed + len(planned.fires), last_missed=max(planned.fires, default=planned.last_missed)
        )
        skipped = Advance(schedule, missed, f"{error.code}: {error.message}")
        await runtime.store.write(lambda tx: tx.schedules.advance_schedules([skipped]))
        return []


async def _fire(runtime: Runtime, tx: Tx, schedule: Schedule, planned: Plan) -> list[Job]:
    """The compare-and-set of the schedule's row comes first: a process that loses it writes nothing."""
    if not await tx.schedules.advance_schedules([Advance(schedule, planned, schedule.last_error)]):
        return []
    new_jobs: list[tuple[Micros, Job]] = []
    overlapped = 0
    exclusive = schedule.overlap != Overlap.ALLOW
    running = (
        (await tx.fires.unfinished_fires([schedule.id], OVERLAP_LOOKBACK)).get(schedule.id, []) if exclusive else []
    )
    for moment in planned.fires:
        if running and schedule.overlap == Overlap.SKIP:
            overlapped += 1
            continue
        for job_id in running:
            await _cancel(runtime, tx, schedule, job_id)
        job = await make_job(runtime, tx, schedule, moment, f"schedule:{schedule.name}")
        if job is not None:
            new_jobs.append((moment, job))
            running = [] if schedule.overlap == Overlap.ALLOW else [job.id]
    last = (new_jobs[-1][0], new_jobs[-1][1].id) if new_jobs else None
    await tx.fires.record_fires(schedule.id, len(new_jobs), overlapped, last, error_after(schedule, planned))
    return [job for _, job in new_jobs]


async def _cancel(runtime: Runtime, tx: Tx, schedule: Schedule, job_id: str) -> None:
    """Cancel the job of an earlier fire. Does not wait for a locked row: the next sweep retries the fire."""
    if job_id not in await tx.jobs.lock([job_id], wait=False):
        raise VersionConflict(f"job {job_id} is locked by another transaction; the fire is retried", job_id=job_id)
    scope = Scope(f"schedule:{schedule.name}", "replaced by the next fire")
    await cancel_job(runtime, tx, job_id, scope)
