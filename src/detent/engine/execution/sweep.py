"""Maintenance in bounded passes: leases that ran out, jobs whose moment came. Any process may run it at any time."""

from typing import TYPE_CHECKING

from detent.core.contract.model import Move
from detent.core.decide import decide
from detent.core.job import APPROVAL, Facts, Failure, Job, Signal
from detent.core.outcome import after_loss
from detent.engine.reads.workers import note_losses
from detent.ports.claims import Claimed, ClaimRequest
from detent.ports.tx import Tx

from . import approvals
from .settle import obey_cancel

if TYPE_CHECKING:
    from detent.engine.engine import Engine

ACTOR = "detent"
TOO_LATE = "DEADLINE_EXCEEDED"


async def expire(engine: "Engine", tx: Tx, limit: int) -> list[Job]:
    """Take jobs from workers whose lease ran out, charged or not as the contract says."""
    names = [c.name for c in engine.contracts.values() if c.loss.move is not Move.RECLAIM]
    changed = []
    for job in await tx.expired(limit, names):
        facts = Facts(actor=ACTOR, dlq_id=engine.ids.job(), data={"worker": job.worker})
        contract = engine.contract(job.contract)
        change = obey_cancel(contract, after_loss(contract, job, tx.now, facts, engine.jitter), tx.now)
        await tx.apply([change])
        changed.append(change)
    await note_losses(tx, changed)
    return [change.after for change in changed]


async def end_late(engine: "Engine", tx: Tx, limit: int) -> list[Job]:
    """Jobs that nobody holds at their deadline come too late to be of use: they end."""
    changed = []
    for job in await tx.late(limit, list(engine.contracts)):
        contract = engine.contract(job.contract)
        if not contract.edge(job.status, Move.CANCEL):
            continue
        failure = Failure(TOO_LATE, "the job had not begun by its deadline", "DeadlineExceeded")
        facts = Facts(actor=ACTOR, reason="deadline", failure=failure, charged=False)
        change = decide(contract, job, Move.CANCEL, tx.now, facts)
        await tx.apply([change])
        changed.append(change.after)
    return changed


async def wake(engine: "Engine", tx: Tx, limit: int) -> list[Job]:
    """Wake blocked jobs whose moment came: scheduled ones, and waits that ran into their timeout."""
    changed = await end_late(engine, tx, limit)
    for job in await tx.due_blocked(limit, list(engine.contracts)):
        contract = engine.contract(job.contract)
        if job.wait_kind == APPROVAL:
            change = await approvals.expire(tx, contract, job)
            await tx.apply([change])
            changed.append(change.after)
            continue
        reason = None
        if job.wait_name:
            reason = "timeout"
            await tx.add_signal(Signal(job.id, job.wait_name, "null", ACTOR, tx.now, timed_out=True))
        change = decide(contract, job, Move.WAKE, tx.now, Facts(actor=ACTOR, reason=reason))
        await tx.apply([change])
        changed.append(change.after)
    return changed


async def reclaim(engine: "Engine", tx: Tx, request: ClaimRequest) -> list[Claimed]:
    """Take over expired leases of contracts whose jobs go from holder to holder."""
    names = [
        c.name
        for c in engine.contracts.values()
        if c.loss.move is Move.RECLAIM and c.name not in request.exclude_contracts
    ]
    if not names:
        return []
    taken, changed = [], []
    for job in await tx.lost_to(request, names):
        facts = Facts(
            worker=request.worker,
            token=request.token,
            lease=request.lease,
            charged=False,
            data={"old_consumer": job.worker, "new_consumer": request.worker, "message_id": job.token},
        )
        change = decide(engine.contract(job.contract), job, Move.RECLAIM, tx.now, facts)
        await tx.apply([change])
        changed.append(change)
        taken.append(claimed_of(change.after, request.token))
    await note_losses(tx, changed)
    return taken


def claimed_of(job: Job, token: str) -> Claimed:
    return Claimed(
        job.id,
        token,
        job.contract,
        job.job_type,
        job.queue,
        job.tenant_id,
        job.payload,
        job.execution_no,
        job.retries,
        job.version,
        job.timeout_ms,
        job.trace_id,
        job.effect_root or job.id,
        job.idempotency_key,
        job.cancel_requested,
        job.due_at,
        job.traceparent,
        job.parent_id,
    )
