"""Operations on a job from outside its execution: cancel, abort, reopen, signal, transition."""

from typing import Any

from detent.core.access import Scope
from detent.core.contract.model import Contract, Move, Phase
from detent.core.decide import decide, illegal_move, request_cancel
from detent.core.errors import DetentError, InvalidInput, SignalRefused
from detent.core.job import Change, Facts, Failure, Job, Note, Signal, unchanged
from detent.core.outcome import may_retry
from detent.engine.execution.waits import not_supported, wake_signalled
from detent.engine.refusal import MOVE_REFUSED, Refused, refuse
from detent.engine.runtime import Runtime
from detent.engine.submit import quotas
from detent.engine.submit.submission import check_name, json_text
from detent.ports.access import Audit
from detent.ports.tx import Tx

MAX_SIGNALS = 100
MAX_SIGNAL_BYTES = 1 << 16


async def cancel(runtime: Runtime, tx: Tx, job_id: str, scope: Scope, *, force: bool = False) -> Change | Refused:
    """Cancel now, or request it from the worker that holds the job, as the contract defines for this status."""
    job = await runtime.find(tx, job_id, scope)
    contract = runtime.contract(job.contract)
    if job.status in contract.cancel_requests and not force:
        change = request_cancel(job, tx.now, scope.actor, scope.reason)
        if change.notes:
            await tx.jobs.apply([change])
            await tx.audit.add_audit(Audit(scope.actor, "job.cancel", job.id, job.tenant_id, scope.reason))
        return change
    return await move_job(tx, contract, job, Move.CANCEL, Facts(scope.actor, scope.reason), "job.cancel")


async def abort(runtime: Runtime, tx: Tx, job_id: str, scope: Scope) -> Change | Refused:
    """Make a job fail that no worker holds."""
    job = await runtime.find(tx, job_id, scope)
    contract = runtime.contract(job.contract)
    if job.phase is Phase.LEASED:
        return await refuse(tx, job, illegal_move(contract, job, "abort"), MOVE_REFUSED, scope.actor)
    failure = Failure(
        job.error_code or "ABORTED", job.error_message or scope.reason or f"aborted by {scope.actor}", "Aborted"
    )
    facts = Facts(scope.actor, scope.reason or "aborted", charged=False, failure=failure, dlq_id=runtime.ids.job())
    return await move_job(tx, contract, job, Move.FAIL, facts, "job.abort")


async def reopen(runtime: Runtime, tx: Tx, job_id: str, scope: Scope) -> Change | Refused:
    job = await runtime.find(tx, job_id, scope)
    tenant_quotas = await quotas.lock_quotas(tx.quotas, [job.tenant_id])
    facts = Facts(scope.actor, scope.reason)
    result = await move_job(tx, runtime.contract(job.contract), job, Move.REOPEN, facts, "job.reopen")
    if isinstance(result, Change):
        await quotas.check_backlogs(tx.quotas, tenant_quotas, [job.tenant_id])
    return result


async def transition(runtime: Runtime, tx: Tx, job_id: str, new_status: str, scope: Scope) -> Change | Refused:
    """Take the contract's edge into a status, with its follow-up edges; refused if there is none."""
    job = await runtime.find(tx, job_id, scope)
    contract = runtime.contract(job.contract)
    if new_status == job.status:
        if contract.repeat_is_noop:
            return unchanged(job)
        return await refuse(tx, job, illegal_move(contract, job, f"-> {new_status}"), MOVE_REFUSED, scope.actor)
    moves = [e.move for e in contract.edges if e.source == job.status and e.target == new_status and e.move]
    if not moves:
        return await refuse(tx, job, illegal_move(contract, job, f"-> {new_status}"), MOVE_REFUSED, scope.actor)
    move = moves[0]
    facts = _facts_for_forced_move(runtime, contract, job, move, scope.actor)
    if move is Move.RETRY and facts.failure and not may_retry(contract, job, facts.failure):
        return await refuse(
            tx, job, illegal_move(contract, job, f"-> {new_status} (no retries left)"), MOVE_REFUSED, scope.actor
        )
    return await move_job(tx, contract, job, move, facts, "job.transition")


def _facts_for_forced_move(runtime: Runtime, contract: Contract, job: Job, move: Move, actor: str) -> Facts:
    """The facts that a worker, a failure or a lost lease would have passed to decide."""
    failure, delay = None, 0
    if move in (Move.RETRY, Move.FAIL):
        failure = Failure(contract.code("execution_failed"), f"set by {actor}", "Transition")
    if move is Move.RETRY:
        delay = contract.retry.backoff.delay_ms(job.id, job.retries + 1, runtime.jitter) * 1_000
    if move is Move.EXPIRE:
        failure = Failure(contract.code("lost"), f"set by {actor}", "Transition")
    return Facts(
        actor=actor,
        worker=f"internal:{actor}",
        token=runtime.ids.token(),
        lease=int(contract.lease_seconds * 1_000_000),
        charged=contract.loss.charged if move is Move.EXPIRE else True,
        failure=failure,
        delay=delay,
        dlq_id=runtime.ids.job(),
    )


async def signal(runtime: Runtime, tx: Tx, job_id: str, name: str, scope: Scope, data: Any) -> tuple[Job, bool]:
    """(the job, True if this is the first signal of this name). The first wins; early signals are kept for the wait."""
    check_name(name, "signal name")
    text = json_text(data, "SIGNAL_NOT_JSON", "the signal's data")
    if len(text.encode()) > MAX_SIGNAL_BYTES:
        raise InvalidInput(
            f"the signal's data exceeds {MAX_SIGNAL_BYTES} bytes; pass a reference", code="SIGNAL_TOO_LARGE"
        )
    job = await runtime.find(tx, job_id, scope)
    contract = runtime.contract(job.contract)
    if not contract.has(Move.WAIT):
        raise not_supported(contract, "a wait, so its jobs take no signals")
    waiting = job.phase is Phase.BLOCKED
    awaited = job.awaited_signal == name
    if await tx.signals.signal(job.id, name):
        return (await wake_signalled(contract, tx, job, scope.actor)).after if awaited else job, False
    if job.phase is Phase.FINAL:
        raise SignalRefused(
            f"job {job.id} has finished, it cannot receive {name!r}", code="JOB_FINAL", status=job.status
        )
    if contract.strict_signals and waiting and job.wait_name != name:
        raise SignalRefused(
            f"job {job.id} waits for {job.wait_name!r}, not {name!r}", code="SIGNAL_KEY_MISMATCH", http_status=400
        )
    if not awaited and await tx.signals.count_signals(job.id) >= MAX_SIGNALS:
        raise SignalRefused(f"job {job.id} already has {MAX_SIGNALS} signals, the maximum", code="SIGNAL_LIMIT")
    at = max(tx.now, job.updated_at)
    await tx.signals.add_signal(Signal(job.id, name, text, scope.actor, at))
    note = Note(job.id, job.version, "signal.received", at, scope.actor, job.execution_no, {"name": name})
    await tx.log.add_notes([note])
    return (await wake_signalled(contract, tx, job, scope.actor)).after if awaited else job, True


async def move_job(tx: Tx, contract: Contract, job: Job, move: Move, facts: Facts, act: str) -> Change | Refused:
    try:
        change = decide(contract, job, move, tx.now, facts)
    except DetentError as error:
        return await refuse(tx, job, error, MOVE_REFUSED, facts.actor)
    await tx.jobs.apply([change])
    await tx.audit.add_audit(Audit(facts.actor or "unknown", act, job.id, job.tenant_id, facts.reason))
    return change
