"""Settling: the outcome of an execution becomes a move of its job, checked by the lease token. Idempotent.

A job that waits is locked before it looks for its signal, its approval or its children.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import takewhile
from typing import Any, NamedTuple

from detent.core.approval import Approval
from detent.core.child_ids import FAILURE, should_wake
from detent.core.contract.model import Contract, Move, Phase
from detent.core.decide import add_move, decide
from detent.core.errors import DetentError, InvalidInput, NotSupported, StaleLease, StepMismatch, StoreRefused
from detent.core.job import APPROVAL, CHILDREN, Change, Event, Facts, Failure, Job, Micros, Wait, unchanged
from detent.core.outcome import (
    HANDED_BACK,
    Cancelled,
    Failed,
    NotBound,
    Outcome,
    Snoozed,
    Stopped,
    Succeeded,
    Waits,
    after_failure,
    after_not_bound,
    after_stop,
)
from detent.engine.refusal import SETTLE_REFUSED, Refused, find_leased, refuse, unwrap
from detent.engine.runtime import Runtime
from detent.engine.submit.submission import check_name
from detent.ports.claims import Claimed
from detent.ports.tx import LogTable, Tx

from .steps import orphaned_step_notes

MAX_RESULT = 1 << 20
"""Bytes of the result of a job or of a step."""
UNWRITABLE_ERRORS = (StoreRefused, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors caused by the values to be written, not by the state of the store: writing them again cannot help."""


def unwritable(error: Exception) -> DetentError:
    """The refusal of a settlement whose outcome cannot be stored."""
    if isinstance(error, DetentError):
        return error
    return InvalidInput(f"its outcome cannot be stored: {type(error).__name__}: {error}", code="OUTCOME_INVALID")


class Settlement(NamedTuple):
    """The end of one execution: the job, the lease token and the outcome."""

    id: str
    token: str
    contract: str
    outcome: Outcome
    parent_id: str | None = None
    """For a child job: the parent id from its claim. Without it a success is settled by a slower path."""
    claimed: Claimed | None = None
    """The claim of the execution, if this process ran it."""


def split_settlements(
    settled: Sequence[Settlement],
) -> tuple[list[Settlement], list[Settlement], dict[str, DetentError]]:
    """(settlements for one batch, further settlements of the same jobs, errors of invalid ones by job id)."""
    batch: dict[str, Settlement] = {}
    alone: list[Settlement] = []
    refused: dict[str, DetentError] = {}
    for settlement in settled:
        try:
            check_outcome(settlement.outcome)
        except DetentError as error:
            refused[settlement.id] = error
            continue
        if settlement.id in batch:
            alone.append(settlement)
        else:
            batch[settlement.id] = settlement
    return list(batch.values()), alone, refused


def check_outcome(outcome: Outcome) -> None:
    """Raise InvalidInput for an outcome that the store could not save."""
    if isinstance(outcome, Succeeded):
        if outcome.result is not None:
            _check_result(outcome.result)
    elif isinstance(outcome, Waits):
        check_name(outcome.wait.name, "wait name")
        if outcome.wait.timeout is not None and outcome.wait.timeout < 0:
            raise InvalidInput("the timeout of a wait must be at least 0", code="WAIT_INVALID")
        if (outcome.wait.kind == APPROVAL) != (outcome.wait.approval is not None):
            raise InvalidInput("only an approval wait has a question; use ctx.approval", code="WAIT_INVALID")
    elif isinstance(outcome, Failed):
        if outcome.failure.after is not None and outcome.failure.after < 0:
            raise InvalidInput("the delay of a retry must be at least 0", code="RETRY_INVALID")
    elif isinstance(outcome, Snoozed) and outcome.delay < 0:
        raise InvalidInput("the delay of a snooze must be at least 0 seconds", code="SNOOZE_INVALID")


def _check_result(text: str) -> None:
    try:
        size = len(text.encode())
        json.loads(text)
    except (ValueError, RecursionError, AttributeError) as error:
        raise InvalidInput(f"the result is not JSON text: {error}", code="RESULT_INVALID") from None
    if size > MAX_RESULT:
        message = (
            f"the result has {size} bytes, the limit is {MAX_RESULT}; store the data elsewhere and return a reference"
        )
        raise InvalidInput(message, code="RESULT_TOO_LARGE", size=size, limit=MAX_RESULT)


