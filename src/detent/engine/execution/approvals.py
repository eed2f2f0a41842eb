"""Approvals: asked by a running job or held before dispatch, decided by named people, expired as was declared."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from detent.core.approval import APPROVE, Approval, Vote, may_decide, verdict
from detent.core.contract.model import Contract, Move
from detent.core.decide import decide, illegal, then
from detent.core.errors import ApprovalRequired, NotSupported, StepMismatch
from detent.core.job import APPROVAL, Change, Facts, Failure, Job, Micros, Note, Signal, Wait
from detent.core.times import iso
from detent.engine.control.job_control import move_job
from detent.engine.refusal import MOVE_REFUSED, Refused, find, refuse
from detent.engine.submit.submission import check_name
from detent.ports.access import Audit
from detent.ports.tx import Tx

if TYPE_CHECKING:
    from detent.engine.engine import Engine

ACTOR = "detent"


@dataclass(frozen=True, slots=True)
class Open:
    """One line of the inbox: a job that waits for people, and what it asked. approval None: held before dispatch."""

    job: Job
    approval: Approval | None

    def as_dict(self) -> dict[str, Any]:
        job, approval = self.job, self.approval
        about = {
            "job_id": job.id,
            "job_type": job.job_type,
            "contract": job.contract,
            "tenant_id": job.tenant_id,
            "status": job.status,
            "version": job.version,
            "trace_id": job.trace_id,
            "since": iso(job.updated_at),
        }
        if approval is None:
            held = {"name": None, "summary": f"{job.job_type} before its first execution", "about": None}
            return {**about, **held, "digest": None, "roles": [], "quorum": 1, "missing": 1, "deadline": None}
        return {**about, **approval_view(approval)}


def approval_view(approval: Approval) -> dict[str, Any]:
    asked = approval.asked
    return {
        "name": approval.name,
        "summary": asked.summary,
        "about": json.loads(asked.about),
        "digest": asked.digest,
        "roles": list(asked.roles),
        "quorum": asked.quorum,
        "missing": approval.missing,
        "asked_at": iso(approval.asked_at),
        "deadline": iso(approval.deadline),
        "default": asked.on_expiry,
        "decision": approval.decision,
        "decided_at": iso(approval.decided_at),
        "expired": approval.expired,
        "votes": [
            {
                "person": vote.person,
                "approved": vote.approved,
                "reason": vote.reason,
                "roles": None if vote.roles is None else list(vote.roles),
                "at": iso(vote.at),
            }
            for vote in approval.votes
        ],
    }


async def hold(tx: Tx, contract: Contract, job: Job, wait: Wait, facts: Facts) -> Change:
    """A running job asks. Asked the same again before anyone decided, the question and its votes stand."""
    asked = wait.asked
    assert asked is not None, "an approval is a wait with a question"
    if not contract.edge(job.status, Move.HOLD):
        raise lacks_approval(contract)
    known = await tx.approval(job.id, wait.name)
    if known is not None and known.decision is not None and known.asked.digest != asked.digest:
        raise other_question(job.id, wait.name)
    if known is not None and known.asked == asked and known.decision is None and known.deadline is not None:
        wait = replace(wait, timeout=max(0, known.deadline - tx.now))
    change = decide(contract, job, Move.HOLD, tx.now, replace(facts, wait=wait))
    after = change.after
    if known is not None and known.decision is not None:
        return then(contract, change, Move.WAKE, tx.now, Facts(actor=facts.actor, reason="decided before"))
    if known is None or known.asked != asked:
        await tx.put_approval(Approval(job.id, wait.name, asked, after.updated_at, after.due_at))
    told: dict[str, Any] = {
        "name": wait.name,
        "summary": asked.summary,
        "digest": asked.digest,
        "roles": list(asked.roles),
    }
    told |= {"quorum": asked.quorum, "deadline": after.due_at, "default": asked.on_expiry}
    note = contract.approval_notes.get("requested") or "approval.requested"
    change.notes.append(Note(after.id, after.version, note, after.updated_at, facts.actor, after.execution_no, told))
    return change


def other_question(job_id: str, name: str) -> StepMismatch:
    return StepMismatch(
        f"what was decided as {name!r} of job {job_id} is not what is asked now; give the new question another name",
        step=name,
    )


def lacks_approval(contract: Contract) -> NotSupported:
    return NotSupported(f"the contract {contract.name} has no status for an approval of a running job; use standard")


async def expire(tx: Tx, contract: Contract, job: Job) -> Change:
    """The deadline came before the people: what was declared happens, and the handler is told."""
    approval = await tx.approval(job.id, job.wait_name or "")
    decision = approval.asked.on_expiry if approval else "fail"
    await tx.decide_approval(job.id, job.wait_name or "", decision, max(tx.now, job.updated_at), expired=True)
    data = {"approved": decision == APPROVE, "decision": decision, "name": job.wait_name}
    return decide(contract, job, Move.WAKE, tx.now, Facts(actor=ACTOR, reason="expired", data=data))


async def decide_approval(
    engine: "Engine",
    tx: Tx,
    job_id: str,
    approved: bool,
    actor: str,
    reason: str | None,
    tenant: str | None,
    roles: Sequence[str] | None,
    digest: str | None,
) -> Job | Refused:
    """Before dispatch a refusal ends the job; inside a handler the decision goes back to it."""
    job = await find(tx, job_id, tenant)
    contract = engine.contract(job.contract)
    act = "approve" if approved else "reject"
    if not actor.strip():
        raise ApprovalRequired(f"to {act} a job, say who you are", code=contract.code("approval_required"))
    if job.status not in contract.approval_statuses:
        return await refuse(tx, job, illegal(contract, job, act), MOVE_REFUSED, actor)
    approval = await tx.approval(job.id, job.wait_name) if job.wait_kind == APPROVAL and job.wait_name else None
    _check_digest(job, approval, digest)
    if approval is not None:
        check_name(actor, "actor")
        vote = Vote(actor.strip(), approved, reason, None if roles is None else tuple(roles), tx.now)
        return await _vote(engine, tx, contract, job, approval, vote)
    return await _decide_at_once(engine, tx, contract, job, approved, actor, reason)


def _check_digest(job: Job, approval: Approval | None, digest: str | None) -> None:
    if digest is not None and (approval is None or not approval.asked.digest.startswith(digest) or len(digest) < 8):
        raise ApprovalRequired(
            f"what job {job.id} asks now is not what was looked at; look again, then decide",
            code="APPROVAL_CHANGED",
            http_status=409,
            digest=approval.asked.digest if approval else None,
        )


async def _vote(
    engine: "Engine", tx: Tx, contract: Contract, job: Job, approval: Approval, vote: Vote
) -> Job | Refused:
    """One person, one word; the question is decided by the first refusal, or when the quorum has approved."""
    if not may_decide(approval.asked, vote.roles):
        needed = ", ".join(approval.asked.roles)
        told = f"{vote.person} may not decide this; it takes one of the roles {needed}"
        raise ApprovalRequired(told, code="APPROVAL_ROLE_REQUIRED", http_status=403, roles=list(approval.asked.roles))
    before = next((one for one in approval.votes if one.person == vote.person), None)
    if before is not None and before.approved == vote.approved:
        raise ApprovalRequired(
            f"{vote.person} has approved already; {approval.missing} more must, and it takes somebody else",
            code=contract.code("approval_required"),
            missing=approval.missing,
        )
    at = max(tx.now, job.updated_at)
    vote = replace(vote, at=at)
    votes = [*(one for one in approval.votes if one.person != vote.person), vote]
    decision = verdict(approval.asked, votes)
    roles = None if vote.roles is None else list(vote.roles)
    heard = {"name": approval.name, "digest": approval.asked.digest, "reason": vote.reason, "roles": roles}
    await tx.put_vote(job.id, approval.name, vote)
    name = "approval.given" if vote.approved else contract.approval_notes.get("rejected") or "approval.rejected"
    await tx.add_notes([Note(job.id, job.version, name, at, vote.person, job.execution_no, heard)])
    act = "job.approve" if vote.approved else "job.reject"
    if decision is None:
        data = {"digest": approval.asked.digest, "missing": replace(approval, votes=tuple(votes)).missing}
        await tx.add_audit(Audit(vote.person, act, job.id, job.tenant_id, vote.reason, data))
        return job
    await tx.decide_approval(job.id, approval.name, decision, at, expired=False)
    by = [one.person for one in votes if one.approved == (decision == APPROVE)]
    data = {"approved": decision == APPROVE, "name": approval.name, "digest": approval.asked.digest, "by": by}
    return await move_job(engine, tx, contract, job, Move.WAKE, Facts(vote.person, vote.reason, data=data), act)


async def _decide_at_once(
    engine: "Engine", tx: Tx, contract: Contract, job: Job, approved: bool, actor: str, reason: str | None
) -> Job | Refused:
    """Held before dispatch, or by an operator: one word decides."""
    inside = job.execution_no > 0
    if inside:
        decision = {"approved": approved, "actor": actor, "reason": reason}
        name = job.wait_name or "approval"
        if await tx.signal(job.id, name):  # an earlier hold of the same handler was answered under this name
            name = f"{name}:{job.version}"
        await tx.add_signal(Signal(job.id, name, json.dumps(decision), actor, tx.now))
    note = contract.approval_notes.get("rejected")
    if not approved and note:
        data = {"reason": reason}
        await tx.add_notes([Note(job.id, job.version, note, max(tx.now, job.updated_at), actor, 0, data)])
    move = Move.WAKE if approved or inside else Move.REJECT
    failure = None if move is Move.WAKE else Failure("APPROVAL_REJECTED", reason or f"rejected by {actor}", "Rejected")
    later: Micros | None = None
    if move is Move.WAKE and not inside and (job.scheduled_at or 0) > tx.now:
        later = job.scheduled_at
    facts = Facts(actor=actor, reason=reason, failure=failure, charged=False, due_at=later, data={"approved": approved})
    return await move_job(engine, tx, contract, job, move, facts, "job.approve" if approved else "job.reject")


async def inbox(
    engine: "Engine", tx: Tx, tenant: str | None, roles: Sequence[str] | None, after: str | None, limit: int
) -> list[Open]:
    """What waits for people, oldest first; roles: only what somebody with one of these may decide."""
    found: list[Open] = []
    while len(found) < limit:
        jobs = await tx.asking(tenant, after, limit)
        for job in jobs:
            if job.status in engine.contract(job.contract).approval_statuses:
                approval = await tx.approval(job.id, job.wait_name) if job.wait_name else None
                if approval is None or may_decide(approval.asked, roles):
                    found.append(Open(job, approval))
        if len(jobs) < limit:
            break
        after = jobs[-1].id
    return found[:limit]
