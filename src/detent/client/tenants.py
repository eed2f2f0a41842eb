"""TenantApp: an application limited to one tenant, made by `app.for_tenant("acme")`."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from detent.core.errors import TenantViolation
from detent.core.job import Job
from detent.core.options.job_options import UsingOptions
from detent.engine import Engine, Submission
from detent.engine.submit.submission import DEFAULT_TENANT, check_name
from detent.ports.listing import Filter

from .handles import Handle
from .job import JobDefinition, P, R

if TYPE_CHECKING:
    from .app import Detent


class TenantJob(JobDefinition[P, R]):
    """A job definition that always enqueues for one tenant, made by `TenantApp.job`."""

    def __init__(self, definition: JobDefinition[P, R], tenant: str, using: UsingOptions | None = None) -> None:
        super().__init__(definition.app, definition.handler, using or {**definition._using, "tenant": tenant})
        self._definition, self._tenant = definition, tenant

    def using(self, **options: Unpack[UsingOptions]) -> "TenantJob[P, R]":
        """This job with other options for the next enqueue; see `JobDefinition.using`. `tenant` cannot be another."""
        return TenantJob(self._definition, self._tenant, super().using(**options)._using)

    def submission(self, payload: dict[str, Any]) -> Submission:
        """The request for a new job of this tenant. Raises TenantViolation if `using` named another tenant."""
        tenant = self._using.get("tenant", DEFAULT_TENANT)
        if tenant not in (DEFAULT_TENANT, self._tenant):
            raise TenantViolation(
                f"tenant {self._tenant} cannot enqueue for tenant {tenant}; leave out tenant= or name your own"
            )
        return replace(super().submission(payload), tenant_id=self._tenant)


class TenantApp:
    """An application limited to one tenant: it enqueues for this tenant and sees only its jobs.

        acme = app.for_tenant("acme")
        handle = await acme.job(charge).enqueue(order_id=7)

    Jobs of other tenants do not exist for it (NotFound); what names another tenant raises TenantViolation.
    `app` is the application, `tenant` the tenant's name.
    """

    def __init__(self, app: "Detent", tenant: str) -> None:
        self.app = app
        self.tenant = tenant

    def job(self, definition: JobDefinition[P, R]) -> TenantJob[P, R]:
        """A declared job, enqueued for this tenant: `await acme.job(charge).enqueue(order_id=7)`."""
        return TenantJob(definition, self.tenant)

    async def ready(self) -> Engine:
        """The engine limited to this tenant: every operation that a tenant may use."""
        check_name(self.tenant, "tenant")
        return (await self.app.ready()).scoped(tenant=self.tenant)

    async def handle(self, job_id: str) -> Handle[Any]:
        """The handle of a job of this tenant. Raises NotFound, also for a job of another tenant.

        The tenant is checked here and not again by the handle, because a job never changes its tenant.
        """
        await (await self.ready()).jobs.get(job_id)
        return await self.app.handle(job_id)

    async def jobs(self, filter: Filter | None = None) -> list[Job]:
        """Jobs of this tenant that match the filter, newest first, at most `filter.limit` (50)."""
        return await (await self.ready()).jobs.list(filter or Filter())
