"""Tenant quotas (backlog and payload size), locked and checked in every transaction that creates jobs."""

from collections.abc import Iterable
from dataclasses import dataclass

from detent.core.errors import InvalidInput, QuotaExceeded
from detent.core.job import Job, Micros
from detent.core.times import SECOND
from detent.ports.limits import QuotaTable, TenantQuota
from detent.ports.store import Store

_CACHE_TIME: Micros = SECOND
"""How long a process caches the tenant quotas, so how late it can notice a quota that another process set."""


class QuotaCache:
    """The tenants with quotas, as read from the store within the last second."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._quotas: dict[str, TenantQuota] | None = None
        self._read_at: Micros = 0

    async def quotas(self) -> dict[str, TenantQuota]:
        now = self._store.now()
        if self._quotas is None or not self._read_at <= now < self._read_at + _CACHE_TIME:
            rows = await self._store.read(lambda tx: tx.quotas.tenants())
            self._quotas = {
                quota.tenant_id: quota for quota in rows if quota.max_backlog is not None or quota.max_payload
            }
            self._read_at = now
        return self._quotas

    def clear(self) -> None:
        self._quotas = None


async def lock_quotas(quotas: QuotaTable, tenants: Iterable[str]) -> list[TenantQuota]:
    """Lock and return these tenants' quotas; no other transaction creates jobs under them until the commit.

    Lock order: quotas before job rows where possible, because a submit with a taken key locks them in this order.
    """
    return await quotas.lock_quotas(sorted(set(tenants)))


def check_payloads(tenant_quotas: Iterable[TenantQuota], jobs: Iterable[Job]) -> None:
    limits = {quota.tenant_id: quota.max_payload for quota in tenant_quotas if quota.max_payload is not None}
    if not limits:
        return
    for job in jobs:
        limit, size = limits.get(job.tenant_id), len(job.payload.encode())
        if limit is not None and size > limit:
            message = f"the payload has {size} bytes, tenant {job.tenant_id} may use {limit}; pass a reference"
            raise InvalidInput(message, code="TENANT_PAYLOAD_TOO_LARGE", size=size, limit=limit)


@dataclass(slots=True)
class Room:
    """How many more jobs fit into the backlog of a tenant; error: the refusal of those that do not."""

    places: int
    error: QuotaExceeded


async def room_in_backlogs(quotas: QuotaTable, tenant_quotas: Iterable[TenantQuota]) -> dict[str, Room]:
    """Tenant -> room, for tenants with a backlog quota. It stays exact while their quotas are locked."""
    return {
        quota.tenant_id: Room(
            max(0, quota.max_backlog - await quotas.backlog_of(quota.tenant_id, quota.max_backlog)), _exceeded(quota)
        )
        for quota in tenant_quotas
        if quota.max_backlog is not None
    }


async def check_backlogs(
    quotas: QuotaTable, tenant_quotas: Iterable[TenantQuota], tenants_with_new_jobs: Iterable[str]
) -> None:
    """Call this after the inserts: the new jobs count towards the backlog."""
    tenants = set(tenants_with_new_jobs)
    for quota in tenant_quotas:
        if quota.max_backlog is None or quota.tenant_id not in tenants:
            continue
        if await quotas.backlog_of(quota.tenant_id, quota.max_backlog + 1) > quota.max_backlog:
            raise _exceeded(quota)


def _exceeded(quota: TenantQuota) -> QuotaExceeded:
    return QuotaExceeded(
        f"tenant {quota.tenant_id} may have {quota.max_backlog} unfinished jobs; submit again when some have finished",
        limit=quota.max_backlog,
    )
