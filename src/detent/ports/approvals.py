"""Approvals and votes, as a transaction stores them."""

from typing import Protocol

from detent.core.approval import Approval, Vote
from detent.core.job import Job, Micros


class ApprovalTx(Protocol):
    """Approval requests and votes within a transaction."""

    async def approval(self, job_id: str, name: str) -> Approval | None: ...

    async def approvals_of(self, job_id: str) -> list[Approval]: ...

    async def put_approval(self, approval: Approval) -> None:
        """Insert an approval, or replace the one of the same name and delete its votes."""
        ...

    async def put_vote(self, job_id: str, name: str, vote: Vote) -> None: ...

    async def decide_approval(self, job_id: str, name: str, decision: str, at: Micros, *, expired: bool) -> None: ...

    async def awaiting_approval(self, tenant: str | None, after: str | None, limit: int) -> list[Job]:
        """Jobs that wait for an approval, oldest first."""
        ...
