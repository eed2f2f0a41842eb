"""Ending an execution: what happened becomes a move, guarded by the token; said twice, it is done once."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from detent.core.contract.model import Contract, Move, Phase
from detent.core.decide import decide, then
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
from detent.ports.tx import Tx

from .steps import orphan_notes

if TYPE_CHECKING:
    from detent.engine.engine import Engine


class Settlement(NamedTuple):
    """One execution's end: which job, under which token, with what outcome."""

    id: str
    token: str
    contract: str
    outcome: Outcome
    parent_id: str | None = None
    """Of a child, as its claim told it; without it the settlement takes the longer way."""


def sort_out(settled: Sequence[Settlement]) -> tuple[list[Settlement], list[Settlement], dict[str, DetentError]]:
    """(what can go in one batch, what must be looked at alone, what is refused as it stands)."""
    batch: dict[str, Settlement] = {}
    alone: list[Settlement] = []
    bad: dict[str, DetentError] = {}
    for said in settled:
        try:
            check_outcome(said.outcome)
        except DetentError as error:
            bad[said.id] = error
            continue
        if said.id in batch:
            alone.append(said)
        else:
            batch[said.id] = said
    return list(batch.values()), alone, bad


def check_outcome(outcome: Outcome) -> None:
    """Refuse what the store could not hold, before it reaches it."""
    if isinstance(outcome, Succeeded):
        if outcome.result is not None:
            _check_result(outcome.result)
    elif isinstance(outcome, Waits):
        check_name(outcome.wait.name, "wait name")
        if outcome.wait.timeout is not None and outcome.wait.timeout < 0:
            raise InvalidInput("a wait cannot end before it begins; give a timeout of at least 0", code="WAIT_INVALID")
        if (outcome.wait.kind == APPROVAL) != (outcome.wait.asked is not None):
            raise InvalidInput("an approval is a wait with a question; ask with ctx.approval", code="WAIT_INVALID")
    elif isinstance(outcome, Failed):
        if outcome.failure.after is not None and outcome.failure.after < 0:
            raise InvalidInput("a retry goes forward in time; give after of at least 0", code="RETRY_INVALID")
    elif isinstance(outcome, Snoozed) and outcome.delay < 0:
        raise InvalidInput("a snooze goes forward in time; give at least 0 seconds", code="SNOOZE_INVALID")


def _check_result(text: str) -> None:
    try:
        text.encode()
        json.loads(text)
    except (ValueError, RecursionError, AttributeError) as error:
        raise InvalidInput(f"the result is not JSON text: {error}", code="RESULT_INVALID") from None


async def settle_in(engine: "Engine", tx: Tx, job: Job | None, said: Settlement) -> Job | Refused:
    """Settle one locked job. A repeat of what was already settled answers as it did then."""
    if job is None:
        return Refused(StaleLease(f"job {said.id} does not exist any more; drop the result", job_id=said.id))
    contract = engine.contract(job.contract)
    digest = digest_of(said.outcome)
    if job.phase is not Phase.LEASED or job.token != said.token:
        if job.token == said.token and await _said_before(tx, contract, job, said.outcome, digest):
            return job
        error = StaleLease(
            f"the lease on job {job.id} was lost; its result is not recorded, stop working on it",
            job_id=job.id,
            status=job.status,
        )
        return await refuse(tx, job, error, SETTLE_REFUSED, job.worker)
    facts = Facts(actor=job.worker, dlq_id=engine.ids.job(), data={"settlement": digest})
    try:
        change = await _ANSWERS[type(said.outcome)](engine, tx, contract, job, said.outcome, facts)
    except DetentError as error:
        return await refuse(tx, job, error, SETTLE_REFUSED, job.worker)
    if change is None:
        return job
    change = obey_cancel(contract, change, tx.now)
    await tx.apply([change])
    return change.after


async def settle_last(engine: "Engine", tx: Tx, said: Settlement, orphans: list[str]) -> Job:
    """Settle in a transaction that has more in it than this: a refusal undoes all of it, so it is raised, not noted."""
    check_outcome(said.outcome)
    job = (await tx.lock([said.id])).get(said.id)
    if job is None or job.phase is not Phase.LEASED or job.token != said.token:
        raise StaleLease(f"the lease on job {said.id} was lost; its transaction is undone", job_id=said.id)
    if orphans:
        await tx.add_notes(await orphan_notes(tx, job, orphans))
    return unwrap(await settle_in(engine, tx, job, said))


