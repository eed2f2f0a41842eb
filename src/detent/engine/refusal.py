"""Looks up the job of an operation, and refuses operations: the refusal's note is committed, then the error raised."""

from dataclasses import dataclass
from typing import TypeVar

from detent.core.errors import DetentError, NotFound, StoreUnavailable, TenantViolation
from detent.core.job import Job, Note
from detent.ports.tx import JobTable, Tx

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Refused:
    """A refusal whose note is committed; `unwrap` raises its error after the commit."""

    error: DetentError


def unwrap(result: T | Refused) -> T:
    if isinstance(result, Refused):
        raise result.error
    return result


def is_refusal(error: Exception) -> bool:
    """True if an item of a batch may be the cause, so that the others should be tried without it."""
    return isinstance(error, DetentError) and not isinstance(error, StoreUnavailable)


async def find(jobs: JobTable, job_id: str, tenant: str | None) -> Job:
    """Lock and return the job; raises if it does not exist or belongs to another tenant. tenant None: any tenant."""
    job = (await jobs.lock([job_id])).get(job_id)
    if job is None:
        raise NotFound(f"job {job_id!r} does not exist; check the id, it may have been pruned", job_id=job_id)
    if tenant is not None and job.tenant_id != tenant:
        raise TenantViolation(f"job {job_id} belongs to another tenant", job_id=job_id)
    return job


async def refuse(tx: Tx, job: Job, error: DetentError, name: str, actor: str | None) -> Refused:
    """Write a note of the refusal; the job row and its events stay unchanged."""
    data = {"code": error.code, "message": error.message, **{k: v for k, v in error.extra.items() if k == "asked"}}
    await tx.log.add_notes(
        [Note(job.id, job.version, name, max(tx.now, job.updated_at), actor, job.execution_no, data)]
    )
    return Refused(error)


MOVE_REFUSED = "move.refused"
SETTLE_REFUSED = "settle.refused"
