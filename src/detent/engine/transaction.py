"""How the engine acts: one transaction, again if it lost a race, then a look at families; and people's decisions."""

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
_REPEATS = 8


class ApprovalActs:
    """approve, reject and their inbox; and the look after families."""

    store: Store

    async def _again(self, act: Callable[[Tx], Awaitable[T]]) -> T:
        """Repeat an act that lost a race; what it read was stale, what it writes will not be."""
        related_ids: set[str] = set()

        async def noting(tx: Tx) -> T:
            answer = await act(tx)
            related_ids.update(tx.related_ids)
            return answer

        for _ in range(_REPEATS):
            try:
                answer = await self.store.write(noting)
            except VersionConflict as conflict:
                lost = conflict
                continue
            if related_ids:
                await children.process_child_events(self._engine, related_ids)
            return answer
        raise lost

    @property
    def _engine(self) -> "Engine":
        return cast("Engine", self)

    async def write(self, act: Callable[[Tx], Awaitable[T]]) -> T:
        """One act in one transaction, repeated when it lost a race; then the families it touched are looked after."""
        return await self._again(act)

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
        """roles: what is known of the person's. digest: of what was looked at; anything else is refused."""
        return await _decided(self._engine, job_id, True, actor, reason, tenant, roles, digest)

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
        return await _decided(self._engine, job_id, False, actor, reason, tenant, roles, digest)

    async def approvals_open(
        self,
        *,
        tenant: str | None = None,
        roles: Sequence[str] | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> list[approvals.Open]:
        """The inbox: what waits for people, oldest first. after: the job id of the last line of the page before."""
        return await self.store.read(lambda tx: approvals.inbox(self._engine, tx, tenant, roles, after, limit))

    async def approvals_of(self, job_id: str, *, tenant: str | None = None) -> list[Approval]:
        """Every question a job ever asked, with its votes."""

        async def act(tx: Tx) -> list[Approval]:
            job = await find(tx, job_id, tenant)
            return await tx.approvals_of(job.id)

        return await self.store.read(act)

    async def process_child_events(self, limit: int = 100) -> list[str]:
        """Look after parents for whom there is news that nobody took; part of every sweep."""
        return await children.process_pending_child_events(self._engine, limit)


async def _decided(
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
