"""The engine's acts of submitting: alone in one statement, or in a transaction where keys or quotas ask for one."""

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
    Made,
    Prepared,
    Submitted,
    needs_transaction,
    prepare,
    prepare_uniform,
    repeated,
    submit_in,
    submit_together,
)
from .submission import Submission

if TYPE_CHECKING:
    from detent.engine.engine import Engine

T = TypeVar("T")
_KNOWN_FOR: Micros = SECOND
"""How long a process may not have heard of a quota that was set by another one."""


class SubmitActs:
    """Part of the engine."""

    store: Store
    _quotas: dict[str, TenantQuota] | None = None
    _quotas_at: Micros = 0

    async def _again(self, act: Callable[[Tx], Awaitable[T]]) -> T:
        raise NameError("_again")

    async def submit(self, ask: Submission) -> Submitted:
        return (await self.submit_many([ask]))[0]

    async def submit_many(self, asks: Sequence[Submission]) -> list[Submitted]:
        """All or none. Bad input is refused before anything is written."""
        now = self.store.now()
        return await self._submit([prepare(cast("Engine", self), ask, now) for ask in asks])

    async def submit_uniform(self, ask: Submission, payloads: Sequence[Any]) -> list[Made]:
        """The same request once for each payload: all or none."""
        if not payloads:
            return []
        engine, now, known = cast("Engine", self), self.store.now(), await self._known_quotas()
        alike = None if ask.tenant_id in known else prepare_uniform(engine, ask, payloads, now)
        if alike is not None:
            present = await self.store.insert(alike)
            return [Made(job_id, job_id in present) for job_id in alike.ids]
        each = [prepare(engine, replace(ask, payload=payload), now) for payload in payloads]
        return [Made(one.job.id, one.hit) for one in await self._submit(each)]

    async def _submit(self, prepared: list[Prepared]) -> list[Submitted]:
        known = await self._known_quotas()
        if known and any(p.ask.tenant_id in known for p in prepared):
            return await self._again(lambda tx: submit_within(tx, prepared))
        if any(needs_transaction(p) for p in prepared):
            return await self._again(lambda tx: _submit_each(tx, prepared))
        present = await self.store.insert([p.change for p in prepared])
        if not present:
            return [Submitted(p.change.after) for p in prepared]
        return await self.store.read(lambda tx: _told_again(tx, prepared, present))

    async def _known_quotas(self) -> dict[str, TenantQuota]:
        now = self.store.now()
        if self._quotas is None or not self._quotas_at <= now < self._quotas_at + _KNOWN_FOR:
            quota = await self.store.read(lambda tx: tx.tenants())
            self._quotas = {one.tenant_id: one for one in quota if one.max_backlog is not None or one.max_payload}
            self._quotas_at = now
        return self._quotas


async def submit_within(tx: Tx, prepared: list[Prepared]) -> list[Submitted]:
    """Submit under the quotas of these tenants. A hit makes nothing, so it is answered whatever the quota says."""
    quota = await quotas.lock_quotas(tx, (p.ask.tenant_id for p in prepared))
    quotas.check_payloads(quota, (p.change.after for p in prepared))
    made = await _submit_each(tx, prepared)
    await quotas.check_backlogs(tx, quota, (one.job.tenant_id for one in made if not one.hit))
    return made


async def _submit_each(tx: Tx, prepared: list[Prepared]) -> list[Submitted]:
    return await submit_together(tx, prepared) or [await submit_in(tx, p) for p in prepared]


async def _told_again(tx: Tx, prepared: list[Prepared], present: set[str]) -> list[Submitted]:
    return [await repeated(tx, p) if p.change.after.id in present else Submitted(p.change.after) for p in prepared]
