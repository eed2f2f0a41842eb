"""Sweeps: expired leases, due waits and passed deadlines, in bounded batches. Any process may run them at any time."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from detent.core.contract.model import Move, Phase
from detent.core.decide import decide
from detent.core.job import APPROVAL, Change, Facts, Failure, Job, Signal, SignalKey
from detent.core.outcome import after_loss, after_reclaim, after_timeout, fail_after_interruptions, timed_out
from detent.engine.reads.workers import record_losses
from detent.engine.runtime import Runtime
from detent.ports.claims import Claimed, ClaimRequest, ClaimTable
from detent.ports.tx import Tx

from . import approvals
from .settle import apply_requested_cancel, wake_signalled

ACTOR = "detent"
TOO_LATE = "DEADLINE_EXCEEDED"


async def expire(runtime: Runtime, tx: Tx, limit: int) -> list[Change]:
    """End executions whose lease has expired: a timeout, or a lost worker. The contract decides what the job does next.

    Jobs of lost workers are left to `reclaim` where the contract has that move.
    """
    reclaimed = {c.name for c in runtime.contracts.values() if c.loss.move is Move.RECLAIM}
    others = [name for name in runtime.contracts if name not in reclaimed]
    changed, lost = [], []
    for job in await tx.claims.expired(limit, others, timed_out=sorted(reclaimed)):
        contract = runtime.contract(job.contract)
        facts = Facts(actor=ACTOR, dlq_id=runtime.ids.job(), data={"worker": job.worker})
        decide_end = after_timeout if timed_out(job, tx.now) else after_loss
        change = apply_requested_cancel(contract, decide_end(contract, job, tx.now, facts, runtime.jitter), tx.now)
        changed.append(change)
        if decide_end is after_loss:
            lost.append(change)
    await tx.jobs.apply(changed)
    await record_losses(tx, lost)
    return changed


async def cancel_past_deadline(runtime: Runtime, tx: Tx, limit: int) -> list[Change]:
    """Cancel jobs that were not started by their deadline."""
    changed = []
    for job in await tx.due.past_deadline(limit, list(runtime.contracts)):
        contract = runtime.contract(job.contract)
        if contract.edge(job.status, Move.CANCEL):
            failure = Failure(TOO_LATE, "the job was not started by its deadline", "DeadlineExceeded")
            facts = Facts(actor=ACTOR, reason="deadline", failure=failure, charged=False)
            changed.append(decide(contract, job, Move.CANCEL, tx.now, facts))
    await tx.jobs.apply(changed)
    return changed


async def wake(runtime: Runtime, tx: Tx, limit: int) -> list[Change]:
    """Wake blocked jobs that are due (scheduled, or their wait timed out) and cancel jobs past their deadline."""
    changed = await cancel_past_deadline(runtime, tx, limit)
    for job in await tx.due.due_blocked(limit, list(runtime.contracts)):
        contract = runtime.contract(job.contract)
        if job.wait_kind == APPROVAL:
            change = await approvals.expire(tx, contract, job)
        else:
            reason = None
            if job.wait_name:
                reason = "signalled" if await tx.signals.signal(job.id, job.wait_name) else "timeout"
                if reason == "timeout":
                    await tx.signals.add_signal(Signal(job.id, job.wait_name, "null", ACTOR, tx.now, timed_out=True))
            change = decide(contract, job, Move.WAKE, tx.now, Facts(actor=ACTOR, reason=reason))
        await tx.jobs.apply([change])
        changed.append(change)
    return changed


async def wake_missed_signals(
    runtime: Runtime, tx: Tx, after: SignalKey | None, limit: int
) -> tuple[list[Change], SignalKey | None]:
    """Wake jobs that wait although their signal is on record, among the next signals; see `Tx.missed_signals`.

    No act of the engine leaves a job like this. Rows written in another way can: a restore, SQL, an older version.
    """
    missed, end = await tx.signals.missed_signals(after, limit)
    woken = []
    for job in (await tx.jobs.lock(missed, wait=False)).values():
        contract = runtime.contracts.get(job.contract)
        if contract and job.awaited_signal and await tx.signals.signal(job.id, job.awaited_signal):
            woken.append(await wake_signalled(contract, tx, job, ACTOR))
    return woken, end


async def reclaim(runtime: Runtime, tx: Tx, request: ClaimRequest) -> list[Change]:
    """Claim jobs with an expired lease directly for this worker, under contracts whose loss move is RECLAIM.

    A job with too many losses is failed instead; the other changes are the claimed jobs.
    """
    names = [
        c.name
        for c in runtime.contracts.values()
        if c.loss.move is Move.RECLAIM and c.name not in request.exclude_contracts
    ]
    if not names:
        return []
    changed: list[Change] = []
    for job in await tx.claims.reclaimable(request, names):
        # Claimed a moment ago by this request, before the process was stopped; or to be ended by `expire`.
        if job.token == request.token or timed_out(job, tx.now):
            continue
        change = _reclaim(runtime, tx, request, job)
        if change.after.phase is Phase.LEASED and not _may_join(request, change.after, leased(changed)):
            continue
        await tx.jobs.apply([change])
        changed.append(change)
    await record_losses(tx, changed)
    return changed


def leased(changes: Iterable[Change]) -> list[Job]:
    """The jobs that a worker holds after these changes."""
    return [change.after for change in changes if change.after.phase is Phase.LEASED]


def _reclaim(runtime: Runtime, tx: Tx, request: ClaimRequest, job: Job) -> Change:
    contract = runtime.contract(job.contract)
    change = after_reclaim(contract, job, tx.now, request.worker, request.token, request.lease)
    limit = contract.loss.max_interruptions
    failure = Failure(contract.code("lost"), f"more than {limit} workers were lost while holding the job", "WorkerLost")
    failed = Facts(actor=ACTOR, failure=failure, charged=False, dlq_id=runtime.ids.job())
    return fail_after_interruptions(contract, change, tx.now, failed)


def _may_join(request: ClaimRequest, job: Job, claimed: Sequence[Job]) -> bool:
    """Whether one claim may bring this job besides the others, see `ClaimRequest.suspects`."""
    has_suspect = any(other.suspect for other in claimed)
    if request.suspects is None:
        return not has_suspect and not (job.suspect and claimed)
    return not job.suspect or (request.suspects and not has_suspect)


async def claim_suspect(claims: ClaimTable, request: ClaimRequest) -> list[Claimed]:
    """Claim one suspect. It is never claimed with another: if it kills its worker, no other job is lost with it."""
    return await claims.claim(replace(request, limit=1, only_suspects=True))


def claimed_of(job: Job, token: str) -> Claimed:
    values = {name: getattr(job, name) for name in Claimed._fields}
    return Claimed(**{**values, "token": token, "effect_root": job.effect_root or job.id})
