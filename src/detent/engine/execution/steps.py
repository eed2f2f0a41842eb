"""Steps a running job records under its token: one statement if all is well, a second look if it is not."""

from typing import TYPE_CHECKING

from detent.core.contract.model import Phase
from detent.core.errors import StaleLease
from detent.core.job import Job, Note, Step
from detent.engine.refusal import Refused, refuse, unwrap
from detent.ports.claims import Claimed
from detent.ports.tx import Tx

if TYPE_CHECKING:
    from detent.engine.engine import Engine

STEP_REFUSED = "step.refused"
STEP_ORPHANED = "step.orphaned"


def has_none_yet(claimed: Claimed) -> bool:
    """In its first execution a job begins without steps, unless it took over another's."""
    return claimed.execution_no == 1 and claimed.effect_root == claimed.id


async def recorded(engine: "Engine", claimed: Claimed) -> list[Step]:
    """Every step of the job so far."""
    if has_none_yet(claimed):
        return []
    return await engine.store.read(lambda tx: tx.steps(claimed.id))


async def record(engine: "Engine", step: Step, token: str) -> None:
    """Write one step; StaleLease, noted, if the job is no longer ours. The same said again is said once."""
    if not await engine.store.record_step(step, token):
        unwrap(await engine.store.write(lambda tx: look_again(tx, step, token)))


async def record_last(tx: Tx, step: Step, token: str) -> None:
    """In a transaction that has more in it than this: a refusal undoes all of it, so it is raised, not noted."""
    if not await tx.record_step(step, token):
        raise _stale(step)


async def note_refusal(engine: "Engine", step: Step, error: StaleLease) -> None:
    async def act(tx: Tx) -> None:
        job = (await tx.lock([step.job_id])).get(step.job_id)
        if job is not None:
            await refuse(tx, job, error, STEP_REFUSED, None)

    await engine.store.write(act)


async def look_again(tx: Tx, step: Step, token: str) -> Refused | None:
    """The row was held by somebody, the step was recorded by a call whose reply was lost, or the lease is gone."""
    job = (await tx.lock([step.job_id])).get(step.job_id)
    if job is None:
        return Refused(StaleLease(f"job {step.job_id} does not exist any more; drop its work", job_id=step.job_id))
    ours = job.token == token and job.phase is Phase.LEASED
    if ours and (await tx.record_step(step, token) or await _is_ours(tx, step)):
        return None
    return await refuse(tx, job, _stale(step), STEP_REFUSED, None)


def _stale(step: Step) -> StaleLease:
    return StaleLease(
        f"the lease on job {step.job_id} was lost; its step {step.name!r} is not recorded, stop working on it",
        job_id=step.job_id,
        asked=step.name,
    )


async def _is_ours(tx: Tx, step: Step) -> bool:
    """A name is used once in an execution, so what stands under it from this execution is this very step."""
    found = await tx.step(step.job_id, step.name)
    return found is not None and found.execution_no == step.execution_no and found.digest == step.digest


async def note_orphans(engine: "Engine", claimed: Claimed, names: list[str]) -> None:
    """Steps the code no longer asks for: each told once, beside the log."""

    async def act(tx: Tx) -> None:
        job = (await tx.lock([claimed.id])).get(claimed.id)
        if job is not None and job.token == claimed.token and job.phase is Phase.LEASED:
            await tx.add_notes(await orphan_notes(tx, job, names))

    await engine.store.write(act)


async def orphan_notes(tx: Tx, job: Job, names: list[str]) -> list[Note]:
    told = {(note.data or {}).get("name") for note in await tx.notes(job.id) if note.name == STEP_ORPHANED}
    at = max(tx.now, job.updated_at)
    fresh = [name for name in names if name not in told]
    return [Note(job.id, job.version, STEP_ORPHANED, at, job.worker, job.execution_no, {"name": n}) for n in fresh]
