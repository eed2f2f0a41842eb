"""What operations share: move a job or refuse to, and write the audit log.

A refusal is a note that is committed; then its error is raised.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from detent.core.access import Scope
from detent.core.contract.model import Contract, Move, Phase
from detent.core.decide import decide, illegal_move
from detent.core.errors import DetentError, StoreUnavailable
from detent.core.job import Change, Facts, Job
from detent.ports.access import Audit
from detent.ports.tx import Tx

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


async def find_leased(tx: Tx, job_id: str, token: str) -> Job | None:
    """Lock and return the job if this token still holds its lease, else None."""
    job = (await tx.jobs.lock([job_id])).get(job_id)
    return job if job is not None and job.phase is Phase.LEASED and job.token == token else None


async def refuse(tx: Tx, job: Job, error: DetentError, name: str, actor: str | None) -> Refused:
    """Write a note of the refusal; the job row and its events stay unchanged."""
    data = {"code": error.code, "message": error.message, **{k: v for k, v in error.extra.items() if k == "asked"}}
    await tx.log.add_notes([job.note(name, tx.now, actor, data)])
    return Refused(error)


async def refuse_move(tx: Tx, contract: Contract, job: Job, move: str, actor: str | None) -> Refused:
    """Refuse a move that the contract does not allow in the status of the job."""
    return await refuse(tx, job, illegal_move(contract, job, move), MOVE_REFUSED, actor)


async def move_job(tx: Tx, contract: Contract, job: Job, move: Move, facts: Facts, act: str) -> Change | Refused:
    try:
        change = decide(contract, job, move, tx.now, facts)
    except DetentError as error:
        return await refuse(tx, job, error, MOVE_REFUSED, facts.actor)
    await tx.jobs.apply([change])
    await audit(tx, Scope(facts.actor or "unknown", facts.reason), act, job.id, job.tenant_id)
    return change


async def audit(
    tx: Tx, scope: Scope, act: str, subject: str, tenant: str | None = None, data: Mapping[str, Any] | None = None
) -> None:
    """Write an entry of the audit log: who did what to which subject, and why."""
    await tx.audit.add_audit(Audit(scope.actor, act, subject, tenant, scope.reason, data))


MOVE_REFUSED = "move.refused"
SETTLE_REFUSED = "settle.refused"
