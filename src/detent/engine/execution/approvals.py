"""Approvals: requested by a running job or required before its first execution; decided by people or by a deadline."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from detent.core.access import Scope, reason_for_doubt
from detent.core.approval import APPROVE, Approval, Vote, earlier_vote, first_doubt, may_decide, verdict
from detent.core.contract.model import Contract, Move
from detent.core.decide import decide
from detent.core.errors import ApprovalRequired, DetentError
from detent.core.job import APPROVAL, Change, Facts, Failure, Job, Micros, Note, Signal, unchanged
from detent.core.times import columns, iso
from detent.engine.payload_access import redact_approval
from detent.engine.refusal import Refused, audit, move_job, refuse_move
from detent.engine.runtime import Service, changes, reads
from detent.engine.submit.submission import check_name
from detent.ports.tx import Tx

ACTOR = "detent"


@dataclass(frozen=True, slots=True)
class OpenApproval:
    """A job that waits for an approval, and its question. approval None: held before its first execution."""

    job: Job
    approval: Approval | None

    def as_dict(self, *, payloads: bool = True) -> dict[str, Any]:
        job, approval = self.job, self.approval
        named = columns(job, "job_type", "contract", "tenant_id", "status", "version", "trace_id")
        about = {"job_id": job.id, **named, "since": iso(job.updated_at)}
        if approval is None:
            held = {"name": None, "summary": f"{job.job_type} before its first execution", "about": None}
            return {**about, **held, "digest": None, "roles": [], "quorum": 1, "missing": 1, "deadline": None}
        return {**about, **approval_view(approval, payloads=payloads)}


class Approvals(Service):
    """`engine.approvals`: what jobs wait for a person to approve, and the decisions."""

    @changes
    async def approve(
        self, tx: Tx, job_id: str, scope: Scope, *, roles: Sequence[str] | None = None, digest: str | None = None
    ) -> Change | Refused:
        """Approve what the job waits for. Raises ApprovalRequired if the person may not decide it.

        roles: the person's roles, None if not known. digest: of the question the person saw; if the job asks
        another question now, the decision is refused.
        """
        return await self._decide(tx, job_id, True, scope, roles, digest)

    @changes
    async def reject(
        self, tx: Tx, job_id: str, scope: Scope, *, roles: Sequence[str] | None = None, digest: str | None = None
    ) -> Change | Refused:
        """Reject what the job waits for; one rejection decides. Arguments and errors are those of `approve`."""
        return await self._decide(tx, job_id, False, scope, roles, digest)

    async def _decide(
        self, tx: Tx, job_id: str, approved: bool, scope: Scope, roles: Sequence[str] | None, digest: str | None
    ) -> Change | Refused:
        """Before the first execution a rejection ends the job; later the handler gets the decision."""
        job = await self._runtime.find(tx, job_id, scope)
        contract = self._runtime.contract(job.contract)
        act = "approve" if approved else "reject"
        if not scope.actor.strip():
            raise ApprovalRequired(f"to {act} a job, name the actor", code=contract.code("approval_required"))
        if job.status not in contract.approval_statuses:
            return await refuse_move(tx, contract, job, act, scope.actor)
        approval = (
            await tx.approvals.approval(job.id, job.wait_name) if job.wait_kind == APPROVAL and job.wait_name else None
        )
        if digest is not None and not self._runtime.payloads:
            message = "a caller that may not see payloads cannot compare the question; leave out the digest"
            raise DetentError(message, code="PAYLOADS_REQUIRED", http_status=403)
        _check_digest(job, approval, digest)
        if approval is not None:
            check_name(scope.actor, "actor")
            names = None if roles is None else tuple(roles)
            vote = Vote(scope.actor.strip(), approved, scope.reason, names, tx.now, scope.shared_with)
            return await _vote(tx, contract, job, approval, vote)
        return await _decide_without_vote(tx, contract, job, approved, scope.actor, scope.reason)

    @reads
    async def waiting(
        self, tx: Tx, *, roles: Sequence[str] | None = None, after: str | None = None, limit: int = 50
    ) -> list[OpenApproval]:
        """Jobs that wait for an approval, oldest first. after: the last job id of the previous page.

        roles: only approvals that one of these roles may decide.
        """
        approvals: list[OpenApproval] = []
        while len(approvals) < limit:
            jobs = await tx.approvals.awaiting_approval(self.tenant, after, limit)
            for job in jobs:
                reached = self._runtime.reach.includes(job.queue, job.job_type)
                if reached and job.status in self._runtime.contract(job.contract).approval_statuses:
                    approval = await tx.approvals.approval(job.id, job.wait_name) if job.wait_name else None
                    if approval is None or may_decide(approval.request, roles):
                        approvals.append(OpenApproval(job, approval))
            if len(jobs) < limit:
                break
            after = jobs[-1].id
        return approvals[:limit]

    @reads
    async def of_job(self, tx: Tx, job_id: str) -> list[Approval]:
        """All approvals the job has requested, with their votes."""
        return await tx.approvals.approvals_of((await self._runtime.find(tx, job_id)).id)


def approval_view(approval: Approval, *, payloads: bool = True) -> dict[str, Any]:
    """payloads False: summary, about, digest and the reasons of votes are null."""
    approval = approval if payloads else redact_approval(approval)
    request = approval.request
    return {
        "name": approval.name,
        "summary": request.summary or None,
        "about": json.loads(request.about),
        "digest": request.digest or None,
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
            {**columns(vote, "person", "approved", "reason"), "roles": _listed(vote.roles), "at": iso(vote.at)}
            for vote in approval.votes
        ],
    }


def _listed(roles: tuple[str, ...] | None) -> list[str] | None:
    return None if roles is None else list(roles)


async def expire(tx: Tx, contract: Contract, job: Job) -> Change:
    """Decide an approval whose deadline passed by its declared default, and wake the job."""
    approval = await tx.approvals.approval(job.id, job.wait_name or "")
    decision = approval.request.on_expiry if approval else "fail"
    await tx.approvals.decide_approval(job.id, job.wait_name or "", decision, max(tx.now, job.updated_at), expired=True)
    data = {"approved": decision == APPROVE, "decision": decision, "name": job.wait_name}
    return decide(contract, job, Move.WAKE, tx.now, Facts(actor=ACTOR, reason="expired", data=data))


def _check_digest(job: Job, approval: Approval | None, digest: str | None) -> None:
    if digest is not None and (approval is None or not approval.request.digest.startswith(digest) or len(digest) < 8):
        raise ApprovalRequired(
            f"job {job.id} asks another question now than the one you saw; read it, then decide",
            code="APPROVAL_CHANGED",
            http_status=409,
            digest=approval.request.digest if approval else None,
        )


async def _vote(tx: Tx, contract: Contract, job: Job, approval: Approval, vote: Vote) -> Change | Refused:
    """Record one person's vote. The first rejection decides, or the approval that reaches the quorum."""
    if not may_decide(approval.request, vote.roles):
        needed = ", ".join(approval.request.roles)
        raise ApprovalRequired(
            f"{vote.person} may not decide this, it needs one of the roles {needed}",
            code="APPROVAL_ROLE_REQUIRED",
            http_status=403,
            roles=list(approval.request.roles),
        )
    earlier = earlier_vote(approval.votes, vote.person)
    others = [v for v in approval.votes if v is not earlier]
    doubtful = first_doubt(others, vote)
    if earlier is not None and earlier.approved == vote.approved and not vote.signer.is_surer_than(earlier.signer):
        message = f"{vote.person} has already approved"
    elif doubtful is not None:
        message = f"{doubtful.person} has already approved, and {reason_for_doubt(doubtful.signer, vote.signer)}"
    else:
        message = None
    if message is not None:
        message += f"; {approval.missing} more approvals by other people are needed"
        raise ApprovalRequired(message, code=contract.code("approval_required"), missing=approval.missing)
    at = max(tx.now, job.updated_at)
    vote = replace(vote, at=at, person=earlier.person if earlier else vote.person)
    votes = [*others, vote]
    decision = verdict(approval.request, votes)
    note_data = {
        "name": approval.name,
        "digest": approval.request.digest,
        "reason": vote.reason,
        "roles": _listed(vote.roles),
    }
    await tx.approvals.put_vote(job.id, approval.name, vote)
    name = "approval.given" if vote.approved else contract.approval_notes.get("rejected") or "approval.rejected"
    await tx.log.add_notes([job.note(name, tx.now, vote.person, note_data)])
    act = "job.approve" if vote.approved else "job.reject"
    if decision is None:
        data = {"digest": approval.request.digest, "missing": replace(approval, votes=tuple(votes)).missing}
        await audit(tx, Scope(vote.person, vote.reason), act, job.id, job.tenant_id, data)
        return unchanged(job)
    await tx.approvals.decide_approval(job.id, approval.name, decision, at, expired=False)
    by = [v.person for v in votes if v.approved == (decision == APPROVE)]
    data = {"approved": decision == APPROVE, "name": approval.name, "digest": approval.request.digest, "by": by}
    return await move_job(tx, contract, job, Move.WAKE, Facts(vote.person, vote.reason, data=data), act)


async def _decide_without_vote(
    tx: Tx, contract: Contract, job: Job, approved: bool, actor: str, reason: str | None
) -> Change | Refused:
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
    return await move_job(tx, contract, job, move, facts, "job.approve" if approved else "job.reject")
