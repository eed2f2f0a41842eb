"""Finding a job for an act, and refusals that leave a note: the refusal is committed, then raised."""

from dataclasses import dataclass
from typing import TypeVar

from detent.core.errors import DetentError, NotFound, TenantViolation
from detent.core.job import Job, Note
from detent.ports.tx import Tx

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Refused:
    """An act's way to say no after it has written down that it said no."""

    error: DetentError


def unwrap(answer: T | Refused) -> T:
    if isinstance(answer, Refused):
        raise answer.error
    return answer


async def find(tx: Tx, job_id: str, tenant: str | None) -> Job:
    """The job, locked, if it exists and this tenant may touch it; tenant None may touch all."""
    job = (await tx.lock([job_id])).get(job_id)
    if job is None:
        raise NotFound(f"there is no job {job_id!r}; check the id, or it was pruned", job_id=job_id)
    if tenant is not None and job.tenant_id != tenant:
        raise TenantViolation(f"job {job_id} belongs to another tenant", job_id=job_id)
    return job


async def refuse(tx: Tx, job: Job, error: DetentError, name: str, actor: str | None) -> Refused:
    """Note the refusal beside the log; the job itself is not touched."""
    data = {"code": error.code, "message": error.message, **{k: v for k, v in error.extra.items() if k == "asked"}}
    await tx.add_notes([Note(job.id, job.version, name, max(tx.now, job.updated_at), actor, job.execution_no, data)])
    return Refused(error)


MOVE_REFUSED = "move.refused"
SETTLE_REFUSED = "settle.refused"
