"""Runs one engine operation: a transaction, retried on a version conflict, then the parents of ended children.

Also the engine's approve and reject methods.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from detent.core.approval import Approval
from detent.core.errors import VersionConflict
from detent.core.job import Job
from detent.ports.store import Store
from detent.ports.tx import Tx

from .execution import approvals, children
from .refusal import Refused, find, unwrap

if TYPE_CHECKING:
    from .engine import Engine

T = TypeVar("T")
_ATTEMPTS = 8


class ApprovalActs:
    """The engine's approval methods and its transaction runner; a mixin of Engine."""

    store: Store

    async def _retry_on_conflict(self, act: Callable[[Tx], Awaitable[T]]) -> T:
        """Run the act in a transaction; on VersionConflict run it again, up to 8 times. Then process parent jobs."""
        parents_to_process: set[str] = set()

        async def act_and_collect(tx: Tx) -> T:
            result = await act(tx)
            parents_to_process.update(tx.parents_to_process)
            return result

        for _ in range(_ATTEMPTS):
            try:
                result = await self.store.write(act_and_collect)
            except VersionConflict as conflict:
                last_conflict = conflict
                continue
            if parents_to_process:
                await children.process_child_events(self._engine, parents_to_process)
            return result
        raise last_conflict

    @property
    def _engine(self) -> "Engine":
        return cast("Engine", self)

    async def write(self, act: Callable[[Tx], Awaitable[T]]) -> T:
        """Run the act in one transaction, retried on VersionConflict; then wake or cancel related jobs."""
        return await self._retry_on_conflict(act)

    async def approve(
        self,
        job_id: str,
        *,
        actor: str,
        reason: str | None = None,
        tenant: str | None = None,
        roles: Sequence[str] | None = None,
        digest: str | None = None,
    ) -> Job:
        """Approve what the job waits for. Raises ApprovalRequired if the person may not decide it.

        roles: the person's roles, None if not known. digest: of the question the person saw; if the job asks
        another question now, the decision is refused.
        """
        return await _decide(self._engine, job_id, True, actor, reason, tenant, roles, digest)

    async def reject(
        self,
        job_id: str,
        *,
        actor: str,
        reason: str | None = None,
        tenant: str | None = None,
        roles: Sequence[str] | None = None,
        digest: str | None = None,
    ) -> Job:
        return await _decide(self._engine, job_id, False, actor, reason, tenant, roles, digest)

    async def open_approvals(
        self,
        *,
        tenant: str | None = None,
        roles: Sequence[str] | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> list[approvals.OpenApproval]:
        """Jobs that wait for an approval, oldest first. after: the last job id of the previous page."""
        return await self.store.read(lambda tx: approvals.inbox(self._engine, tx, tenant, roles, after, limit))

    async def approvals_of(self, job_id: str, *, tenant: str | None = None) -> list[Approval]:
        """All approvals the job has requested, with their votes."""

        async def act(tx: Tx) -> list[Approval]:
            job = await find(tx.jobs, job_id, tenant)
            return await tx.approvals.approvals_of(job.id)

        return await self.store.read(act)

    async def process_child_events(self, limit: int = 100) -> list[str]:
        """Process parents with unprocessed ends of children; part of every sweep. Returns the parents' ids."""
        return await children.process_pending_child_events(self._engine, limit)


async def _decide(
    engine: "Engine",
    job_id: str,
    approved: bool,
    actor: str,
    reason: str | None,
    tenant: str | None,
    roles: Sequence[str] | None,
    digest: str | None,
) -> Job:
    async def act(tx: Tx) -> Job | Refused:
        return await approvals.decide_approval(engine, tx, job_id, approved, actor, reason, tenant, roles, digest)

    return unwrap(await engine.write(act))
