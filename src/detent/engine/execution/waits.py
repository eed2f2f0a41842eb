"""Waits of a running job: for a signal, an approval or its children. Its row is locked before it looks for them."""

from dataclasses import replace
from typing import Any

from detent.core.approval import Approval
from detent.core.child_ids import FAILURE, should_wake
from detent.core.contract.model import Contract, Move
from detent.core.decide import add_move, decide
from detent.core.errors import NotSupported, StepMismatch
from detent.core.job import Change, Facts, Job, Wait
from detent.engine.runtime import Runtime
from detent.ports.tx import Tx


async def wait_for_signal(tx: Tx, contract: Contract, job: Job, wait: Wait, facts: Facts) -> Change:
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


async def wait_for_approval(tx: Tx, contract: Contract, job: Job, wait: Wait, facts: Facts) -> Change:
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


async def wait_for_children(runtime: Runtime, tx: Tx, contract: Contract, job: Job, wait: Wait, facts: Facts) -> Change:
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
