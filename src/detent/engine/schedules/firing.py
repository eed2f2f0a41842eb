"""Fires: each makes one job, however many processes see it due. Any process may run it at any time."""

import json
import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from detent.core.errors import DetentError, IdempotencyConflict, QuotaExceeded, StoreUnavailable, VersionConflict
from detent.core.job import Job, Micros
from detent.core.schedule import Fire, Overlap, Plan, Schedule, fire_key, first_of, plan, shift
from detent.core.times import SECOND
from detent.engine.control import job_control
from detent.engine.submit.prepare import prepare
from detent.engine.submit.submission import Submission
from detent.engine.submit.submit import submit_within
from detent.ports.tx import Tx

if TYPE_CHECKING:
    from detent.engine.engine import Engine

log = logging.getLogger("detent.schedules")
LOOKED_BACK = 100
"""How many fires back an overlap is looked for."""
PUT_OFF: Micros = 5 * SECOND
"""When a fire that found its tenant's backlog full is tried again."""


class Fired(NamedTuple):
    """The jobs that were made, and when the next fire is due; None: nothing is planned."""

    jobs: list[Job]
    next: Micros | None


async def fire_due(engine: "Engine", limit: int) -> Fired:
    """One bounded pass over what is due, each schedule in a transaction of its own. One look if nothing is."""
    contracts = list(engine.contracts)
    now, due, following = await engine.store.read(partial(_due, contracts, limit))
    if not due:
        return Fired([], following)
    jobs: list[Job] = []
    for schedule in due:
        try:
            planned = plan(schedule, now)
        except Exception as error:  # a zone this machine does not know, say: others may, and its neighbours go on
            log.warning(
                "schedule %s (%s) cannot be read here, it is left to others: %s", schedule.name, schedule.id, error
            )
            continue
        jobs += await _handle(engine, schedule, planned)
    return Fired(jobs, await engine.store.read(lambda tx: tx.next_fire(contracts)))


async def _due(contracts: list[str], limit: int, tx: Tx) -> tuple[Micros, list[Schedule], Micros | None]:
    following = await tx.next_fire(contracts)
    if following is None or following > tx.now:
        return tx.now, [], following
    soonest = await tx.soonest_schedules(limit, contracts)
    due = [one for one in soonest if (one.retry_at or one.next_fire_at or tx.now + 1) <= tx.now]
    return tx.now, due, following


async def _handle(engine: "Engine", schedule: Schedule, planned: Plan) -> list[Job]:
    try:
        return await engine.store.write(lambda tx: _fire(engine, tx, schedule, planned))
    except StoreUnavailable:
        raise
    except VersionConflict:  # somebody was in the way: the fire stays due, and the next sweep tries again
        return []
    except QuotaExceeded as error:
        if len(planned.fires) > 1:  # as many as there is room for, the oldest first
            return await _handle(engine, schedule, first_of(schedule, planned))
        log.warning("schedule %s (%s) waits for room: %s", schedule.name, schedule.id, error.message)
        told = f"{error.code}: {error.message}"
        await engine.store.write(lambda tx: tx.put_off_fire(schedule, tx.now + PUT_OFF, told))
        return []
    except DetentError as error:
        # A job that cannot be made must not hold up the fires behind it, nor pass unseen.
        told = f"{error.code}: {error.message}"
        missed = planned._replace(
            missed=planned.missed + len(planned.fires), last_missed=max(planned.fires, default=planned.last_missed)
        )
        await engine.store.write(lambda tx: _give_up(tx, schedule, missed, told))
        return []


async def _fire(engine: "Engine", tx: Tx, schedule: Schedule, planned: Plan) -> list[Job]:
    """The compare-and-set comes first: whoever is too late has written nothing."""
    if not await tx.advance_schedule(schedule, planned):
        return []
    made: list[tuple[Micros, Job]] = []
    overlapped = 0
    running = [] if schedule.overlap == Overlap.ALLOW else await tx.unfinished_fires(schedule.id, LOOKED_BACK)
    for moment in planned.fires:
        if running and schedule.overlap == Overlap.SKIP:
            overlapped += 1
            continue
        for job_id in running:
            await _cancel(engine, tx, schedule, job_id)
        job = await make_job(engine, tx, schedule, moment, f"schedule:{schedule.name}")
        if job is not None:
            made.append((moment, job))
            running = [] if schedule.overlap == Overlap.ALLOW else [job.id]
    last = (made[-1][0], made[-1][1].id) if made else None
    passed_over = schedule.last_error if schedule.retry_at is not None and not planned.fires else None
    await tx.told_fires(schedule.id, len(made), overlapped, last, passed_over)
    return [job for _, job in made]


async def make_job(
    engine: "Engine", tx: Tx, schedule: Schedule, moment: Micros, actor: str, later: Micros = 0
) -> Job | None:
    """The one job of a fire; None if it was made before. later: how much it is put off besides."""
    wait = max(moment + shift(schedule, moment) + later - tx.now, later)
    ask = Submission(
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
    prepared = prepare(engine, ask, tx.now)
    job = prepared.change.after
    job.schedule_type, job.scheduled_at = schedule.kind, moment
    job.deadline_at = None if schedule.deadline is None else tx.now + wait + schedule.deadline
    if not await tx.add_fire(Fire(schedule.id, moment, job.id, tx.now)):
        return None
    (made,) = await submit_within(tx, [prepared])
    if made.hit:
        raise IdempotencyConflict(f"job {made.job.id} bears the key of this fire and is not of it", job_id=made.job.id)
    return made.job


async def _cancel(engine: "Engine", tx: Tx, schedule: Schedule, job_id: str) -> None:
    """A job whose row somebody holds is not waited for: the fire comes again with the next sweep."""
    if job_id not in await tx.lock([job_id], wait=False):
        raise VersionConflict(f"job {job_id} is held by another transaction; the fire is tried again", job_id=job_id)
    who, why = f"schedule:{schedule.name}", "the next fire has come"
    await job_control.cancel(engine, tx, job_id, who, why, None, False)


async def _give_up(tx: Tx, schedule: Schedule, planned: Plan, error: str) -> None:
    if await tx.advance_schedule(schedule, planned):
        await tx.told_fires(schedule.id, 0, 0, None, error)
