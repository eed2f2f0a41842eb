"""Playing an execution by hand: a lease is taken like a worker's and ended at once, without calling any handler."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from detent.core.contract.model import Move, Phase
from detent.core.decide import decide, illegal
from detent.core.errors import DetentError
from detent.core.job import Facts, Failure, Job
from detent.core.outcome import Failed, Outcome, Succeeded
from detent.core.times import iso
from detent.engine.refusal import MOVE_REFUSED, Refused, find, refuse, unwrap
from detent.ports.access import Audit
from detent.ports.tx import Tx

from .settle import Settlement, settle_in

if TYPE_CHECKING:
    from detent.engine.engine import Engine

INTERNAL = "internal:"
"""How a holder is called that is no worker: what it holds may be played on."""


class ManualRun(StrEnum):
    """How the execution ends."""

    WELL = "well"
    FOR_GOOD = "for good"
    FOR_NOW = "for now"


@dataclass(frozen=True, slots=True)
class ManualRunResult:
    """Where the job is after it, and the delay that was drawn if it is to be tried again."""

    job: Job
    retry_after_ms: int | None

    def as_dict(self) -> dict[str, Any]:
        again = self.retry_after_ms is not None
        return {
            "job_id": self.job.id,
            "final_status": self.job.status,
            "retry_count": self.job.retries,
            "dlq_id": self.job.dlq_id,
            "retry_after_ms": self.retry_after_ms,
            "retry_at": iso(self.job.due_at) if again else None,
        }


async def run_manually(
    engine: "Engine", job_id: str, how: ManualRun, *, actor: str, tenant: str | None = None
) -> ManualRunResult:
    """One execution, whether it is due or not; refused for a job that has ended or that somebody else holds."""
    token = engine.ids.token()

    async def act(tx: Tx) -> Job | Refused:
        job = await find(tx, job_id, tenant)
        held = await _take(engine, tx, job, actor, token)
        if isinstance(held, Refused):
            return held
        said = Settlement(job.id, held.token or token, job.contract, _outcome(engine, held, how))
        done = await settle_in(engine, tx, held, said)
        if not isinstance(done, Refused):
            await tx.add_audit(Audit(actor, "job.play", job.id, job.tenant_id, None, {"end": str(how)}))
        return done

    job = unwrap(await engine.store.write(act))
    again = job.phase is not Phase.FINAL and job.due_at is not None
    return ManualRunResult(job, ((job.due_at or 0) - job.updated_at) // 1_000 if again else None)


async def _take(engine: "Engine", tx: Tx, job: Job, actor: str, token: str) -> Job | Refused:
    contract = engine.contract(job.contract)
    if job.phase is Phase.LEASED and (job.worker or "").startswith(INTERNAL):
        return job
    facts = Facts(
        actor=f"{INTERNAL}{actor}",
        worker=f"{INTERNAL}{actor}",
        token=token,
        lease=int(contract.lease_seconds * 1_000_000),
    )
    try:
        if job.phase is not Phase.CLAIMABLE:
            raise illegal(contract, job, "run")
        change = decide(contract, job, Move.CLAIM, tx.now, facts)
    except DetentError as error:
        return await refuse(tx, job, error, MOVE_REFUSED, actor)
    await tx.apply([change])
    return change.after


def _outcome(engine: "Engine", job: Job, how: ManualRun) -> Outcome:
    if how is ManualRun.WELL:
        return Succeeded(None)
    code = engine.contract(job.contract).code("execution_failed")
    passing = how is ManualRun.FOR_NOW
    told = "failed for now, as asked" if passing else "failed for good, as asked"
    return Failed(Failure(code, told, "ManualRunResult", retryable=passing))
