"""Parent and child jobs, approvals and votes, as a transaction stores them."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from detent.core.approval import Approval, Vote
from detent.core.job import Job, Micros


class ChildState(NamedTuple):
    """The current state of a child."""

    id: str
    parent_id: str | None
    job_type: str
    contract: str
    status: str
    phase: str
    result: str | None
    error_code: str | None
    error_message: str | None


class ChildRow(NamedTuple):
    """A child as a list shows it."""

    id: str
    tenant_id: str
    queue: str
    job_type: str
    contract: str
    status: str
    phase: str
    error_code: str | None
    execution_no: int
    worker: str | None
    created_at: Micros
    started_at: Micros | None
    finished_at: Micros | None


class ChildCount(NamedTuple):
    """The number of children of one tenant, queue, type, contract and status."""

    tenant_id: str
    queue: str
    job_type: str
    contract: str
    status: str
    phase: str
    number: int


class ChildTable(Protocol):
    async def list_children(self, parent_id: str, after: str | None = None, limit: int = 100) -> list[Job]: ...
    async def child_page(
        self, parent_id: str, after: str | None, limit: int, *, phase: str | None = None, status: str | None = None
    ) -> list[ChildRow]:
        """Children by id, without payloads; only those in this phase or status, if given."""
        ...

    async def count_children(self, parent_id: str) -> list[ChildCount]: ...
    async def child_states(self, ids: Sequence[str]) -> list[ChildState]: ...

    async def any_failed(self, ids: Sequence[str], good: Sequence[str]) -> bool:
        """True if one of these has ended in a status that is not among the `good` "contract status" pairs."""
        ...

    async def has_children_to_cancel(self, parent_id: str) -> bool:
        """True if the parent was cancelled and its children are still to be cancelled."""
        ...

    async def cancellable_children(self, parent_id: str, where_to: Sequence[str], limit: int) -> list[Job]:
        """Children in these "contract status" pairs without a cancel request, locked; locked rows are skipped."""
        ...

    async def all_children_cancelled(self, parent_id: str, where_to: Sequence[str]) -> bool:
        """True if no cancellable child is left; then the pending cancellation of the children is deleted."""
        ...


class AwaitedTable(Protocol):
    """Which children a parent waits for.

    When a child ends, a row for its parent is written in the same transaction and processed in a later one.
    """

    async def await_children(self, parent_id: str, ids: Sequence[str], wakes_on: str) -> int:
        """Record that the parent waits for those of these children that have not ended; returns their number."""
        ...

    async def take_ended_children(self, parent_id: str) -> dict[str, bool]:
        """Take the children that ended since the last call: {child id: True if it failed}."""
        ...

    async def stop_awaiting(self, parent_id: str, ids: Sequence[str]) -> dict[str, str]:
        """The parent no longer waits for these. Returns {child id: wakes_on} of those it waited for."""
        ...

    async def awaits_children(self, parent_id: str) -> bool: ...
    async def drop_ended_children(self, parent_id: str) -> None: ...

    async def parents_ready(self, parents: Sequence[str]) -> list[str]:
        """Those of these parents that can be woken, or whose children must be cancelled."""
        ...

    async def parents_with_ended_children(self, limit: int) -> list[str]: ...


class ApprovalTable(Protocol):
    """Approval requests and votes."""

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
