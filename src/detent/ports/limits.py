"""What the engine needs from a store to keep limits, shares and quotas; part of every transaction."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from detent.core.job import Job, Micros
from detent.core.limits import Limit, Meter


class TenantQuota(NamedTuple):
    """What is agreed with a tenant. None: no quota of that kind."""

    tenant_id: str
    weight: int = 1
    max_backlog: int | None = None
    max_payload: int | None = None


class LimitTx(Protocol):
    """The acts of a transaction on limits and on what is agreed with tenants."""

    async def limits(self) -> list[tuple[Limit, str | None]]:
        """Every limit, and what the application's code said of it, as text, if it is declared there."""
        ...

    async def forget_meters(self, before: Micros) -> int:
        """Drop counts by subject that were not touched since; how many."""
        ...

    async def put_limit(self, limit: Limit, declared: str | None = None) -> None: ...

    async def drop_limit(self, limit_id: int) -> None: ...

    async def gauges(self, jobs: Sequence[Job]) -> list[tuple[Meter, int]]:
        """Every limit that concerns these jobs, as it stands: (meter, how many it counts as held)."""
        ...

    async def late(self, limit: int, contracts: Sequence[str]) -> list[Job]:
        """Jobs nobody holds whose deadline has passed."""
        ...

    async def tenants(self) -> list[TenantQuota]: ...

    async def lock_quota(self, tenant_id: str) -> TenantQuota | None:
        """The quotas of a tenant that has any; nobody else makes jobs for it until the commit."""
        ...

    async def backlog_of(self, tenant_id: str, at_most: int) -> int:
        """How many jobs of a tenant are due, come later or are held, counted up to a bound."""
        ...

    async def put_tenant(self, terms: TenantQuota) -> None: ...

    async def drop_tenant(self, tenant_id: str) -> None: ...
