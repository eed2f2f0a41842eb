"""Operations on a job from outside its execution: cancel, abort, reopen, signal, transition."""

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from detent.core.contract.model import Contract, Move, Phase
from detent.core.decide import decide, illegal_move
from detent.core.errors import DetentError, InvalidInput, SignalRefused
from detent.core.job import Change, Facts, Failure, Job, Note, Signal
from detent.core.outcome import may_retry
from detent.engine.execution.settle import not_supported, wake_signalled
from detent.engine.refusal import MOVE_REFUSED, Refused, find, refuse
from detent.engine.submit import quotas
from detent.engine.submit.submission import check_name, json_text
from detent.ports.access import Audit
from detent.ports.tx import Tx

if TYPE_CHECKING:
    from detent.engine.engine import Engine

MAX_SIGNALS = 100
MAX_SIGNAL_BYTES = 1 << 16


async def cancel(
    engine: "Engine", tx: Tx, job_id: str, actor: str, reason: str | None, tenant: str | None, force: bool
) -> Job | Refused:
    """Cancel now, or request it from the worker that holds the job, as the contract defines for this status."""
    job = await find(tx.jobs, job_id, tenant)
    contract = engine.contract(job.contract)
    if job.status in contract.cancel_requests and not force:
        return await _request_cancel(tx, job, actor, reason)
    return await move_job(engine, tx, contract, job, Move.CANCEL, Facts(actor=actor, reason=reason), "job.cancel")


async def _request_cancel(tx: Tx, job: Job, actor: str, reason: str | None) -> Job:
    if job.cancel_requested is not None:
        return job
    request = {"actor": actor, "reason": reason, "at": tx.now}
    after = replace(job, cancel_requested=json.dumps(request, ensure_ascii=False))
    at = max(tx.now, job.updated_at)
    note = Note(job.id, job.version, "cancel.requested", at, actor, job.execution_no, {"reason": reason})
    await tx.jobs.apply([Change(before=job, after=after, notes=[note])])
    await tx.audit.add_audit(Audit(actor, "job.cancel", job.id, job.tenant_id, reason))
    return after


async def abort(
    engine: "Engine", tx: Tx, job_id: str, actor: str, reason: str | None, tenant: str | None
) -> Job | Refused:
    """Make a job fail that no worker holds."""
    job = await find(tx.jobs, job_id, tenant)
    contract = engine.contract(job.contract)
    if job.phase is Phase.LEASED:
        return await refuse(tx, job, illegal_move(contract, job, "abort"), MOVE_REFUSED, actor)
    failure = Failure(job.error_code or "ABORTED", job.error_message or reason or f"aborted by {actor}", "Aborted")
    facts = Facts(actor=actor, reason=reason or "aborted", charged=False, failure=failure, dlq_id=engine.ids.job())
    return await move_job(engine, tx, contract, job, Move.FAIL, facts, "job.abort")


async def reopen(
    engine: "Engine", tx: Tx, job_id: str, actor: str, reason: str | None, tenant: str | None
) -> Job | Refused:
    job = await find(tx.jobs, job_id, tenant)
    tenant_quotas = await quotas.lock_quotas(tx.quotas, [job.tenant_id])
    facts = Facts(actor=actor, reason=reason)
    result = await move_job(engine, tx, engine.contract(job.contract), job, Move.REOPEN, facts, "job.reopen")
    if isinstance(result, Job):
        await quotas.check_backlogs(tx.quotas, tenant_quotas, [job.tenant_id])
    return result


async def transition(
    engine: "Engine", tx: Tx, job_id: str, new_status: str, actor: str, tenant: str | None
) -> Job | Refused:
    """Take the contract's edge into a status, with its follow-up edges; refused if there is none."""
    job = await find(tx.jobs, job_id, tenant)
    contract = engine.contract(job.contract)
    if new_status == job.status:
        if contract.repeat_is_noop:
            return job
        return await refuse(tx, job, illegal_move(contract, job, f"-> {new_status}"), MOVE_REFUSED, actor)
    moves = [e.move for e in contract.edges if e.source == job.status and e.target == new_status and e.move]
    if not moves:
        return await refuse(tx, job, illegal_move(contract, job, f"-> {new_status}"), MOVE_REFUSED, actor)
    move = moves[0]
    facts = _facts_for_forced_move(engine, contract, job, move, actor)
    if move is Move.RETRY and facts.failure and not may_retry(contract, job, facts.failure):
        return await refuse(
            tx, job, illegal_move(contract, job, f"-> {new_status} (no retries left)"), MOVE_REFUSED, actor
        )
    return await move_job(engine, tx, contract, job, move, facts, "job.transition")


def _facts_for_forced_move(engine: "Engine", contract: Contract, job: Job, move: Move, actor: str) -> Facts:
    """The facts that a worker, a failure or a lost lease would have passed to decide."""
    failure, delay = None, 0
    if move in (Move.RETRY, Move.FAIL):
        failure = Failure(contract.code("execution_failed"), f"set by {actor}", "Transition")
    if move is Move.RETRY:
        delay = contract.retry.backoff.delay_ms(job.id, job.retries + 1, engine.jitter) * 1_000
    if move is Move.EXPIRE:
        failure = Failure(contract.code("lost"), f"set by {actor}", "Transition")
    return Facts(
        actor=actor,
        worker=f"internal:{actor}",
        token=engine.ids.token(),
        lease=int(contract.lease_seconds * 1_000_000),
        charged=contract.loss.charged if move is Move.EXPIRE else True,
        failure=failure,
        delay=delay,
        dlq_id=engine.ids.job(),
    )


async def signal(
    engine: "Engine", tx: Tx, job_id: str, name: str, data: Any, actor: str | None, tenant: str | None
) -> tuple[Job, bool]:
    """(the job, True if this is the first signal of this name). The first wins; early signals are kept for the wait."""
    check_name(name, "signal name")
    text = json_text(data, "SIGNAL_NOT_JSON", "the signal's data")
    if len(text.encode()) > MAX_SIGNAL_BYTES:
        raise InvalidInput(
            f"the signal's data exceeds {MAX_SIGNAL_BYTES} bytes; pass a reference", code="SIGNAL_TOO_LARGE"
        )
    job = await find(tx.jobs, job_id, tenant)
    contract = engine.contract(job.contract)
    if not any(edge.move is Move.WAIT for edge in contract.edges):
        raise not_supported(contract, "a wait, so its jobs take no signals")
    waiting = job.phase is Phase.BLOCKED
    awaited = job.awaited_signal == name
    if await tx.signals.signal(job.id, name):
        return (await wake_signalled(contract, tx, job, actor) if awaited else job), False
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
    await tx.signals.add_signal(Signal(job.id, name, text, actor, at))
    await tx.log.add_notes([Note(job.id, job.version, "signal.received", at, actor, job.execution_no, {"name": name})])
    return (await wake_signalled(contract, tx, job, actor) if awaited else job), True


async def move_job(
    engine: "Engine", tx: Tx, contract: Contract, job: Job, move: Move, facts: Facts, act: str
) -> Job | Refused:
    try:
        change = decide(contract, job, move, tx.now, facts)
    except DetentError as error:
        return await refuse(tx, job, error, MOVE_REFUSED, facts.actor)
    await tx.jobs.apply([change])
    await tx.audit.add_audit(Audit(facts.actor or "unknown", act, job.id, job.tenant_id, facts.reason))
    return change.after
