"""Limits, tenant quotas and pauses, as a transaction stores them."""

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


class DeclaredLimit(NamedTuple):
    """A limit with its declaration in application code, as text, or None."""

    limit: Limit
    declared: str | None


class MeterUse(NamedTuple):
    """A meter, and the number of held jobs that it counts."""

    meter: Meter
    held: int


class Pause(NamedTuple):
    kind: str
    name: str
    actor: str
    reason: str | None
    at: Micros


class LimitTable(Protocol):
    async def list_limits(self) -> list[DeclaredLimit]: ...

    async def put_limit(self, limit: Limit, declared: str | None = None) -> None:
        """Insert a limit, or change the numbers of the limit with this scope; it is counted from the next claim on."""
        ...

    async def drop_limit(self, limit_id: int) -> None: ...

    async def meters_of(self, jobs: Sequence[Job]) -> list[MeterUse]:
        """The meters of every limit that applies to these jobs."""
        ...

    async def shared_rate_meters(self) -> list[tuple[str, Meter]]:
        """The meters of rate limits that do not depend on tenant or limit key, with their subjects."""
        ...

    async def drop_idle_meters(self, before: Micros) -> int:
        """Delete meters that were not used since; returns their number."""
        ...


class QuotaTable(Protocol):
    async def tenants(self) -> list[TenantQuota]: ...

    async def lock_quotas(self, tenants: Sequence[str]) -> list[TenantQuota]:
        """The quota rows of tenants, locked: other submissions for them wait for the commit."""
        ...

    async def backlog_of(self, tenant_id: str, at_most: int) -> int:
        """The number of unfinished jobs of a tenant, counted up to `at_most`."""
        ...

    async def put_tenant(self, quota: TenantQuota) -> None: ...
    async def drop_tenant(self, tenant_id: str) -> None: ...


class PauseTable(Protocol):
    async def pause(self, kind: str, name: str, actor: str, reason: str | None) -> None: ...
    async def resume(self, kind: str, name: str) -> None: ...
    async def list_pauses(self) -> list[Pause]: ...
