"""One tenant's view of the engine: every read and write within it, all else is TENANT_SCOPE_VIOLATION."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from detent.core.errors import InvalidInput, TenantViolation
from detent.core.job import DeadLetter, Job, Micros
from detent.engine.reads.why import Why, why
from detent.engine.submit.prepare import Made, Submitted
from detent.engine.submit.submission import Submission, check_name
from detent.ports.access import Audit
from detent.ports.limits import TenantQuota
from detent.ports.listing import Filter

from . import dead_letters as dead_letter_acts

if TYPE_CHECKING:
    from detent.engine.engine import Engine
    from detent.engine.reads.views import History

UNSAID = "default"
"""The tenant of a submission that names none; within a tenant it is that tenant's."""


class TenantEngine:
    """What a tenant may do. Claiming, settling, pausing, pruning and limits are the operator's, and are not here."""

    def __init__(self, engine: "Engine", tenant: str) -> None:
        check_name(tenant, "tenant")
        self.engine = engine
        self.tenant = tenant

    async def submit(self, ask: Submission) -> Submitted:
        return (await self.submit_many([ask]))[0]

    async def submit_many(self, asks: Sequence[Submission]) -> list[Submitted]:
        return await self.engine.submit_many([await self._own(ask) for ask in asks])

    async def submit_uniform(self, ask: Submission, payloads: Sequence[Any]) -> list[Made]:
        return await self.engine.submit_uniform(await self._own(ask), payloads)

    async def _own(self, ask: Submission) -> Submission:
        if ask.tenant_id not in (UNSAID, self.tenant):
            raise self._crossing(f"a job of tenant {ask.tenant_id}")
        if ask.requeued_from is not None or ask.effect_root is not None:
            raise InvalidInput("a job is linked to another by requeueing it, not by hand", code="LINK_INVALID")
        if ask.parent_id is not None:
            await self.job(ask.parent_id)
        return replace(ask, tenant_id=self.tenant)

    def _crossing(self, what: str) -> TenantViolation:
        return TenantViolation(f"{what} is out of reach for tenant {self.tenant}; use your own")

    def _within(self, filter: Filter) -> Filter:
        if filter.tenant_id not in (None, self.tenant):
            raise self._crossing(f"the list of tenant {filter.tenant_id}")
        return replace(filter, tenant_id=self.tenant)

    async def job(self, job_id: str) -> Job:
        return await self.engine.job(job_id, tenant=self.tenant)

    async def jobs(self, filter: Filter | None = None) -> list[Job]:
        return await self.engine.jobs(self._within(filter or Filter()))

    async def history(self, job_id: str) -> "History":
        return await self.engine.history(job_id, tenant=self.tenant)

    async def why(self, job_id: str) -> Why:
        return await why(self.engine, job_id, self.tenant)

    async def signal(self, job_id: str, name: str, data: Any = None, *, actor: str | None = None) -> tuple[Job, bool]:
        return await self.engine.signal(job_id, name, data, actor=actor, tenant=self.tenant)

    async def cancel(self, job_id: str, *, actor: str, reason: str | None = None, force: bool = False) -> Job:
        return await self.engine.cancel(job_id, actor=actor, reason=reason, tenant=self.tenant, force=force)

    async def abort(self, job_id: str, *, actor: str, reason: str | None = None) -> Job:
        return await self.engine.abort(job_id, actor=actor, reason=reason, tenant=self.tenant)

    async def reopen(self, job_id: str, *, actor: str, reason: str | None = None) -> Job:
        return await self.engine.reopen(job_id, actor=actor, reason=reason, tenant=self.tenant)

    async def approve(self, job_id: str, *, actor: str, reason: str | None = None) -> Job:
        return await self.engine.approve(job_id, actor=actor, reason=reason, tenant=self.tenant)

    async def reject(self, job_id: str, *, actor: str, reason: str | None = None) -> Job:
        return await self.engine.reject(job_id, actor=actor, reason=reason, tenant=self.tenant)

    async def requeue_job(self, job_id: str, *, actor: str, reason: str | None = None, **more: Any) -> Submitted:
        return await self.engine.requeue_job(job_id, actor=actor, reason=reason, tenant=self.tenant, **more)

    async def requeue(self, dlq_id: str, *, actor: str, reason: str | None = None, **more: Any) -> Submitted:
        return await self.engine.requeue(dlq_id, actor=actor, reason=reason, tenant=self.tenant, **more)

    async def discard(self, dlq_id: str, *, person: str, reason: str | None) -> dead_letter_acts.Discard:
        return await self.engine.discard(dlq_id, person=person, reason=reason, tenant=self.tenant)

    async def dead_letter(self, dlq_id: str) -> DeadLetter:
        return await self.engine.dead_letter(dlq_id, tenant=self.tenant)

    async def dead_letters(self, filter: Filter | None = None) -> list[DeadLetter]:
        return await self.engine.dead_letters(self._within(filter or Filter()))

    async def quota(self) -> TenantQuota:
        """What was agreed with this tenant."""
        return next(
            (one for one in await self.engine.tenant_quotas() if one.tenant_id == self.tenant), TenantQuota(self.tenant)
        )

    async def audit(self, limit: int = 100) -> list[tuple[int, Micros, Audit]]:
        """What people did to things of this tenant, among the last so many entries of all."""
        return [row for row in await self.engine.audit(limit) if row[2].tenant_id == self.tenant]