async def settle_job(runtime: Runtime, tx: Tx, job: Job | None, settlement: Settlement) -> Change | Refused:
    """Settle one locked job. A repeated settlement leaves the job unchanged."""
    if job is None:
        return Refused(StaleLease(f"job {settlement.id} no longer exists; drop the result", job_id=settlement.id))
    contract = runtime.contract(job.contract)
    digest = digest_of(settlement.outcome)
    failure = settlement.outcome.failure if isinstance(settlement.outcome, Failed) else None
    if job.phase is not Phase.LEASED or job.token != settlement.token:
        if job.token == settlement.token and await _is_repeated(tx.log, contract, job, settlement.outcome, digest):
            return replace(unchanged(job), failure=failure)
        return await _refuse_stale(tx, job, f"the lease on job {job.id} was lost")
    if job.times_out_at < tx.now and (failure is None or failure.code != contract.code("timeout")):
        return await _refuse_stale(tx, job, f"job {job.id} took longer than its timeout of {job.timeout_ms} ms")
    facts = Facts(actor=job.worker, dlq_id=runtime.ids.job(), data={"settlement": digest})
    try:
        change = await _decide_outcome(runtime, tx, contract, job, settlement.outcome, facts)
    except DetentError as error:
        return await refuse(tx, job, error, SETTLE_REFUSED, job.worker)
    if change is None:
        return unchanged(job)
    change = apply_requested_cancel(contract, change, tx.now)
    await tx.jobs.apply([change])
    return change


async def _refuse_stale(tx: Tx, job: Job, reason: str) -> Refused:
    error = StaleLease(f"{reason}, its result is not recorded; stop working on it", job_id=job.id, status=job.status)
    return await refuse(tx, job, error, SETTLE_REFUSED, job.worker)


async def settle_or_raise(runtime: Runtime, tx: Tx, settlement: Settlement, orphans: list[str]) -> None:
    """Settle at the end of a handler's transaction. A refusal is raised instead of noted, so all of it rolls back."""
    check_outcome(settlement.outcome)
    job = await find_leased(tx, settlement.id, settlement.token)
    if job is None:
        raise StaleLease(
            f"the lease on job {settlement.id} was lost; its transaction is rolled back", job_id=settlement.id
        )
    if orphans:
        await tx.log.add_notes(await orphaned_step_notes(tx, job, orphans))
    unwrap(await settle_job(runtime, tx, job, settlement))


def digest_of(outcome: Outcome) -> str:
    """A hash that is equal only for equal outcomes; it detects repeated settlements."""
    return blake2b(repr(outcome).encode(), digest_size=9).hexdigest()


async def _is_repeated(log: LogTable, contract: Contract, job: Job, outcome: Outcome, digest: str) -> bool:
    if isinstance(outcome, Succeeded):
        return contract.succeeded(job.status) and job.result == outcome.result
    events = await log.events(job.id)
    return any(
        event.execution_no == job.execution_no and (event.data or {}).get("settlement") == digest for event in events
    )


def apply_requested_cancel(contract: Contract, change: Change, now: Micros) -> Change:
    """Add the CANCEL move if a cancel was requested while the job ran and no worker holds it after this change."""
    after = change.after
    if after.cancel_requested is None or after.status in contract.cancel_requests:
        return change
    if not contract.edge(after.status, Move.CANCEL):
        return change
    request = json.loads(after.cancel_requested)
    return add_move(contract, change, Move.CANCEL, now, Facts(actor=request["actor"], reason=request["reason"]))


async def _decide_outcome(
    runtime: Runtime, tx: Tx, contract: Contract, job: Job, outcome: Outcome, facts: Facts
) -> Change | None:
    """The change that an outcome makes; None: the worker stopped, and the contract lets the lease expire."""
    match outcome:
        case Succeeded(result):
            return decide(contract, job, Move.SUCCEED, tx.now, replace(facts, result=result, data={}))
        case Failed(failure):
            return after_failure(contract, job, _sanitize_failure(failure), tx.now, facts, runtime.jitter)
        case Snoozed(delay):
            if contract.snooze is None:
                raise not_supported(contract, "a snooze")
            return decide(contract, job, contract.snooze, tx.now, replace(facts, delay=delay, reason="snoozed"))
        case Cancelled(reason):
            return _cancel(contract, job, reason, tx.now, facts)
        case Waits(wait):
            return await _wait(runtime, tx, contract, job, wait, facts)
        case Stopped():
            return after_stop(contract, job, tx.now, facts, runtime.jitter)
        case NotBound(failure):
            outcome = replace(outcome, failure=_sanitize_failure(failure))
            handed_back = _handed_back(contract, await tx.log.events(job.id))
            return after_not_bound(contract, job, outcome, handed_back, tx.now, facts, runtime.jitter)


def _handed_back(contract: Contract, events: Sequence[Event]) -> list[Micros]:
    """When workers handed the job back in a row up to now, oldest first; an execution that ran ends the row."""
    ended = [event for event in events if event.source and contract.phase(event.source) is Phase.LEASED]
    row = takewhile(lambda event: (event.data or {}).get("reason") == HANDED_BACK, reversed(ended))
    return [event.at for event in row][::-1]


def _sanitize_failure(failure: Failure) -> Failure:
    """Error texts come from any library: escape lone surrogates and NUL characters, which databases refuse."""
    return replace(
        failure,
        code=sanitize(failure.code) or "",
        message=sanitize(failure.message) or "",
        error_class=sanitize(failure.error_class),
        traceback=sanitize(failure.traceback),
    )


def sanitize(text: str | None) -> str | None:
    return None if text is None else text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


