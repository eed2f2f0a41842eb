"""ctx.approval: a running job waits for people to decide, and gets their decision."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from detent.core.approval import APPROVE, FAIL, Approval, make_approval_request
from detent.core.contract.model import Move
from detent.core.errors import InvalidInput
from detent.core.job import APPROVAL, Micros, Wait
from detent.core.times import SECOND, from_datetime, to_datetime
from detent.engine.execution.settle import approval_not_supported, question_changed
from detent.engine.submit.submission import check_name

from .base_context import EngineContext
from .outcomes import Suspend, WaitTimeout
from .transaction import check_no_transaction

Deadline = float | timedelta | datetime | None
"""Seconds from now, a timedelta, or a datetime with a time zone. None: no deadline."""


class ApprovalExpired(WaitTimeout):
    """Raised by `ctx.approval` when its deadline passed without a decision and its `default` is "fail"."""


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """The vote of one person: who, approved or rejected, why, and when."""

    person: str
    approved: bool
    reason: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class Decision:
    """What `ctx.approval` returns: how people decided. True in a condition if they approved.

    decision = await ctx.approval("delete 300 rows")
    if not decision:
        return {"rejected_by": decision.by, "reason": decision.reason}
    """

    approved: bool
    by: tuple[str, ...]
    """The people who approved, or who rejected; empty if the deadline decided."""
    reason: str | None
    """The last reason that one of them gave."""
    at: datetime
    """When it was decided, in UTC."""
    expired: bool
    """True if the deadline decided, with the `default` of the call."""
    digest: str
    """The digest of summary and `about`, as people saw them."""
    votes: tuple[DecisionRecord, ...] = ()
    """Every vote, also those on the other side."""

    def __bool__(self) -> bool:
        return self.approved


class ApprovalCalls(EngineContext):
    """The approval call of an async handler's context."""

    async def approval(
        self,
        summary: str,
        *,
        about: Any = None,
        roles: Sequence[str] = (),
        quorum: int = 1,
        deadline: Deadline = None,
        default: str | bool | None = "fail",
        name: str = "approval",
    ) -> Decision:
        """Wait for people to approve or reject; returns their Decision, which is true if they approved.

        The job leaves its worker until then. The decision is recorded: later executions get the same one.

        summary: what is to be approved, in one sentence.
        about: details as JSON; they are shown to the people who decide.
        roles: a person needs one of these to decide; empty: anybody may.
        quorum: how many different people must approve; one rejection is enough to reject.
        deadline: seconds, a timedelta or a datetime with a time zone; None: no deadline.
        default: what the deadline decides: "approve", "reject", or "fail", which raises ApprovalExpired.
        name: repeated names of one execution are numbered, so loops may keep the default.

        Raises ApprovalExpired at the deadline, StepMismatch if this name was decided for another summary or `about`,
        InvalidInput (APPROVAL_INVALID) for a bad argument, NotSupported if the contract has no status for it.

            if await ctx.approval("refund 100", roles=["support-lead"], deadline=86_400, default="reject"):
                await ctx.step("refund", refund, order_id)
        """
        check_name(name, "approval name")
        check_no_transaction(self.scopes, "an approval")
        await self._begin_call("an approval")
        name, job_id = self._numbers.number(name), self.job_id
        request = make_approval_request(summary, about, roles, quorum, default)
        contract = self._engine.contract(self._claimed.contract)
        if not contract.has(Move.HOLD):
            raise approval_not_supported(contract)
        approval: Approval | None = await self._engine.store.read(lambda tx: tx.approvals.approval(job_id, name))
        if approval is None or approval.decision is None:
            raise Suspend(Wait(name, APPROVAL, _timeout(deadline, self._engine.store.now()), approval=request))
        if approval.request.digest != request.digest:
            raise question_changed(job_id, name)
        if approval.decision == FAIL:
            raise ApprovalExpired(f"approval {name!r} of job {job_id} was not decided before its deadline")
        return _decision_of(approval)


def _decision_of(approval: Approval) -> Decision:
    approved = approval.decision == APPROVE
    votes = tuple(
        DecisionRecord(vote.person, vote.approved, vote.reason, to_datetime(vote.at)) for vote in approval.votes
    )
    deciding = [] if approval.expired else [vote for vote in votes if vote.approved == approved]
    return Decision(
        approved=approved,
        by=tuple(vote.person for vote in deciding),
        reason=next((vote.reason for vote in reversed(deciding) if vote.reason), None),
        at=to_datetime(approval.decided_at or approval.requested_at),
        expired=approval.expired,
        digest=approval.request.digest,
        votes=votes,
    )


def _timeout(deadline: Deadline, now: Micros) -> Micros | None:
    if deadline is None:
        return None
    if isinstance(deadline, datetime):
        return max(0, from_datetime(deadline) - now)
    seconds = deadline.total_seconds() if isinstance(deadline, timedelta) else deadline
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= 1e9:
        message = "deadline must be seconds from 0 to 1e9, a timedelta, or a datetime with a time zone"
        raise InvalidInput(message, code="APPROVAL_INVALID")
    return int(seconds * SECOND)
