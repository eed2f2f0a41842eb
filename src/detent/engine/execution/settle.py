"""Settling: the outcome of an execution becomes a move of its job, checked by the lease token. Idempotent."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.core.contract.model import Contract, Move, Phase
from detent.core.decide import add_move, decide
from detent.core.errors import DetentError, InvalidInput, NotSupported, StaleLease
from detent.core.job import APPROVAL, CHILDREN, Change, Facts, Failure, Job, Micros, Wait
from detent.core.outcome import (
    Cancelled,
    Failed,
    Outcome,
    Snoozed,
    Stopped,
    Succeeded,
    Waits,
    after_failure,
    after_stop,
)
from detent.engine.refusal import SETTLE_REFUSED, Refused, refuse, unwrap
from detent.engine.submit.submission import check_name
from detent.ports.tx import LogTable, Tx

from .steps import orphaned_step_notes

if TYPE_CHECKING:
    from detent.engine.engine import Engine


class Settlement(NamedTuple):
    """The end of one execution: the job, the lease token and the outcome."""

    id: str
    token: str
    contract: str
    outcome: Outcome
    parent_id: str | None = None
    """For a child job: the parent id from its claim. Without it a success is settled by a slower path."""


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
        text.encode()
        json.loads(text)
    except (ValueError, RecursionError, AttributeError) as error:
        raise InvalidInput(f"the result is not JSON text: {error}", code="RESULT_INVALID") from None


async def settle_job(engine: "Engine", tx: Tx, job: Job | None, settlement: Settlement) -> Job | Refused:
    """Settle one locked job. A repeated settlement returns the job unchanged."""
    if job is None:
        return Refused(StaleLease(f"job {settlement.id} no longer exists; drop the result", job_id=settlement.id))
    contract = engine.contract(job.contract)
    digest = digest_of(settlement.outcome)
    if job.phase is not Phase.LEASED or job.token != settlement.token:
        if job.token == settlement.token and await _is_repeated(tx.log, contract, job, settlement.outcome, digest):
            return job
        error = StaleLease(
            f"the lease on job {job.id} was lost, its result is not recorded; stop working on it",
            job_id=job.id,
            status=job.status,
        )
        return await refuse(tx, job, error, SETTLE_REFUSED, job.worker)
    facts = Facts(actor=job.worker, dlq_id=engine.ids.job(), data={"settlement": digest})
    try:
        change = await _SETTLERS[type(settlement.outcome)](engine, tx, contract, job, settlement.outcome, facts)
    except DetentError as error:
        return await refuse(tx, job, error, SETTLE_REFUSED, job.worker)
    if change is None:
        return job
    change = apply_requested_cancel(contract, change, tx.now)
    await tx.jobs.apply([change])
    return change.after


async def settle_or_raise(engine: "Engine", tx: Tx, settlement: Settlement, orphans: list[str]) -> Job:
    """Settle at the end of a handler's transaction. A refusal is raised instead of noted, so all of it rolls back."""
    check_outcome(settlement.outcome)
    job = (await tx.jobs.lock([settlement.id])).get(settlement.id)
    if job is None or job.phase is not Phase.LEASED or job.token != settlement.token:
        raise StaleLease(
            f"the lease on job {settlement.id} was lost; its transaction is rolled back", job_id=settlement.id
        )
    if orphans:
        await tx.log.add_notes(await orphaned_step_notes(tx, job, orphans))
    return unwrap(await settle_job(engine, tx, job, settlement))


def digest_of(outcome: Outcome) -> str:
    """A hash that is equal only for equal outcomes; it detects repeated settlements."""
    return blake2b(repr(outcome).encode(), digest_size=9).hexdigest()


async def _is_repeated(log: LogTable, contract: Contract, job: Job, outcome: Outcome, digest: str) -> bool:
    if isinstance(outcome, Succeeded):
        succeeded = [edge.target for edge in contract.edges if edge.move is Move.SUCCEED]
        return job.status in succeeded and job.result == outcome.result
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


async def _succeed(engine: "Engine", tx: Tx, contract: Contract, job: Job, outcome: Succeeded, facts: Facts) -> Change:
    return decide(contract, job, Move.SUCCEED, tx.now, replace(facts, result=outcome.result, data={}))