def _cancel(contract: Contract, job: Job, reason: str | None, now: Micros, facts: Facts) -> Change:
    if not contract.edge(job.status, Move.CANCEL):
        raise not_supported(contract, "a cancel")
    actor = facts.actor
    if job.cancel_requested is not None:
        request = json.loads(job.cancel_requested)
        reason, actor = request["reason"] or reason, request["actor"]
    return decide(contract, job, Move.CANCEL, now, replace(facts, reason=reason, actor=actor))


async def _wait(runtime: Runtime, tx: Tx, contract: Contract, job: Job, wait: Wait, facts: Facts) -> Change:
    """The job row is locked before the signal is looked up, so a signal that arrives meanwhile is not missed.

    A job whose cancel was requested does not start to wait for an approval or for children: it is cancelled.
    """
    if wait.kind not in (APPROVAL, CHILDREN):
        return await _wait_for_signal(tx, contract, job, wait, facts)
    if job.cancel_requested is not None and contract.edge(job.status, Move.CANCEL):
        return _cancel(contract, job, "requested before it waited", tx.now, facts)
    if wait.kind == APPROVAL:
        return await _wait_for_approval(tx, contract, job, wait, facts)
    return await _wait_for_children(runtime, tx, contract, job, wait, facts)


async def _wait_for_signal(tx: Tx, contract: Contract, job: Job, wait: Wait, facts: Facts) -> Change:
    change = decide(contract, job, _wait_move(contract, job, wait), tx.now, replace(facts, wait=wait))
    if await tx.signals.signal(job.id, wait.name):
        return add_move(contract, change, Move.WAKE, tx.now, Facts(actor=facts.actor, reason="signalled"))
    return change


def _wait_move(contract: Contract, job: Job, wait: Wait) -> Move:
    move = Move.PARK if wait.park and contract.edge(job.status, Move.PARK) else Move.WAIT
    if not contract.edge(job.status, move):
        raise not_supported(contract, "a wait")
    return move


def not_supported(contract: Contract, what: str) -> NotSupported:
    return NotSupported(f"the contract {contract.name} has no status for {what}; use standard or formal")


async def wake_signalled(contract: Contract, tx: Tx, job: Job, actor: str | None) -> Change:
    """Wake a locked job whose signal is on record."""
    change = decide(contract, job, Move.WAKE, tx.now, Facts(actor=actor, reason="signalled"))
    await tx.jobs.apply([change])
    return change


async def _wait_for_approval(tx: Tx, contract: Contract, job: Job, wait: Wait, facts: Facts) -> Change:
    """Let a running job wait for an approval. If it repeats an undecided question, the stored votes are kept."""
    request = wait.approval
    assert request is not None, "an approval wait has a request"
    if not contract.edge(job.status, Move.HOLD):
        raise approval_not_supported(contract)
    stored = await tx.approvals.approval(job.id, wait.name)
    if stored is not None and stored.decision is not None and stored.request.digest != request.digest:
        raise question_changed(job.id, wait.name)
    if stored is not None and stored.request == request and stored.decision is None and stored.deadline is not None:
        wait = replace(wait, timeout=max(0, stored.deadline - tx.now))
    change = decide(contract, job, Move.HOLD, tx.now, replace(facts, wait=wait))
    after = change.after
    if stored is not None and stored.decision is not None:
        return add_move(contract, change, Move.WAKE, tx.now, Facts(actor=facts.actor, reason="decided before"))
    if stored is None or stored.request != request:
        await tx.approvals.put_approval(Approval(job.id, wait.name, request, after.updated_at, after.due_at))
    data: dict[str, Any] = {
        "name": wait.name,
        "summary": request.summary,
        "digest": request.digest,
        "roles": list(request.roles),
        "quorum": request.quorum,
        "deadline": after.due_at,
        "default": request.on_expiry,
    }
    note = contract.approval_notes.get("requested") or "approval.requested"
    change.notes.append(after.note(note, after.updated_at, facts.actor, data))
    return change


def question_changed(job_id: str, name: str) -> StepMismatch:
    return StepMismatch(
        f"the approval {name!r} of job {job_id} was decided for another question; give the new question another name",
        step=name,
    )


def approval_not_supported(contract: Contract) -> NotSupported:
    return NotSupported(f"the contract {contract.name} has no status for an approval of a running job; use standard")


async def _wait_for_children(
    runtime: Runtime, tx: Tx, contract: Contract, job: Job, wait: Wait, facts: Facts
) -> Change:
    change = decide(contract, job, _wait_move(contract, job, wait), tx.now, replace(facts, wait=wait))
    children = list(dict.fromkeys(wait.children))
    left = await tx.awaited.await_children(job.id, children, wait.wakes_on)
    ended = len(children) - left
    failed = 0
    if ended and left and wait.wakes_on == FAILURE:
        succeeded = [f"{c.name} {status}" for c in runtime.contracts.values() for status in c.success_statuses]
        failed = int(await tx.children.any_failed(children, sorted(succeeded)))
    if not should_wake(wait.wakes_on, ended, failed, left > 0):
        return change
    await tx.awaited.stop_awaiting(job.id, children)
    return add_move(contract, change, Move.WAKE, tx.now, Facts(actor=facts.actor, reason="children ended"))
