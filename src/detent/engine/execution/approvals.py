"""Approvals: requested by a running job or required before its first execution; decided by people or by a deadline."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from detent.core.approval import APPROVE, Approval, Vote, may_decide, verdict
from detent.core.contract.model import Contract, Move
from detent.core.decide import add_move, decide, illegal_move
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
class OpenApproval:
    """A job that waits for an approval, and its question. approval None: held before its first execution."""

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
    request = approval.request
    return {
        "name": approval.name,
        "summary": request.summary,
        "about": json.loads(request.about),
        "digest": request.digest,
        "roles": list(request.roles),
        "quorum": request.quorum,
        "missing": approval.missing,
        "asked_at": iso(approval.requested_at),
        "deadline": iso(approval.deadline),
        "default": request.on_expiry,
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
    change.notes.append(Note(after.id, after.version, note, after.updated_at, facts.actor, after.execution_no, data))
    return change


def question_changed(job_id: str, name: str) -> StepMismatch:
    return StepMismatch(
        f"the approval {name!r} of job {job_id} was decided for another question; give the new question another name",
        step=name,
    )


def approval_not_supported(contract: Contract) -> NotSupported:
    return NotSupported(f"the contract {contract.name} has no status for an approval of a running job; use standard")


async def expire(tx: Tx, contract: Contract, job: Job) -> Change:
    """Decide an approval whose deadline passed by its declared default, and wake the job."""
    approval = await tx.approvals.approval(job.id, job.wait_name or "")
    decision = approval.request.on_expiry if approval else "fail"
    await tx.approvals.decide_approval(job.id, job.wait_name or "", decision, max(tx.now, job.updated_at), expired=True)
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
    """Approve or reject. Before the first execution a rejection ends the job; later the handler gets the decision."""
    job = await find(tx.jobs, job_id, tenant)
    contract = engine.contract(job.contract)
    act = "approve" if approved else "reject"
    if not actor.strip():
        raise ApprovalRequired(f"to {act} a job, name the actor", code=contract.code("approval_required"))
    if job.status not in contract.approval_statuses:
        return await refuse(tx, job, illegal_move(contract, job, act), MOVE_REFUSED, actor)
    approval = (
        await tx.approvals.approval(job.id, job.wait_name) if job.wait_kind == APPROVAL and job.wait_name else None
    )
    _check_digest(job, approval, digest)
    if approval is not None:
        check_name(actor, "actor")
        vote = Vote(actor.strip(), approved, reason, None if roles is None else tuple(roles), tx.now)
        return await _vote(engine, tx, contract, job, approval, vote)
    return await _decide_without_vote(engine, tx, contract, job, approved, actor, reason)


def _check_digest(job: Job, approval: Approval | None, digest: str | None) -> None:
    if digest is not None and (approval is None or not approval.request.digest.startswith(digest) or len(digest) < 8):
        raise ApprovalRequired(
            f"job {job.id} asks another question now than the one you saw; read it, then decide",
            code="APPROVAL_CHANGED",
            http_status=409,
            digest=approval.request.digest if approval else None,
        )


async def _vote(
    engine: "Engine", tx: Tx, contract: Contract, job: Job, approval: Approval, vote: Vote
) -> Job | Refused:
    """Record one person's vote. The first rejection decides, or the approval that reaches the quorum."""
    if not may_decide(approval.request, vote.roles):
        needed = ", ".join(approval.request.roles)
        raise ApprovalRequired(
            f"{vote.person} may not decide this, it needs one of the roles {needed}",
            code="APPROVAL_ROLE_REQUIRED",
            http_status=403,
            roles=list(approval.request.roles),
        )
    earlier = next((v for v in approval.votes if v.person == vote.person), None)
    if earlier is not None and earlier.approved == vote.approved:
        raise ApprovalRequired(
            f"{vote.person} has already approved; {approval.missing} more approvals by other people are needed",
            code=contract.code("approval_required"),
            missing=approval.missing,
        )
    at = max(tx.now, job.updated_at)
    vote = replace(vote, at=at)
    votes = [*(v for v in approval.votes if v.person != vote.person), vote]
    decision = verdict(approval.request, votes)
    roles = None if vote.roles is None else list(vote.roles)
    note_data = {"name": approval.name, "digest": approval.request.digest, "reason": vote.reason, "roles": roles}
    await tx.approvals.put_vote(job.id, approval.name, vote)
    name = "approval.given" if vote.approved else contract.approval_notes.get("rejected") or "approval.rejected"
    await tx.log.add_notes([Note(job.id, job.version, name, at, vote.person, job.execution_no, note_data)])
    act = "job.approve" if vote.approved else "job.reject"
    if decision is None:
        data = {"digest": approval.request.digest, "missing": replace(approval, votes=tuple(votes)).missing}
        await tx.audit.add_audit(Audit(vote.person, act, job.id, job.tenant_id, vote.reason, data))
        return job
    await tx.approvals.decide_approval(job.id, approval.name, decision, at, expired=False)
    by = [v.person for v in votes if v.approved == (decision == APPROVE)]
    data = {"approved": decision == APPROVE, "name": approval.name, "digest": approval.request.digest, "by": by}
    return await move_job(engine, tx, contract, job, Move.WAKE, Facts(vote.person, vote.reason, data=data), act)


async def _decide_without_vote(
    engine: "Engine", tx: Tx, contract: Contract, job: Job, approved: bool, actor: str, reason: str | None
) -> Job | Refused:
    """Decide a job held before its first execution, or by an operator: one person is enough, there is no vote."""
    started = job.execution_no > 0
    if started:
        decision = {"approved": approved, "actor": actor, "reason": reason}
        name = job.wait_name or "approval"
        if await tx.signals.signal(job.id, name):  # an earlier hold of the same handler has used this name
            name = f"{name}:{job.version}"
        await tx.signals.add_signal(Signal(job.id, name, json.dumps(decision), actor, tx.now))
    note = contract.approval_notes.get("rejected")
    if not approved and note:
        data = {"reason": reason}
        await tx.log.add_notes([Note(job.id, job.version, note, max(tx.now, job.updated_at), actor, 0, data)])
    move = Move.WAKE if approved or started else Move.REJECT
    failure = None if move is Move.WAKE else Failure("APPROVAL_REJECTED", reason or f"rejected by {actor}", "Rejected")
    due_at: Micros | None = None
    if move is Move.WAKE and not started and (job.scheduled_at or 0) > tx.now:
        due_at = job.scheduled_at
    facts = Facts(
        actor=actor, reason=reason, failure=failure, charged=False, due_at=due_at, data={"approved": approved}
    )
    return await move_job(engine, tx, contract, job, move, facts, "job.approve" if approved else "job.reject")


async def inbox(
    engine: "Engine", tx: Tx, tenant: str | None, roles: Sequence[str] | None, after: str | None, limit: int
) -> list[OpenApproval]:
    """Jobs that wait for an approval, oldest first. roles: only approvals that one of these roles may decide."""
    approvals: list[OpenApproval] = []
    while len(approvals) < limit:
        jobs = await tx.approvals.awaiting_approval(tenant, after, limit)
        for job in jobs:
            if job.status in engine.contract(job.contract).approval_statuses:
                approval = await tx.approvals.approval(job.id, job.wait_name) if job.wait_name else None
                if approval is None or may_decide(approval.request, roles):
                    approvals.append(OpenApproval(job, approval))
        if len(jobs) < limit:
            break
        after = jobs[-1].id
    return approvals[:limit]
