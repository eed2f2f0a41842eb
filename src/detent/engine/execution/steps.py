"""Step records of a running job, checked by its lease token: one statement, or a locked retry if that is refused."""

from detent.core.contract.model import Phase
from detent.core.errors import StaleLease
from detent.core.job import Job, Note, Progress, Step
from detent.engine.refusal import Refused, find_leased, refuse, unwrap
from detent.engine.runtime import Runtime
from detent.ports.claims import Claimed
from detent.ports.tx import StepTable, Tx

STEP_REFUSED = "step.refused"
STEP_ORPHANED = "step.orphaned"
STEP_STARTED = "step.started"
"""A `ctx.once` that has begun and has not finished. It and `step.finished` are read from the table of steps."""
STEP_FINISHED = "step.finished"
MAX_PROGRESS_MESSAGE = 500


def has_no_recorded_steps(claimed: Claimed) -> bool:
    """True in a job's first execution, unless it took over the steps of the job it was requeued from."""
    return claimed.execution_no == 1 and claimed.effect_root == claimed.id


async def recorded_steps(runtime: Runtime, claimed: Claimed) -> list[Step]:
    """All steps the job has recorded."""
    if has_no_recorded_steps(claimed):
        return []
    return await runtime.store.read(lambda tx: tx.steps.list_steps(claimed.id))


async def record_step(runtime: Runtime, step: Step, token: str) -> None:
    """Write one step. Idempotent. If the lease is lost, write a note and raise StaleLease."""
    if not await runtime.store.record_step(step, token):
        unwrap(await runtime.store.write(lambda tx: _record_after_lock(tx, step, token)))


async def record_step_or_raise(steps: StepTable, step: Step, token: str) -> None:
    """Write one step in a handler's transaction. A refusal is raised instead of noted, so all of it rolls back."""
    if not await steps.record_step(step, token):
        raise _stale(step)


async def note_refusal(runtime: Runtime, step: Step, error: StaleLease) -> None:
    async def act(tx: Tx) -> None:
        job = (await tx.jobs.lock([step.job_id])).get(step.job_id)
        if job is not None:
            await refuse(tx, job, error, STEP_REFUSED, None)

    await runtime.store.write(act)


async def _record_after_lock(tx: Tx, step: Step, token: str) -> Refused | None:
    """Record the step under the row lock. The first try failed because the row was locked, because this step was
    already recorded by a call whose reply was lost, or because the lease is lost."""
    job = (await tx.jobs.lock([step.job_id])).get(step.job_id)
    if job is None:
        return Refused(StaleLease(f"job {step.job_id} no longer exists; stop working on it", job_id=step.job_id))
    leased = job.token == token and job.phase is Phase.LEASED
    if leased and (await tx.steps.record_step(step, token) or await _is_already_recorded(tx.steps, step)):
        return None
    return await refuse(tx, job, _stale(step), STEP_REFUSED, None)


def _stale(step: Step) -> StaleLease:
    return StaleLease(
        f"the lease on job {step.job_id} was lost, its step {step.name!r} is not recorded; stop working on it",
        job_id=step.job_id,
        asked=step.name,
    )


async def _is_already_recorded(steps: StepTable, step: Step) -> bool:
    """A step name is used once per execution, so a record of this name and execution is this step."""
    stored = await steps.step(step.job_id, step.name)
    return stored is not None and stored.execution_no == step.execution_no and stored.digest == step.digest


async def record_progress(runtime: Runtime, claimed: Claimed, share: float, message: str) -> bool:
    """Overwrite the job's progress, if this execution still holds its lease; False if it does not."""
    share = max(0.0, min(1.0, share))
    progress = Progress(claimed.id, claimed.execution_no, share, message[:MAX_PROGRESS_MESSAGE], runtime.store.now())
    return await runtime.store.write(lambda tx: tx.output.put_progress(progress, token=claimed.token))


async def note_orphaned_steps(runtime: Runtime, claimed: Claimed, names: list[str]) -> None:
    """Write one note for each recorded step that the handler's code no longer runs."""

    async def act(tx: Tx) -> None:
        job = await find_leased(tx, claimed.id, claimed.token)
        if job is not None:
            await tx.log.add_notes(await orphaned_step_notes(tx, job, names))

    await runtime.store.write(act)


async def orphaned_step_notes(tx: Tx, job: Job, names: list[str]) -> list[Note]:
    noted = {(note.data or {}).get("name") for note in await tx.log.notes(job.id) if note.name == STEP_ORPHANED}
    return [job.note(STEP_ORPHANED, tx.now, job.worker, {"name": name}) for name in names if name not in noted]
