"""What a tenant may leave with us, asked wherever jobs are made: a lock on the agreement, then its two quotas."""

from collections.abc import Iterable

from detent.core.errors import InvalidInput, QuotaExceeded
from detent.core.job import Job
from detent.ports.limits import TenantQuota
from detent.ports.tx import Tx


async def lock_quotas(tx: Tx, tenants: Iterable[str]) -> list[TenantQuota]:
    """The quotas of these tenants; nobody else makes jobs under them until the commit.

    Taken before jobs' rows where it can be: a submit that meets a job of the same key takes them in this order.
    """
    return [quota for tenant in sorted(set(tenants)) if (quota := await tx.lock_quota(tenant))]


def check_payloads(quota: Iterable[TenantQuota], jobs: Iterable[Job]) -> None:
    limits = {one.tenant_id: one.max_payload for one in quota if one.max_payload is not None}
    if not limits:
        return
    for job in jobs:
        limit, size = limits.get(job.tenant_id), len(job.payload.encode())
        if limit is not None and size > limit:
            raise InvalidInput(
                f"the payload has {size} bytes, tenant {job.tenant_id} may use {limit}; pass a reference",
                code="TENANT_PAYLOAD_TOO_LARGE",
                size=size,
                limit=limit,
            )


async def check_backlogs(tx: Tx, quota: Iterable[TenantQuota], made_for: Iterable[str]) -> None:
    """Asked behind the writes: the jobs just made count."""
    tenants = set(made_for)
    for one in quota:
        if one.max_backlog is None or one.tenant_id not in tenants:
            continue
        if await tx.backlog_of(one.tenant_id, one.max_backlog + 1) > one.max_backlog:
            raise QuotaExceeded(
                f"tenant {one.tenant_id} may have {one.max_backlog} jobs waiting and under way; "
                "submit again when some have ended",
                limit=one.max_backlog,
            )
