"""The job that a fire of a schedule creates."""

import json

from detent.core.errors import IdempotencyConflict
from detent.core.job import Job, Micros
from detent.core.schedule import Fire, Schedule, fire_key, jitter_delay
from detent.core.times import SECOND
from detent.engine.runtime import Runtime
from detent.engine.submit.prepare import Prepared, prepare
from detent.engine.submit.submission import ScheduledFire, Submission
from detent.engine.submit.submit import submit_within_quotas
from detent.ports.tx import Tx


def prepare_job(
    runtime: Runtime, schedule: Schedule, moment: Micros, now: Micros, actor: str, later: Micros = 0
) -> Prepared:
    """The job of a fire, not stored yet. later: additional delay of the job."""
    wait = max(moment + jitter_delay(schedule, moment) + later - now, later)
    deadline_at = None if schedule.deadline is None else now + wait + schedule.deadline
    submission = Submission(
        job_type=schedule.job_type,
        payload=json.loads(schedule.payload),
        contract=schedule.contract,
        **schedule.run_options(),
        idempotency_key=fire_key(schedule.id, moment),
        max_retries=schedule.max_retries,
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
