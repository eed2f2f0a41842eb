"""Runs one execution without a handler: claims the job under a lease and settles it at once with a chosen outcome."""

from dataclasses import dataclass
from enum import StrEnum

from detent.core.access import Scope
from detent.core.contract.model import Move, Phase
from detent.core.decide import decide
from detent.core.job import Change, Facts, Failure, Job
from detent.core.outcome import Failed, Outcome, Succeeded
from detent.core.times import SECOND, iso
from detent.engine.reads import responses
from detent.engine.reads.responses import show
from detent.engine.refusal import Refused, audit, refuse_move
from detent.engine.runtime import Runtime, Service
from detent.ports.tx import Tx

from .settle import Settlement, settle_job

INTERNAL = "internal:"
"""Prefix of the worker name of such claims; a job claimed by one may be run manually again."""


class ManualRun(StrEnum):
    """The outcome of the execution; the values are stored in the audit log."""

    SUCCEED = "well"
    FAIL = "for good"
    RETRY = "for now"


@dataclass(frozen=True, slots=True)
class ManualRunResult:
    """The job afterwards, and the retry delay if it will be retried."""

    job: Job
    retry_after_ms: int | None

    def as_dict(self) -> responses.ManualRunResponse:
        job, retry_after_ms = self.job, self.retry_after_ms
        values = {"job_id": job.id, "final_status": job.status, "retry_count": job.retries}
        retry_at = None if retry_after_ms is None else iso(job.due_at)
        return show(responses.ManualRunResponse, job, **values, retry_after_ms=retry_after_ms, retry_at=retry_at)


async def run_manually(self: Service, job_id: str, how: ManualRun, scope: Scope) -> ManualRunResult:
    """Run one execution without a handler, even if the job is not due yet; see `ManualRun`.

    Refused if the job has finished or a worker holds it.
    """
    runtime = self._runtime
    token = runtime.ids.token()

    async def act(tx: Tx) -> Change | Refused:
        job = await runtime.find(tx, job_id, scope)
        held = await _claim(runtime, tx, job, scope.actor, token)
        if isinstance(held, Refused):
            return held
        settlement = Settlement(job.id, held.token or token, job.contract, _outcome(runtime, held, how))
        settled = await settle_job(runtime, tx, held, settlement)
        if not isinstance(settled, Refused):
            await audit(tx, Scope(scope.actor), "job.play", job.id, job.tenant_id, {"end": str(how)})
        return settled

    job = await runtime.change(act)
    retries = job.phase is not Phase.FINAL and job.due_at is not None
    return ManualRunResult(job, ((job.due_at or 0) - job.updated_at) // 1_000 if retries else None)


async def _claim(runtime: Runtime, tx: Tx, job: Job, actor: str, token: str) -> Job | Refused:
    contract = runtime.contract(job.contract)
    if job.phase is Phase.LEASED and (job.worker or "").startswith(INTERNAL):
        return job
    worker, lease = f"{INTERNAL}{actor}", int(contract.lease_seconds * SECOND)
    facts = Facts(actor=worker, worker=worker, token=token, lease=lease)
    if job.phase is not Phase.CLAIMABLE:
        return await refuse_move(tx, contract, job, "run", actor)
    change = decide(contract, job, Move.CLAIM, tx.now, facts)  # every claimable status has a CLAIM edge
    await tx.jobs.apply([change])
    return change.after


def _outcome(runtime: Runtime, job: Job, how: ManualRun) -> Outcome:
    if how is ManualRun.SUCCEED:
        return Succeeded(None)
    code = runtime.contract(job.contract).code("execution_failed")
    retryable = how is ManualRun.RETRY
    message = "manual run: retryable failure" if retryable else "manual run: permanent failure"
    return Failed(Failure(code, message, "ManualRun", retryable=retryable))
