"""`decide`: the only place where a job changes. Pure: the same job, move, time and facts give the same Change."""

import json
from dataclasses import replace
from typing import Any

from detent.core.contract.model import Contract, Edge, Move, Phase

from .errors import IllegalMove
from .job import (
    DEAD_LETTER,
    TASK,
    Change,
    DeadLetter,
    DeadLetterStatus,
    Event,
    Facts,
    Job,
    Micros,
    error_group,
    unchanged,
)


def decide(contract: Contract, job: Job, move: Move, now: Micros, facts: Facts) -> Change:
    """The new row, events and notes of this move, FOLLOW edges included. Raises IllegalMove if there is no edge."""
    route = contract.route(job.status, move)
    if not route:
        raise illegal_move(contract, job, str(move))
    after = replace(job)
    change = Change(before=job, after=after, failure=facts.failure)
    at = max(now, job.updated_at)
    retries_before = job.retries
    _charge(contract, after, move, at, facts)
    for edge in route:
        _apply_edge(contract, change, edge, at, facts, retries_before)
    if move is Move.FAIL and contract.dead_letters:
        _dead_letter(contract, change, at, facts)
    if contract.uses_stream:
        change.outbox_item = _outbox_item(change)
    if after.phase is Phase.FINAL:
        change.ended = move
    elif job.phase is Phase.LEASED:
        after.losses = facts.losses
    return change


def create(contract: Contract, job: Job, move: Move, now: Micros, facts: Facts) -> Change:
    """The creation of a job. With `due_on_submit`, a job that is due now is woken in the same change."""
    route = contract.route(None, move)
    if not route:
        raise illegal_move(contract, job, str(move))
    change = Change(before=None, after=job)
    job.version = 0
    for edge in route:
        _apply_edge(contract, change, edge, now, facts, 0)
    due_now = job.due_at is not None and job.due_at <= now
    if job.phase is Phase.BLOCKED and due_now and contract.due_on_submit:
        return add_move(contract, change, Move.WAKE, now, Facts(actor=facts.actor))
    note = contract.approval_notes.get("requested")
    if move is Move.HOLD and note:
        data = None if facts.reason is None else {"reason": facts.reason}
        change.notes.append(job.note(note, now, facts.actor or facts.worker, data))
    if contract.uses_stream:
        change.outbox_item = _outbox_item(change)
    return change


def _outbox_item(change: Change) -> str | None:
    if change.dead_letter:
        return DEAD_LETTER
    return TASK if change.after.phase is Phase.CLAIMABLE else None


def add_move(contract: Contract, change: Change, move: Move, now: Micros, facts: Facts) -> Change:
    """Decide a further move on the job after `change`; both are committed together."""
    combined = decide(contract, replace(change.after), move, now, facts)
    combined.before = change.before
    combined.events[:0] = change.events
    combined.notes[:0] = change.notes
    combined.dead_letter = combined.dead_letter or change.dead_letter
    combined.failure = combined.failure or change.failure
    combined.lease_lost = change.lease_lost
    return combined


def request_cancel(job: Job, now: Micros, actor: str, reason: str | None) -> Change:
    """Ask the worker that holds the job to cancel it. Its status does not change; a repeated request is ignored."""
    if job.cancel_requested is not None:
        return unchanged(job)
    request = {"actor": actor, "reason": reason, "at": now}
    after = replace(job, cancel_requested=json.dumps(request, ensure_ascii=False))
    return Change(before=job, after=after, notes=[job.note("cancel.requested", now, actor, {"reason": reason})])


def illegal_move(contract: Contract, job: Job, move: str) -> IllegalMove:
    status = job.status or None
    legal = ", ".join(dict.fromkeys(str(m) for m in contract.legal_moves(status))) or "none"
    state = f"in status {status}" if status else "that is being created"
    return IllegalMove(
        f"{move} is not allowed for a {contract.name} job {state}; allowed moves: {legal}",
        code=contract.code("illegal_transition"),
        status=job.status,
        asked=move,
    )


def _apply_edge(contract: Contract, change: Change, edge: Edge, at: Micros, facts: Facts, retries_before: int) -> None:
    """Apply one edge to the row: status, phase, version and the columns of the phase; and append the event."""
    after = change.after
    source, target = after.phase if edge.source else None, contract.phase(edge.target)
    if source is Phase.LEASED and target is not Phase.LEASED:
        after.worker = after.lease_until = None  # the token stays, so that a repeated settle is recognised
    _ENTER[target](contract, after, edge, at, facts)
    after.status, after.phase = edge.target, target
    after.version += 1
    after.updated_at = at
    after.next_retry_at = after.due_at if edge.target in contract.retry_at_statuses else None
    change.events.append(
        Event(
            job_id=after.id,
            seq=after.version,
            event=edge.event,
            source=edge.source,
            target=edge.target,
            at=at,
            actor=facts.actor or facts.worker,
            execution_no=after.execution_no,
            retries=retries_before,
            data=_event_data(edge, after, facts) or None,
        )
    )


def _enter_claimable(contract: Contract, after: Job, edge: Edge, at: Micros, facts: Facts) -> None:
    after.due_at = facts.due_at if facts.due_at is not None else at + facts.delay
    after.ready = after.due_at <= at
    after.wait_name = after.wait_kind = None
    after.wait_parked = False
    if edge.move is Move.REOPEN:
        after.failures = after.retries = after.interruptions = after.losses = 0
        after.error_counts = after.result = after.error_code = after.error_message = None
        after.finished_at = after.cancel_requested = after.first_failed_at = None


