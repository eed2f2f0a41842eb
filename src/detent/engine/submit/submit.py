"""Submitting jobs: with one INSERT, or in a transaction if idempotency keys or tenant quotas must be checked."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from detent.core.job import Micros
from detent.core.times import SECOND
from detent.ports.limits import TenantQuota
from detent.ports.store import Store
from detent.ports.tx import Tx

from . import quotas
from .prepare import (
    Prepared,
    Submitted,
    SubmittedId,
    needs_transaction,
    prepare,
    prepare_uniform,
    resolve_existing_id,
    submit_batch,
    submit_in_transaction,
)
from .submission import Submission

if TYPE_CHECKING:
    from detent.engine.engine import Engine

T = TypeVar("T")
_QUOTA_CACHE_TIME: Micros = SECOND
"""How long a process caches the tenant quotas, so how late it can notice a quota that another process set."""


class SubmitActs:
    """The engine's submit methods; a mixin of Engine."""

    store: Store
    _quotas: dict[str, TenantQuota] | None = None
    _quotas_at: Micros = 0

    async def _retry_on_conflict(self, act: Callable[[Tx], Awaitable[T]]) -> T:
        raise NameError("_retry_on_conflict")

    async def submit(self, submission: Submission) -> Submitted:
        return (await self.submit_many([submission]))[0]

    async def submit_many(self, submissions: Sequence[Submission]) -> list[Submitted]:
        """Create all of these jobs or none. Raises InvalidInput before anything is written."""
        now = self.store.now()
        return await self._submit([prepare(cast("Engine", self), submission, now) for submission in submissions])

    async def submit_uniform(self, submission: Submission, payloads: Sequence[Any]) -> list[SubmittedId]:
        """Create one job per payload from the same submission: all or none."""
        if not payloads:
            return []
        engine, now, tenant_quotas = cast("Engine", self), self.store.now(), await self._cached_quotas()
        batch = None if submission.tenant_id in tenant_quotas else prepare_uniform(engine, submission, payloads, now)
        if batch is not None:
            present = await self.store.insert(batch)
            return [SubmittedId(job_id, job_id in present) for job_id in batch.ids]
        prepared = [prepare(engine, replace(submission, payload=payload), now) for payload in payloads]
        return [SubmittedId(submitted.job.id, submitted.hit) for submitted in await self._submit(prepared)]

    async def _submit(self, prepared: list[Prepared]) -> list[Submitted]:
        tenant_quotas = await self._cached_quotas()
        if tenant_quotas and any(p.submission.tenant_id in tenant_quotas for p in prepared):
            return await self._retry_on_conflict(lambda tx: submit_within_quotas(tx, prepared))
        if any(needs_transaction(p) for p in prepared):
            return await self._retry_on_conflict(lambda tx: _submit_all(tx, prepared))
        present = await self.store.insert([p.change for p in prepared])
        if not present:
            return [Submitted(p.change.after) for p in prepared]
        return await self.store.read(lambda tx: _resolve_existing_ids(tx, prepared, present))

    async def _cached_quotas(self) -> dict[str, TenantQuota]:
        now = self.store.now()
        if self._quotas is None or not self._quotas_at <= now < self._quotas_at + _QUOTA_CACHE_TIME:
            rows = await self.store.read(lambda tx: tx.quotas.tenants())
            self._quotas = {
                quota.tenant_id: quota for quota in rows if quota.max_backlog is not None or quota.max_payload
            }
            self._quotas_at = now
        return self._quotas


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
