"""The engine limited to one tenant: reads and writes of other tenants' jobs raise TENANT_SCOPE_VIOLATION."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from detent.core.errors import InvalidInput, TenantViolation
from detent.core.job import DeadLetter, Job
from detent.engine.reads.why import Why, why
from detent.engine.submit.prepare import Submitted, SubmittedId
from detent.engine.submit.submission import Submission, check_name
from detent.ports.access import AuditRow
from detent.ports.limits import TenantQuota
from detent.ports.listing import Filter

from . import dead_letters as dead_letter_acts

if TYPE_CHECKING:
    from detent.engine.engine import Engine
    from detent.engine.reads.views import History

DEFAULT_TENANT = "default"
"""The tenant_id of a submission that names none; TenantEngine replaces it by its tenant."""


class TenantEngine:
    """The operations a tenant may use. Claim, settle, pause, prune and limits are for operators and not included."""

    def __init__(self, engine: "Engine", tenant: str) -> None:
        check_name(tenant, "tenant")
        self.engine = engine
        self.tenant = tenant

    async def submit(self, submission: Submission) -> Submitted:
        return (await self.submit_many([submission]))[0]

    async def submit_many(self, submissions: Sequence[Submission]) -> list[Submitted]:
        return await self.engine.submit_many([await self._scoped(submission) for submission in submissions])

    async def submit_uniform(self, submission: Submission, payloads: Sequence[Any]) -> list[SubmittedId]:
        return await self.engine.submit_uniform(await self._scoped(submission), payloads)

    async def _scoped(self, submission: Submission) -> Submission:
        if submission.tenant_id not in (DEFAULT_TENANT, self.tenant):
            raise self._violation(f"a job of tenant {submission.tenant_id}")
        if submission.requeued_from is not None or submission.effect_root is not None:
            raise InvalidInput(
                "requeued_from and effect_root cannot be set in a submission; requeue the job instead",
                code="LINK_INVALID",
            )
        if submission.parent_id is not None:
            await self.job(submission.parent_id)
        return replace(submission, tenant_id=self.tenant)

    def _violation(self, what: str) -> TenantViolation:
        return TenantViolation(f"tenant {self.tenant} has no access to {what}")

    def _within(self, filter: Filter) -> Filter:
        if filter.tenant_id not in (None, self.tenant):
            raise self._violation(f"the list of tenant {filter.tenant_id}")
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
        """This tenant's weight and quotas."""
        tenant_quotas = await self.engine.tenant_quotas()
        return next((quota for quota in tenant_quotas if quota.tenant_id == self.tenant), TenantQuota(self.tenant))

    async def audit(self, limit: int = 100) -> list[AuditRow]:
        """This tenant's audit entries among the last `limit` entries of all tenants."""
        return [row for row in await self.engine.audit(limit) if row[2].tenant_id == self.tenant]
