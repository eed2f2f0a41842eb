"""An application seen by one tenant: `app.for_tenant("acme")` submits and looks within that tenant only."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from detent.core.errors import TenantViolation
from detent.core.job import Job
from detent.engine.control.tenancy import UNSAID, TenantEngine
from detent.ports.listing import Filter

from .app import Detent, P, R
from .handles import Handle
from .job import JobDefinition
from .options import Using, UsingOptions

if TYPE_CHECKING:
    from detent.engine import Submission


class TenantJob(JobDefinition[P, R]):
    """A job definition that submits for one tenant, whatever it is told."""

    def __init__(self, definition: JobDefinition[P, R], tenant: str, using: Using | None = None) -> None:
        super().__init__(definition.app, definition.handler, using or replace(definition._using, tenant=tenant))
        self._definition, self._tenant = definition, tenant

    def using(self, **options: Unpack[UsingOptions]) -> "TenantJob[P, R]":
        return TenantJob(self._definition, self._tenant, super().using(**options)._using)

    def submission(self, payload: dict[str, Any]) -> "Submission":
        asked = self._using.tenant
        if asked not in (UNSAID, self._tenant):
            raise TenantViolation(f"a job of tenant {asked} is out of reach for tenant {self._tenant}; use your own")
        return replace(super().submission(payload), tenant_id=self._tenant)


class TenantApp:
    """`app.for_tenant(name)`."""

    def __init__(self, app: Detent, tenant: str) -> None:
        self.app = app
        self.tenant = tenant

    def job(self, definition: JobDefinition[P, R]) -> TenantJob[P, R]:
        """The same job, enqueued for this tenant: `acme.job(charge).enqueue(order_id=7)`."""
        return TenantJob(definition, self.tenant)

    async def ready(self) -> TenantEngine:
        """Every act, within this tenant."""
        return TenantEngine(await self.app.ready(), self.tenant)

    async def handle(self, job_id: str) -> Handle[Any]:
        """A job of this tenant; whose it is never changes, so looking once is enough."""
        await (await self.ready()).job(job_id)
        return await self.app.handle(job_id)

    async def jobs(self, filter: Filter | None = None) -> list[Job]:
        return await (await self.ready()).jobs(filter)
