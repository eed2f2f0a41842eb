"""Approvals: a question a job asked, the votes it got, and what they decide. Pure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from .errors import InvalidInput
from .job import Asked, Micros

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
    """One person's word. roles None: nobody told which roles the person has."""

    person: str
    approved: bool
    reason: str | None
    roles: tuple[str, ...] | None
    at: Micros


@dataclass(frozen=True, slots=True)
class Approval:
    """A question as it is kept. decision None: open, or given up with its job."""

    job_id: str
    name: str
    asked: Asked
    asked_at: Micros
    deadline: Micros | None
    decision: str | None = None
    decided_at: Micros | None = None
    expired: bool = False
    """True: the deadline decided, not people."""
    votes: tuple[Vote, ...] = ()

    @property
    def missing(self) -> int:
        """How many more people must approve."""
        return max(0, self.asked.quorum - sum(vote.approved for vote in self.votes))


def ask(summary: str, about: Any, roles: Sequence[str], quorum: int, default: Any) -> Asked:
    """A checked question; what cannot be asked is refused here."""
    if not isinstance(summary, str) or not summary.strip() or len(summary) > MAX_SUMMARY:
        raise _invalid(f"the summary is what people decide on: 1 to {MAX_SUMMARY} characters of text", "summary")
    if isinstance(roles, str) or not all(isinstance(role, str) and role.strip() for role in roles):
        raise _invalid("roles is a list of names, one of which a person needs to decide", "roles")
    if isinstance(quorum, bool) or not isinstance(quorum, int) or not 1 <= quorum <= MAX_QUORUM:
        raise _invalid(f"the quorum is a whole number of people from 1 to {MAX_QUORUM}", "quorum")
    if not isinstance(default, str | bool | None) or default not in _EXPIRIES:
        raise _invalid(f"default says what the deadline decides: {APPROVE!r}, {REJECT!r} or {FAIL!r}", "default")
    try:
        text = json.dumps(about, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
        digest = sha256(f"{summary}\0{text}".encode()).hexdigest()
    except (TypeError, ValueError, RecursionError) as error:
        raise _invalid(f"what is to be approved is not JSON: {error}", "about") from None
    names = tuple(sorted({role.strip() for role in roles}))
    return Asked(summary, text, digest, names, quorum, _EXPIRIES[default])


def verdict(asked: Asked, votes: Sequence[Vote]) -> str | None:
    """One who rejects is enough; approval takes the quorum, and nobody counts twice."""
    if any(not vote.approved for vote in votes):
        return REJECT
    return APPROVE if len({vote.person for vote in votes}) >= asked.quorum else None


def may_decide(asked: Asked, roles: Sequence[str] | None) -> bool:
    """Roles that nobody told are not held against a person; the vote records that they are unknown."""
    return roles is None or not asked.roles or bool(set(roles) & set(asked.roles))


def _invalid(sentence: str, field: str) -> InvalidInput:
    return InvalidInput(sentence, code="APPROVAL_INVALID", field=field)
