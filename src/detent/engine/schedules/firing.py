"""Fires due schedules: each fire creates exactly one job, even if several processes run this at the same time."""

import logging
from functools import partial
from typing import NamedTuple

from detent.core.access import Scope
from detent.core.errors import DetentError, QuotaExceeded, StoreUnavailable, VersionConflict
from detent.core.job import Job, Micros
from detent.core.schedule import Advance, Overlap, Plan, Schedule, first_fire_only
from detent.engine.jobs import cancel_job
from detent.engine.runtime import Runtime
from detent.ports.tx import Tx

from .fire_batch import OVERLAP_LOOKBACK, FiredBatch, error_after, fire_batch, log_postponed, plan_all, postpone
from .fire_job import make_job

log = logging.getLogger("detent.schedules")


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