async def _fail(engine: "Engine", tx: Tx, contract: Contract, job: Job, outcome: Failed, facts: Facts) -> Change:
    return after_failure(contract, job, _sanitize_failure(outcome.failure), tx.now, facts, engine.jitter)


def _sanitize_failure(failure: Failure) -> Failure:
    """Error texts come from any library: escape lone surrogates and NUL characters, which databases refuse."""
    return replace(
        failure,
        code=sanitize(failure.code) or "UNKNOWN",
        message=sanitize(failure.message) or "",
        error_class=sanitize(failure.error_class),
        traceback=sanitize(failure.traceback),
    )


def sanitize(text: str | None) -> str | None:
    return None if text is None else text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


async def _snooze(engine: "Engine", tx: Tx, contract: Contract, job: Job, outcome: Snoozed, facts: Facts) -> Change:
    if contract.snooze is None:
        raise not_supported(contract, "a snooze")
    return decide(contract, job, contract.snooze, tx.now, replace(facts, delay=outcome.delay, reason="snoozed"))


async def _cancel(engine: "Engine", tx: Tx, contract: Contract, job: Job, outcome: Cancelled, facts: Facts) -> Change:
    if not contract.edge(job.status, Move.CANCEL):
        raise not_supported(contract, "a cancel")
    reason, actor = outcome.reason, facts.actor
    if job.cancel_requested is not None:
        request = json.loads(job.cancel_requested)
        reason, actor = request["reason"] or reason, request["actor"]
    return decide(contract, job, Move.CANCEL, tx.now, replace(facts, reason=reason, actor=actor))


async def _wait(engine: "Engine", tx: Tx, contract: Contract, job: Job, outcome: Waits, facts: Facts) -> Change:
    """The job row is locked before the signal is looked up, so a signal that arrives meanwhile is not missed."""
    if outcome.wait.kind in _SPECIAL_WAITS:
        change: Change = await _wait_for_approval_or_children(engine, tx, contract, job, outcome.wait, facts)
        return change
    move = Move.PARK if outcome.wait.park and contract.edge(job.status, Move.PARK) else Move.WAIT
    if not contract.edge(job.status, move):
        raise not_supported(contract, "a wait")
    change = decide(contract, job, move, tx.now, replace(facts, wait=outcome.wait))
    if await tx.signals.signal(job.id, outcome.wait.name):
        return add_move(contract, change, Move.WAKE, tx.now, Facts(actor=facts.actor, reason="signalled"))
    return change


async def wake_signalled(contract: Contract, tx: Tx, job: Job, actor: str | None) -> Job:
    """Wake a locked job whose signal is on record."""
    change = decide(contract, job, Move.WAKE, tx.now, Facts(actor=actor, reason="signalled"))
    await tx.jobs.apply([change])
    return change.after


async def _wait_for_approval_or_children(
    engine: "Engine", tx: Tx, contract: Contract, job: Job, wait: Wait, facts: Facts
) -> Change:
    """Wait for an approval or for children. If a cancel was requested, cancel now instead of waiting."""
    from . import approvals, children

    if job.cancel_requested is not None and contract.edge(job.status, Move.CANCEL):
        return await _cancel(engine, tx, contract, job, Cancelled("requested before it waited"), facts)
    if wait.kind == APPROVAL:
        return await approvals.hold(tx, contract, job, wait, facts)
    return await children.wait(engine, tx, contract, job, wait, facts)


_SPECIAL_WAITS = (APPROVAL, CHILDREN)


async def _stop(
    engine: "Engine", tx: Tx, contract: Contract, job: Job, outcome: Stopped, facts: Facts
) -> Change | None:
    return after_stop(contract, job, tx.now, facts, engine.jitter)


def not_supported(contract: Contract, what: str) -> NotSupported:
    return NotSupported(f"the contract {contract.name} has no status for {what}; use standard or formal")


_SETTLERS: dict[type, Callable[..., Any]] = {
    Succeeded: _succeed,
    Failed: _fail,
    Snoozed: _snooze,
    Cancelled: _cancel,
    Waits: _wait,
    Stopped: _stop,
}
