"""Submitting jobs: with one INSERT, or in a transaction if idempotency keys or tenant quotas must be checked."""

from detent.engine.runtime import Runtime
from detent.ports.tx import Tx

from . import quotas
from .prepare import (
    Prepared,
    Submitted,
    needs_transaction,
    resolve_existing_id,
    submit_batch,
    submit_in_transaction,
)


async def submit_prepared(runtime: Runtime, prepared: list[Prepared]) -> list[Submitted]:
    """Create all of these jobs or none."""
    tenant_quotas = await runtime.quota_cache.quotas()
    if tenant_quotas and any(p.submission.tenant_id in tenant_quotas for p in prepared):
        return await runtime.run(lambda tx: submit_within_quotas(tx, prepared))
    if any(needs_transaction(p) for p in prepared):
        return await runtime.run(lambda tx: _submit_all(tx, prepared))
    present = await runtime.store.insert([p.change for p in prepared])
    if not present:
        return [Submitted(p.change.after) for p in prepared]
    return await runtime.store.read(lambda tx: _resolve_existing_ids(tx, prepared, present))


async def submit_within_quotas(tx: Tx, prepared: list[Prepared]) -> list[Submitted]:
    """Submit, and check the quotas of the jobs' tenants. A hit creates no job, so the backlog quota ignores it."""
    tenant_quotas = await quotas.lock_quotas(tx.quotas, (p.submission.tenant_id for p in prepared))
    quotas.check_payloads(tenant_quotas, (p.change.after for p in prepared))
    submitted = await _submit_all(tx, prepared)
    await quotas.check_backlogs(tx.quotas, tenant_quotas, (s.job.tenant_id for s in submitted if not s.hit))
    return submitted


async def _submit_all(tx: Tx, prepared: list[Prepared]) -> list[Submitted]:
    submitted = await submit_batch(tx, prepared) if len(prepared) > 1 else None
    return submitted or [await submit_in_transaction(tx, p) for p in prepared]


async def _resolve_existing_ids(tx: Tx, prepared: list[Prepared], present: set[str]) -> list[Submitted]:
    return [
        await resolve_existing_id(tx.jobs, p) if p.change.after.id in present else Submitted(p.change.after)
        for p in prepared
    ]
