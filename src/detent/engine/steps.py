"""Steps a running job records under its token: one statement if all is well, a second look if it is not."""

from typing import TYPE_CHECKING

from ..core.contract import Phase
from ..core.errors import StaleLease
from ..core.job import Note, Step
from ..ports import Claimed, Tx
from .refusal import Refused, refuse, unwrap

if TYPE_CHECKING:
    from . import Engine

STEP_REFUSED = "step.refused"
STEP_ORPHANED = "step.orphaned"


async def recorded(engine: "Engine", claimed: Claimed) -> list[Step]:
    """Every step of the job so far. In its first execution a job has none, unless it took over another's."""
    if claimed.execution_no == 1 and claimed.effect_root == claimed.id:
        return []
    return await engine.store.read(lambda tx: tx.steps(claimed.id))


async def record(
    engine: "Engine", claimed: Claimed, name: str, digest: str, result: str | None, finished: bool
) -> None:
    """Write one step; StaleLease, noted, if the job is no longer ours. The same said again is said once."""
    step = Step(claimed.id, name, digest, result, finished, claimed.execution_no, engine.store.now())
    if not await engine.store.record_step(step, claimed.token):
        unwrap(await engine.store.write(lambda tx: look_again(tx, step, claimed.token)))


async def look_again(tx: Tx, step: Step, token: str) -> Refused | None:
    """The row was held by somebody, the step was recorded by a call whose reply was lost, or the lease is gone."""
    job = (await tx.lock([step.job_id])).get(step.job_id)
    if job is None:
        return Refused(StaleLease(f"job {step.job_id} does not exist any more; drop its work", job_id=step.job_id))
    ours = job.token == token and job.phase is Phase.LEASED
    if ours and (await tx.record_step(step, token) or await _is_ours(tx, step)):
        return None
    error = StaleLease(
        f"the lease on job {job.id} was lost; its step {step.name!r} is not recorded, stop working on it",
        job_id=job.id,
        status=job.status,
        asked=step.name,
    )
    return await refuse(tx, job, error, STEP_REFUSED, None)


async def _is_ours(tx: Tx, step: Step) -> bool:
    """A name is used once in an execution, so what stands under it from this execution is this very step."""
    found = await tx.step(step.job_id, step.name)
    return found is not None and found.execution_no == step.execution_no and found.digest == step.digest


async def note_orphans(engine: "Engine", claimed: Claimed, names: list[str]) -> None:
    """Steps the code no longer asks for: each told once, beside the log."""

    async def act(tx: Tx) -> None:
        job = (await tx.lock([claimed.id])).get(claimed.id)
        if job is None or job.token != claimed.token or job.phase is not Phase.LEASED:
            return
        told = {(note.data or {}).get("name") for note in await tx.notes(job.id) if note.name == STEP_ORPHANED}
        at = max(tx.now, job.updated_at)
        fresh = [name for name in names if name not in told]
        await tx.add_notes(
            [Note(job.id, job.version, STEP_ORPHANED, at, job.worker, job.execution_no, {"name": n}) for n in fresh]
        )

    await engine.store.write(act)
