"""The job that a fire of a schedule creates."""

import json
from typing import TYPE_CHECKING

from detent.core.errors import IdempotencyConflict
from detent.core.job import Job, Micros
from detent.core.schedule import Fire, Schedule, fire_key, jitter_delay
from detent.core.times import SECOND
from detent.engine.submit.prepare import Prepared, prepare
from detent.engine.submit.submission import Submission
from detent.engine.submit.submit import submit_within_quotas
from detent.ports.tx import Tx

if TYPE_CHECKING:
    from detent.engine.engine import Engine


def prepare_job(
    engine: "Engine", schedule: Schedule, moment: Micros, now: Micros, actor: str, later: Micros = 0
) -> Prepared:
    """The job of a fire, not stored yet. later: additional delay of the job."""
    wait = max(moment + jitter_delay(schedule, moment) + later - now, later)
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
    )
    prepared = prepare(engine, submission, now)
    job = prepared.change.after
    job.schedule_type, job.scheduled_at = schedule.kind, moment
    job.deadline_at = None if schedule.deadline is None else now + wait + schedule.deadline
    return prepared


async def make_job(
    engine: "Engine", tx: Tx, schedule: Schedule, moment: Micros, actor: str, later: Micros = 0
) -> Job | None:
    """Create the job of a fire; None if this fire has created one before. later: additional delay of the job."""
    prepared = prepare_job(engine, schedule, moment, tx.now, actor, later)
    if not await tx.fires.add_fires([Fire(schedule.id, moment, prepared.change.after.id, tx.now)]):
        return None
    (submitted,) = await submit_within_quotas(tx, [prepared])
    if submitted.hit:
        job_id = submitted.job.id
        raise IdempotencyConflict(f"job {job_id} has this fire's key but another origin", job_id=job_id)
    return submitted.job