def digest_of(outcome: Outcome) -> str:
    """The same outcome always has the same digest, a different one another."""
    return blake2b(repr(outcome).encode(), digest_size=9).hexdigest()


async def _said_before(tx: Tx, contract: Contract, job: Job, outcome: Outcome, digest: str) -> bool:
    if isinstance(outcome, Succeeded):
        leased = [edge.target for edge in contract.edges if edge.move is Move.SUCCEED]
        return job.status in leased and job.result == outcome.result
    events = await tx.events(job.id)
    return any(
        event.execution_no == job.execution_no and (event.data or {}).get("settlement") == digest for event in events
    )


def obey_cancel(contract: Contract, change: Change, now: Micros) -> Change:
    """A cancel that was asked for while the job ran takes effect as soon as nobody holds it."""
    after = change.after
    if after.cancel_requested is None or after.status in contract.cancel_requests:
        return change
    if not contract.edge(after.status, Move.CANCEL):
        return change
    asked = json.loads(after.cancel_requested)
    return then(contract, change, Move.CANCEL, now, Facts(actor=asked["actor"], reason=asked["reason"]))


async def _succeed(engine: "Engine", tx: Tx, contract: Contract, job: Job, outcome: Succeeded, facts: Facts) -> Change:
    return decide(contract, job, Move.SUCCEED, tx.now, replace(facts, result=outcome.result, data={}))


async def _fail(engine: "Engine", tx: Tx, contract: Contract, job: Job, outcome: Failed, facts: Facts) -> Change:
    return after_failure(contract, job, _readable(outcome.failure), tx.now, facts, engine.jitter)


def _readable(failure: Failure) -> Failure:
    """Error texts come from anywhere: what is no Unicode, or no text for a database, is spelled out."""
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
        raise lacks(contract, "a snooze")
    return decide(contract, job, contract.snooze, tx.now, replace(facts, delay=outcome.delay, reason="snoozed"))


async def _cancel(engine: "Engine", tx: Tx, contract: Contract, job: Job, outcome: Cancelled, facts: Facts) -> Change:
    if not contract.edge(job.status, Move.CANCEL):
        raise lacks(contract, "a cancel")
    reason, actor = outcome.reason, facts.actor
    if job.cancel_requested is not None:
        asked = json.loads(job.cancel_requested)
        reason, actor = asked["reason"] or reason, asked["actor"]
    return decide(contract, job, Move.CANCEL, tx.now, replace(facts, reason=reason, actor=actor))


async def _wait(engine: "Engine", tx: Tx, contract: Contract, job: Job, outcome: Waits, facts: Facts) -> Change:
    """The row is locked; only now look for the signal, so that one which came meanwhile is never missed."""
    if outcome.wait.kind in _OWN_WAITS:
        change: Change = await _own_wait(engine, tx, contract, job, outcome.wait, facts)
        return change
    move = Move.PARK if outcome.wait.park and contract.edge(job.status, Move.PARK) else Move.WAIT
    if not contract.edge(job.status, move):
        raise lacks(contract, "a wait")
    change = decide(contract, job, move, tx.now, replace(facts, wait=outcome.wait))
    if await tx.signal(job.id, outcome.wait.name):
        return then(contract, change, Move.WAKE, tx.now, Facts(actor=facts.actor, reason="signalled"))
    return change


async def _own_wait(engine: "Engine", tx: Tx, contract: Contract, job: Job, wait: Wait, facts: Facts) -> Change:
    """Waits that people or children end. A cancel that was asked for goes first: then nobody is waited for."""
    from . import approvals, children

    if job.cancel_requested is not None and contract.edge(job.status, Move.CANCEL):
        return await _cancel(engine, tx, contract, job, Cancelled("asked for before it waited"), facts)
    if wait.kind == APPROVAL:
        return await approvals.hold(tx, contract, job, wait, facts)
    return await children.wait(engine, tx, contract, job, wait, facts)


_OWN_WAITS = (APPROVAL, CHILDREN)


async def _stop(
    engine: "Engine", tx: Tx, contract: Contract, job: Job, outcome: Stopped, facts: Facts
) -> Change | None:
    return after_stop(contract, job, tx.now, facts, engine.jitter)


def lacks(contract: Contract, what: str) -> NotSupported:
    return NotSupported(f"the contract {contract.name} has no status for {what}; use standard or formal")


_ANSWERS: dict[type, Callable[..., Any]] = {
    Succeeded: _succeed,
    Failed: _fail,
    Snoozed: _snooze,
    Cancelled: _cancel,
    Waits: _wait,
    Stopped: _stop,
}
