"""Limits and tenant quotas, as a transaction stores them."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from detent.core.job import Job, Micros
from detent.core.limits import Limit, Meter


class TenantQuota(NamedTuple):
    """Weight and quotas of a tenant. None: no quota of that kind."""

    tenant_id: str
    weight: int = 1
    max_backlog: int | None = None
    max_payload: int | None = None


class LimitTx(Protocol):
    """Limits and tenant quotas within a transaction."""

    async def limits(self) -> list[tuple[Limit, str | None]]:
        """Every limit with its declaration in application code, as text, or None."""
        ...

    async def drop_idle_meters(self, before: Micros) -> int:
        """Delete meters that were not used since; returns their number."""
        ...

    async def put_limit(self, limit: Limit, declared: str | None = None) -> None: ...

    async def drop_limit(self, limit_id: int) -> None: ...

    async def meters_of(self, jobs: Sequence[Job]) -> list[tuple[Meter, int]]:
        """(meter, number of held jobs) of every limit that applies to these jobs."""
        ...

    async def past_deadline(self, limit: int, contracts: Sequence[str]) -> list[Job]:
        """Jobs that are not leased and whose start deadline has passed."""
        ...

    async def tenants(self) -> list[TenantQuota]: ...

    async def lock_quotas(self, tenants: Sequence[str]) -> list[TenantQuota]:
        """The quota rows of tenants, locked: other submissions for them wait for the commit."""
        ...

    async def backlog_of(self, tenant_id: str, at_most: int) -> int:
        """The number of unfinished jobs of a tenant, counted up to `at_most`."""
        ...

    async def put_tenant(self, quota: TenantQuota) -> None: ...

    async def drop_tenant(self, tenant_id: str) -> None: ...