def _enter_leased(contract: Contract, after: Job, edge: Edge, at: Micros, facts: Facts) -> None:
    after.token, after.worker = facts.token, facts.worker
    after.lease_until = at + min(facts.lease or 0, after.longest_lease)
    after.execution_no += 1
    after.ready = False
    after.started_at = after.started_at or at


def _enter_blocked(contract: Contract, after: Job, edge: Edge, at: Micros, facts: Facts) -> None:
    after.ready = False
    wait = facts.wait
    if wait is None:
        moment = facts.due_at if facts.due_at is not None else at + facts.delay
        after.due_at = moment if edge.move in _TIMED else None
        return
    after.wait_name, after.wait_kind, after.wait_parked = wait.name, wait.kind, wait.park
    after.due_at = None if wait.timeout is None else at + wait.timeout


def _enter_final(contract: Contract, after: Job, edge: Edge, at: Micros, facts: Facts) -> None:
    after.ready = False
    after.due_at = after.wait_name = after.wait_kind = after.cancel_requested = None
    after.wait_parked = False
    after.finished_at = at
    if edge.move is Move.SUCCEED:
        after.result = facts.result
        after.error_code = after.error_message = None


_TIMED = frozenset({Move.SUBMIT, Move.DEFER, Move.RETRY})
_ENTER = {
    Phase.CLAIMABLE: _enter_claimable,
    Phase.LEASED: _enter_leased,
    Phase.BLOCKED: _enter_blocked,
    Phase.FINAL: _enter_final,
}


def _charge(contract: Contract, after: Job, move: Move, at: Micros, facts: Facts) -> None:
    """Count retries, losses and failures, and store the error on the row."""
    if move is Move.RETRY:
        after.retries += 1
    if move in _LOSSES and not facts.charged:
        after.interruptions += 1
    failure = facts.failure
    if failure is None:
        return
    if facts.charged and move in _CHARGEABLE:
        after.failures += 1
        after.first_failed_at = after.first_failed_at or at
    if facts.charged and failure.code in contract.retry.caps:
        counts = json.loads(after.error_counts or "{}")
        counts[failure.code] = counts.get(failure.code, 0) + 1
        after.error_counts = json.dumps(counts, sort_keys=True)
    after.error_code, after.error_message = failure.code, failure.message


_LOSSES = frozenset({Move.EXPIRE, Move.RECLAIM})
_CHARGEABLE = frozenset({Move.RETRY, Move.FAIL, Move.EXPIRE, Move.RELEASE})


def _event_data(edge: Edge, after: Job, facts: Facts) -> dict[str, Any]:
    if edge.move is Move.FOLLOW:
        return {}
    due_later = edge.move in _LATER or (edge.move is Move.SUBMIT and not after.ready)
    # First, because the recorder of the time series reads it from the start of the text.
    data: dict[str, Any] = {"due_at": after.due_at} if due_later and after.due_at is not None else {}
    data |= facts.data
    failure = facts.failure
    if failure:
        data["error_code"] = failure.code
        data["error_message"] = failure.message
        if failure.error_class:
            data["error_class"] = failure.error_class
        if failure.traceback:
            data["traceback"] = failure.traceback
        if edge.move in _CHARGEABLE:
            data["charged"] = facts.charged
    if facts.reason:
        data["reason"] = facts.reason
    if facts.wait and edge.move in _WAITS:
        data |= {"correlation_key": facts.wait.name, "wait_type": facts.wait.kind, "park": facts.wait.park}
    return data


_WAITS = frozenset({Move.WAIT, Move.PARK, Move.HOLD})
_LATER = frozenset({Move.RETRY, Move.DEFER, Move.RELEASE, Move.WAIT, Move.PARK})


def _dead_letter(contract: Contract, change: Change, at: Micros, facts: Facts) -> None:
    """Add the dead letter of a failure, and its note if the contract has one."""
    after, failure = change.after, facts.failure
    assert contract.dead_letters and facts.dlq_id, "a dead letter needs its id"
    code = failure.code if failure else contract.code("execution_failed")
    error_class, message = (failure.error_class, failure.message) if failure else (None, facts.reason)
    count = getattr(after, contract.retry_counter)
    after.dlq_id = facts.dlq_id
    change.dead_letter = DeadLetter(
        id=facts.dlq_id,
        job_id=after.id,
        tenant_id=after.tenant_id,
        contract=contract.name,
        job_type=after.job_type,
        queue=after.queue,
        error_class=error_class,
        error_code=code,
        error_message=message,
        payload=after.payload,
        context=json.dumps(
            {"trace_id": after.trace_id, "execution_no": after.execution_no, "reason": facts.reason},
            ensure_ascii=False,
        ),
        retries=count,
        status=DeadLetterStatus.OPEN,
        first_failed_at=after.first_failed_at or at,
        created_at=at,
        updated_at=at,
        error_group=error_group(after.job_type, error_class, code, message),
    )
    if contract.dead_letters.note:
        data = {"dlq_id": facts.dlq_id, "retry_count": count, "error_code": code}
        change.notes.append(after.note(contract.dead_letters.note, at, facts.actor or facts.worker, data))
