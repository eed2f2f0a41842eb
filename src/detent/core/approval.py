"""Approvals: a request, the votes on it, and the decision they make. Pure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from .access import Signer, count_people, same_person
from .errors import InvalidInput, check_number
from .job import ApprovalRequest, Micros

APPROVE, REJECT, FAIL = "approve", "reject", "fail"
MAX_QUORUM = 100
MAX_SUMMARY = 2_000
_EXPIRIES: dict[str | bool | None, str] = {
    **dict.fromkeys((APPROVE, "approved", True), APPROVE),
    **dict.fromkeys((REJECT, "rejected", False), REJECT),
    **dict.fromkeys((FAIL, None), FAIL),
}


@dataclass(frozen=True, slots=True)
class Vote:
    """One person's vote. roles None: the person's roles are unknown."""

    person: str
    approved: bool
    reason: str | None
    roles: tuple[str, ...] | None
    at: Micros
    shared_with: tuple[str, ...] | None = ()
    """Who else may have voted under this name, see `Signer`."""

    @property
    def signer(self) -> Signer:
        return Signer(self.person, self.shared_with)


@dataclass(frozen=True, slots=True)
class Approval:
    """A stored approval. decision None: open, or its job ended without a decision."""

    job_id: str
    name: str
    request: ApprovalRequest
    requested_at: Micros
    deadline: Micros | None
    decision: str | None = None
    decided_at: Micros | None = None
    expired: bool = False
    """True: the deadline decided, not people."""
    votes: tuple[Vote, ...] = ()

    @property
    def missing(self) -> int:
        """How many more people must approve."""
        return max(0, self.request.quorum - count_people(vote.signer for vote in self.votes if vote.approved))


def make_approval_request(summary: str, about: Any, roles: Sequence[str], quorum: int, default: Any) -> ApprovalRequest:
    """A validated approval request; raises InvalidInput with the field at fault."""
    if not isinstance(summary, str) or not summary.strip() or len(summary) > MAX_SUMMARY:
        raise _invalid(f"summary must be text of 1 to {MAX_SUMMARY} characters", "summary")
    if isinstance(roles, str) or not all(isinstance(role, str) and role.strip() for role in roles):
        raise _invalid("roles must be a list of names; a person needs one of them to decide", "roles")
    check_number(quorum, "quorum", 1, MAX_QUORUM, "APPROVAL_INVALID")
    if not isinstance(default, str | bool | None) or default not in _EXPIRIES:
        raise _invalid(f"default must be {APPROVE!r}, {REJECT!r} or {FAIL!r}: the decision at the deadline", "default")
    try:
        text = json.dumps(about, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
        digest = sha256(f"{summary}\0{text}".encode()).hexdigest()
    except (TypeError, ValueError, RecursionError) as error:
        raise _invalid(f"about must be JSON: {error}", "about") from None
    names = tuple(sorted({role.strip() for role in roles}))
    return ApprovalRequest(summary, text, digest, names, quorum, _EXPIRIES[default])


def verdict(request: ApprovalRequest, votes: Sequence[Vote]) -> str | None:
    """The decision of these votes, or None. One rejection rejects; a quorum of different people approves."""
    if any(not vote.approved for vote in votes):
        return REJECT
    return APPROVE if count_people(vote.signer for vote in votes) >= request.quorum else None


def earlier_vote(votes: Sequence[Vote], person: str) -> Vote | None:
    return next((vote for vote in votes if same_person(vote.person) == same_person(person)), None)


def first_doubt(votes: Sequence[Vote], vote: Vote) -> Vote | None:
    """The earlier vote that may be of the same person as this approval, so that it adds nobody; None: it adds one.

    Votes under unproven names do not stand in the way of a proven one: they only count while there is no other.
    """
    if not vote.approved:
        return None
    before = [v for v in votes if v.shared_with is not None or vote.shared_with is None]
    return next((v for v in before if count_people((v.signer, vote.signer)) < 2), None)


def may_decide(request: ApprovalRequest, roles: Sequence[str] | None) -> bool:
    """True if a person with these roles may decide. Unknown roles (None) are allowed; the vote records that."""
    return roles is None or not request.roles or bool(set(roles) & set(request.roles))


def _invalid(message: str, field: str) -> InvalidInput:
    return InvalidInput(message, code="APPROVAL_INVALID", field=field)
