"""Fires due schedules: each fire creates exactly one job, even if several processes run this at the same time."""

import json
import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from detent.core.errors import DetentError, IdempotencyConflict, QuotaExceeded, StoreUnavailable, VersionConflict
from detent.core.job import Job, Micros
from detent.core.schedule import Fire, Overlap, Plan, Schedule, fire_key, first_fire_only, jitter_delay, plan
from detent.core.times import SECOND
from detent.engine.control import job_control
from detent.engine.submit.prepare import prepare
from detent.engine.submit.submission import Submission
from detent.engine.submit.submit import submit_within_quotas
from detent.ports.tx import Tx

if TYPE_CHECKING:
    from detent.engine.engine import Engine

log = logging.getLogger("detent.schedules")
OVERLAP_LOOKBACK = 100
"""How many of the last fires are checked for unfinished jobs."""
QUOTA_RETRY_DELAY: Micros = 5 * SECOND
"""Delay before a fire is retried that exceeded its tenant's backlog quota."""


class Fired(NamedTuple):
    """The created jobs, and when the next fire is due (None: no schedule has a next fire)."""

    jobs: list[Job]
    next: Micros | None


async def fire_due(engine: "Engine", limit: int) -> Fired:
    """Fire up to `limit` due schedules, each in a separate transaction. Costs one read if none is due."""
    contracts = list(engine.contracts)
    now, due, following = await engine.store.read(partial(_read_due, contracts, limit))
    if not due:
        return Fired([], following)
    jobs: list[Job] = []
    for schedule in due:
        try:
            planned = plan(schedule, now)
        except Exception as error:  # e.g. a time zone that this machine lacks and another worker may have
            log.warning("schedule %s (%s) cannot be planned by this process: %s", schedule.name, schedule.id, error)
            continue
        jobs += await _fire_or_postpone(engine, schedule, planned)
    return Fired(jobs, await engine.store.read(lambda tx: tx.next_fire(contracts)))


async def _read_due(contracts: list[str], limit: int, tx: Tx) -> tuple[Micros, list[Schedule], Micros | None]:
    following = await tx.next_fire(contracts)
    if following is None or following > tx.now:
        return tx.now, [], following
    soonest = await tx.next_schedules(limit, contracts)
    due = [schedule for schedule in soonest if (schedule.retry_at or schedule.next_fire_at or tx.now + 1) <= tx.now]
    return tx.now, due, following


async def _fire_or_postpone(engine: "Engine", schedule: Schedule, planned: Plan) -> list[Job]:
    try:
        return await engine.store.write(lambda tx: _fire(engine, tx, schedule, planned))
    except StoreUnavailable:
        raise
    except VersionConflict:  # a concurrent transaction interfered: the fire stays due and the next sweep retries it
        return []
    except QuotaExceeded as error:
        if len(planned.fires) > 1:  # retry with the oldest fire only, which may still fit into the quota
            return await _fire_or_postpone(engine, schedule, first_fire_only(schedule, planned))
        log.warning("schedule %s (%s) postponed: %s", schedule.name, schedule.id, error.message)
        error_text = f"{error.code}: {error.message}"
        await engine.store.write(lambda tx: tx.postpone_fire(schedule, tx.now + QUOTA_RETRY_DELAY, error_text))
        return []
    except DetentError as error:
        # A job that cannot be created must not block later fires; it is counted as missed and its error stored.
        error_text = f"{error.code}: {error.message}"
        missed = planned._replace(
            missed=planned.missed + len(planned.fires), last_missed=max(planned.fires, default=planned.last_missed)
        )
        await engine.store.write(lambda tx: _skip_fires(tx, schedule, missed, error_text))
        return []


async def _fire(engine: "Engine", tx: Tx, schedule: Schedule, planned: Plan) -> list[Job]:
    """The compare-and-set of the schedule's row comes first: a process that loses it writes nothing."""
    if not await tx.advance_schedule(schedule, planned):
        return []
    new_jobs: list[tuple[Micros, Job]] = []
    overlapped = 0
    running = [] if schedule.overlap == Overlap.ALLOW else await tx.unfinished_fires(schedule.id, OVERLAP_LOOKBACK)
    for moment in planned.fires:
        if running and schedule.overlap == Overlap.SKIP:
            overlapped += 1
            continue
        for job_id in running:
            await _cancel(engine, tx, schedule, job_id)
        job = await make_job(engine, tx, schedule, moment, f"schedule:{schedule.name}")
        if job is not None:
            new_jobs.append((moment, job))
            running = [] if schedule.overlap == Overlap.ALLOW else [job.id]
    last = (new_jobs[-1][0], new_jobs[-1][1].id) if new_jobs else None
    error = schedule.last_error if schedule.retry_at is not None and not planned.fires else None
    await tx.record_fires(schedule.id, len(new_jobs), overlapped, last, error)
    return [job for _, job in new_jobs]


async def make_job(
    engine: "Engine", tx: Tx, schedule: Schedule, moment: Micros, actor: str, later: Micros = 0
) -> Job | None:
    """Create the job of a fire; None if this fire has created one before. later: additional delay of the job."""
    wait = max(moment + jitter_delay(schedule, moment) + later - tx.now, later)
    submission = Submission(
        job_type=schedule.job_type,
        payload=json.loads(schedule.payload),
        contract=schedule.contract,
        queue=schedule.queue,
        tenant_id=schedule.tenant_id,
        idempotency_key=fire_key(schedule.id, moment),
        timeout_ms=schedule.timeout_ms,
        max_retries=schedule.max_retries,
        priority=schedule.priority,
        limit_key=schedule.limit_key,
        delay=wait / SECOND,
        actor=actor,
        id=engine.ids.job(),
    )
    prepared = prepare(engine, submission, tx.now)
    job = prepared.change.after
    job.schedule_type, job.scheduled_at = schedule.kind, moment
    job.deadline_at = None if schedule.deadline is None else tx.now + wait + schedule.deadline
    if not await tx.add_fire(Fire(schedule.id, moment, job.id, tx.now)):
        return None
    (submitted,) = await submit_within_quotas(tx, [prepared])
    if submitted.hit:
        job_id = submitted.job.id
        raise IdempotencyConflict(f"job {job_id} has this fire's key but another origin", job_id=job_id)
    return submitted.job


async def _cancel(engine: "Engine", tx: Tx, schedule: Schedule, job_id: str) -> None:
    """Cancel the job of an earlier fire. Does not wait for a locked row: the next sweep retries the fire."""
    if job_id not in await tx.lock([job_id], wait=False):
        raise VersionConflict(f"job {job_id} is locked by another transaction; the fire is retried", job_id=job_id)
    actor, reason = f"schedule:{schedule.name}", "replaced by the next fire"
    await job_control.cancel(engine, tx, job_id, actor, reason, None, False)


async def _skip_fires(tx: Tx, schedule: Schedule, planned: Plan, error: str) -> None:
    if await tx.advance_schedule(schedule, planned):
        await tx.record_fires(schedule.id, 0, 0, None, error)
