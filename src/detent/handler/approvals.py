"""What people decided, as a handler gets it, and the question that asks them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

from detent.core.approval import APPROVE, FAIL, Approval, ask
from detent.core.contract.model import Move
from detent.core.errors import InvalidInput
from detent.core.job import APPROVAL, Job, Micros, Wait
from detent.core.times import SECOND, from_datetime
from detent.engine.execution.approvals import lacks_approval, other_question
from detent.ports.claims import Claimed

from .outcomes import Suspend, WaitTimeout

if TYPE_CHECKING:
    from detent.engine import Engine

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Deadline = float | timedelta | datetime | None
"""Seconds from now, a span, or a moment with a zone."""


class ApprovalExpired(WaitTimeout):
    """The deadline came, nobody had decided, and nothing else was declared for that case."""


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """One person's word."""

    person: str
    approved: bool
    reason: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class Decision:
    """How people decided; true if they approved."""

    approved: bool
    by: tuple[str, ...]
    """Those whose word it is: who approved, or who rejected; nobody if the deadline decided."""
    reason: str | None
    at: datetime
    expired: bool
    """The deadline decided, as the question declared it."""
    digest: str
    """Of exactly that which was decided on."""
    votes: tuple[DecisionRecord, ...] = ()

    def __bool__(self) -> bool:
        return self.approved


async def decided(
    engine: "Engine",
    claimed: Claimed,
    name: str,
    summary: str,
    *,
    about: Any,
    roles: Sequence[str],
    quorum: int,
    deadline: Deadline,
    default: str | bool | None,
) -> Decision:
    """The remembered decision, or the suspension of the job until there is one."""
    asked = ask(summary, about, roles, quorum, default)
    contract = engine.contract(claimed.contract)
    if not any(edge.move is Move.HOLD and edge.source is not None for edge in contract.edges):
        raise lacks_approval(contract)
    known: Approval | None = await engine.store.read(lambda tx: tx.approval(claimed.id, name))
    if known is None or known.decision is None:
        raise Suspend(Wait(name, APPROVAL, _span(deadline, engine.store.now()), asked=asked))
    if known.asked.digest != asked.digest:
        raise other_question(claimed.id, name)
    if known.decision == FAIL:
        raise ApprovalExpired(f"nobody decided {name!r} of job {claimed.id} before its deadline")
    return decision_of(known)


def decision_of(approval: Approval) -> Decision:
    approved = approval.decision == APPROVE
    votes = tuple(DecisionRecord(vote.person, vote.approved, vote.reason, _moment(vote.at)) for vote in approval.votes)
    own = [] if approval.expired else [vote for vote in votes if vote.approved == approved]
    reason = next((vote.reason for vote in reversed(own) if vote.reason), None)
    at = _moment(approval.decided_at or approval.asked_at)
    return Decision(
        approved, tuple(vote.person for vote in own), reason, at, approval.expired, approval.asked.digest, votes
    )


def _moment(at: Micros) -> datetime:
    return _EPOCH + timedelta(microseconds=at)


def _span(deadline: Deadline, now: Micros) -> Micros | None:
    if deadline is None:
        return None
    if isinstance(deadline, datetime):
        return max(0, from_datetime(deadline) - now)
    seconds = deadline.total_seconds() if isinstance(deadline, timedelta) else deadline
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= 1e9:
        raise InvalidInput("a deadline is a number of seconds, a span or a moment", code="APPROVAL_INVALID")
    return int(seconds * SECOND)


class Ready(Protocol):
    """An application, as far as a handle needs to know it here."""

    async def ready(self) -> "Engine": ...


class Approvable:
    """Mixed into the handle of a job: the words people say to it."""

    id: str
    _app: Ready

    async def approve(
        self, *, by: str, reason: str | None = None, roles: Sequence[str] | None = None, digest: str | None = None
    ) -> Job:
        """One person's yes. roles: those the person is known to have; digest: of what the person looked at."""
        engine = await self._app.ready()
        return await engine.approve(self.id, actor=by, reason=reason, roles=roles, digest=digest)

    async def reject(
        self, *, by: str, reason: str | None = None, roles: Sequence[str] | None = None, digest: str | None = None
    ) -> Job:
        engine = await self._app.ready()
        return await engine.reject(self.id, actor=by, reason=reason, roles=roles, digest=digest)
