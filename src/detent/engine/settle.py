"""Ending an execution: what happened becomes a move, guarded by the token; said twice, it is done once."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from ..core.contract import Contract, Move, Phase
from ..core.decide import decide, then
from ..core.errors import DetentError, NotSupported, StaleLease
from ..core.job import Change, Facts, Job
from ..core.outcome import (
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
from ..ports import Tx
from .refusal import SETTLE_REFUSED, Refused, refuse

if TYPE_CHECKING:
    from . import Engine


@dataclass(frozen=True, slots=True)
class Settlement:
    """One execution's end: which job, under which token, with what outcome."""

    id: str
    token: str
    contract: str
    outcome: Outcome


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
    change = _obey_cancel(contract, change, tx)
    await tx.apply([change])
    return change.after


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


def _obey_cancel(contract: Contract, change: Change, tx: Tx) -> Change:
    """A cancel that was asked for while the job ran takes effect as soon as nobody holds it."""
    after = change.after
    if after.cancel_requested is None or after.status in contract.cancel_requests:
        return change
    if not contract.edge(after.status, Move.CANCEL):
        return change
    asked = json.loads(after.cancel_requested)
    return then(contract, change, Move.CANCEL, tx.now, Facts(actor=asked["actor"], reason=asked["reason"]))


async def _succeed(engine: "Engine", tx: Tx, contract: Contract, job: Job, outcome: Succeeded, facts: Facts) -> Change:
    return decide(contract, job, Move.SUCCEED, tx.now, replace(facts, result=outcome.result, data={}))


async def _fail(engine: "Engine", tx: Tx, contract: Contract, job: Job, outcome: Failed, facts: Facts) -> Change:
    return after_failure(contract, job, outcome.failure, tx.now, facts, engine.jitter)


async def _snooze(engine: "Engine", tx: Tx, contract: Contract, job: Job, outcome: Snoozed, facts: Facts) -> Change:
    if contract.snooze is None:
        raise lacks(contract, "a snooze")
    return decide(contract, job, contract.snooze, tx.now, replace(facts, delay=outcome.delay, reason="snoozed"))


async def _cancel(engine: "Engine", tx: Tx, contract: Contract, job: Job, outcome: Cancelled, facts: Facts) -> Change:
    if not contract.edge(job.status, Move.CANCEL):
        raise lacks(contract, "a cancel")
    return decide(contract, job, Move.CANCEL, tx.now, replace(facts, reason=outcome.reason))


async def _wait(engine: "Engine", tx: Tx, contract: Contract, job: Job, outcome: Waits, facts: Facts) -> Change:
    """The row is locked; only now look for the signal, so that one which came meanwhile is never missed."""
    move = Move.PARK if outcome.wait.park and contract.edge(job.status, Move.PARK) else Move.WAIT
    if not contract.edge(job.status, move):
        raise lacks(contract, "a wait")
    change = decide(contract, job, move, tx.now, replace(facts, wait=outcome.wait))
    if await tx.signal(job.id, outcome.wait.name):
        return then(contract, change, Move.WAKE, tx.now, Facts(actor=facts.actor, reason="signalled"))
    return change


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
