"""Approvals and votes, as a transaction stores them."""

from typing import Protocol

from detent.core.approval import Approval, Vote
from detent.core.job import Job, Micros


class ApprovalTx(Protocol):
    """Questions put to people, and their votes."""

    async def approval(self, job_id: str, name: str) -> Approval | None: ...

    async def approvals_of(self, job_id: str) -> list[Approval]: ...

    async def put_approval(self, approval: Approval) -> None:
        """A new question, or the same name with another one: then the votes it had are gone."""
        ...

    async def put_vote(self, job_id: str, name: str, vote: Vote) -> None: ...

    async def decide_approval(self, job_id: str, name: str, decision: str, at: Micros, *, expired: bool) -> None: ...

    async def asking(self, tenant: str | None, after: str | None, limit: int) -> list[Job]:
        """Jobs that wait for people, oldest first."""
        ...
