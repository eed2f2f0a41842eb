"""What the engine needs of a store for families and approvals; part of a transaction, see ports."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from detent.core.job import Job


class Ended(NamedTuple):
    """How a child stands."""

    id: str
    parent_id: str | None
    job_type: str
    contract: str
    status: str
    phase: str
    result: str | None
    error_code: str | None
    error_message: str | None


class ChildrenTx(Protocol):
    """Parents and children. What a parent must be told is written with what happened, and looked at after that."""

    related_ids: set[str]
    """Jobs whose family changed in this transaction: somebody should look at them once it is committed."""

    async def await_children(self, parent_id: str, ids: Sequence[str], wakes_on: str) -> int:
        """Write down which of these children the parent waits for: those that have not ended; how many that are."""
        ...

    async def ended_badly(self, ids: Sequence[str], good: Sequence[str]) -> bool:
        """Has one of these ended in none of the good "contract status" pairs?"""
        ...

    async def take_news(self, parent_id: str) -> dict[str, bool]:
        """Children that ended since somebody last looked, and whether badly; from now on they are no news."""
        ...

    async def end_awaited(self, parent_id: str, ids: Sequence[str]) -> dict[str, str]:
        """These are no longer waited for; those that were, and what they wake on."""
        ...

    async def still_awaited(self, parent_id: str) -> bool: ...

    async def drop_news(self, parent_id: str) -> None: ...

    async def families_ready(self, parents: Sequence[str]) -> list[str]:
        """Of these parents, those who can go on or whose children must be cancelled."""
        ...

    async def families_with_news(self, limit: int) -> list[str]: ...

    async def has_orphans(self, parent_id: str) -> bool:
        """Was it cancelled, and its children not yet?"""
        ...

    async def stoppable(self, parent_id: str, where_to: Sequence[str], limit: int) -> list[Job]:
        """Open children in these "contract status" pairs that nobody asked to stop, locked; held ones are left out."""
        ...

    async def orphans_done(self, parent_id: str, where_to: Sequence[str]) -> bool:
        """True, and written down, if no child is left that could be stopped."""
        ...

    async def children(self, parent_id: str, after: str | None = None, limit: int = 100) -> list[Job]: ...

    async def count_children(self, parent_id: str) -> list[tuple[str, str, str, str, int]]:
        """(job type, contract, status, phase, how many)."""
        ...

    async def child_ends(self, ids: Sequence[str]) -> list[Ended]: ...
