"""`engine.limits`: limits, pauses and tenant quotas; changed while workers run, each change is in the audit log."""

import builtins
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from detent.core.access import Scope
from detent.core.errors import InvalidInput, NotFound, TenantViolation, check_number
from detent.core.limits import MAX_NUMBER, Limit, make_limit
from detent.engine.refusal import audit
from detent.engine.runtime import Service, operators_only, reads, writes
from detent.engine.submit.submission import check_name
from detent.ports.limits import TenantQuota
from detent.ports.tx import Tx

_DECLARED_BY = Scope("app")
"""Who declares the limits of the application's code, in the audit log."""
PAUSABLE = ("queue", "job_type", "tenant")


class Limits(Service):
    """`engine.limits`: limits, pauses of queues, job types and tenants, and tenant quotas."""

    @writes
    async def pause(self, tx: Tx, kind: str, name: str, scope: Scope) -> None:
        """Stop claims of a queue, job type or tenant (kind) until resume. A tenant may pause only itself."""
        self._check_target(kind, name)
        check_name(name, kind)
        if kind not in PAUSABLE:
            raise InvalidInput(f"{kind!r} cannot be paused; use one of {', '.join(PAUSABLE)}", code="PAUSE_INVALID")
        await tx.pauses.pause(kind, name, scope.actor, scope.reason)
        await audit(tx, scope, f"{kind}.pause", name)

    @writes
    async def resume(self, tx: Tx, kind: str, name: str, scope: Scope) -> bool:
        """End a pause; False if there is none."""
        self._check_target(kind, name)
        is_paused = any((pause.kind, pause.name) == (kind, name) for pause in await tx.pauses.list_pauses())
        if is_paused:
            await tx.pauses.resume(kind, name)
            await audit(tx, Scope(scope.actor), f"{kind}.resume", name)
        return is_paused

    def _check_target(self, kind: str, name: str) -> None:
        if self.tenant is not None and (kind, name) != ("tenant", self.tenant):
            raise TenantViolation(f"tenant {self.tenant} has no access to the {kind.replace('_', ' ')} {name!r}")

    @operators_only
    async def set(self, scope: Scope, **options: Any) -> Limit:
        """Set a limit. Applies to: queue=, job_type=, tenant=, key=, per=. Bound: concurrency=, rate=(N, seconds)."""
        return await self._store_limit(_limit(options), scope)

    @writes
    async def _store_limit(self, tx: Tx, limit: Limit, scope: Scope, declared: str | None = None) -> Limit:
        await tx.limits.put_limit(limit, declared)
        await audit(tx, scope, "limit.set", limit.describe(), limit.tenant_id, limit.as_dict())
        return next(stored for stored, _ in await tx.limits.list_limits() if stored.scope == limit.scope)

    @operators_only
    async def declare(self, limits: Sequence[Limit]) -> None:
        """Store the limits declared in code. An operator's change is kept until the declaration itself changes."""
        if not limits:
            return
        declared = {
            limit.scope: text for limit, text in await self._runtime.store.read(lambda tx: tx.limits.list_limits())
        }
        for limit in limits:
            declaration = json.dumps(limit.as_dict(), sort_keys=True)
            if declared.get(limit.scope) != declaration:
                await self._store_limit(limit, _DECLARED_BY, declaration)

    @operators_only
    @reads
    async def list(self, tx: Tx) -> builtins.list[Limit]:
        return [limit for limit, _ in await tx.limits.list_limits()]

    @operators_only
    @writes
    async def remove(self, tx: Tx, /, scope: Scope, **options: Any) -> Limit:
        """Remove the limit that applies to this (queue=, job_type=, tenant=, key=, per=)."""
        requested = _limit({**options, "concurrency": 1})
        limit = next((stored for stored, _ in await tx.limits.list_limits() if stored.scope == requested.scope), None)
        if limit is None:
            target = replace(requested, concurrency=None).describe()
            raise NotFound(
                f"there is no limit on {target}; `detent queues limit list` lists all limits", code="NO_LIMIT"
            )
        await tx.limits.drop_limit(limit.id)
        await audit(tx, scope, "limit.remove", limit.describe(), limit.tenant_id, limit.as_dict())
        return limit

    @operators_only
    async def set_quota(
        self,
        tenant: str,
        scope: Scope,
        *,
        weight: int | None = None,
        max_backlog: int | None = None,
        max_payload: int | None = None,
    ) -> TenantQuota:
        """Set a tenant's claim weight and its quotas for backlog and payload size. None keeps the stored value."""
        check_name(tenant, "tenant")
        values = {"weight": weight, "max_backlog": max_backlog, "max_payload": max_payload}
        changes: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
        for name, value in changes.items():
            check_number(value, name, _LEAST[name], MAX_NUMBER, "QUOTA_INVALID")

        async def act(tx: Tx) -> TenantQuota:
            old = {quota.tenant_id: quota for quota in await tx.quotas.tenants()}.get(tenant, TenantQuota(tenant))
            quota = old._replace(**changes)
            await tx.quotas.put_tenant(quota)
            await audit(tx, scope, "tenant.set_quota", tenant, tenant, quota._asdict())
            return quota

        quota = await self._runtime.run(act)
        self._runtime.quota_cache.clear()
        return quota

    @reads
    async def quotas(self, tx: Tx) -> builtins.list[TenantQuota]:
        """The tenants that have a weight or a quota."""
        return [quota for quota in await tx.quotas.tenants() if self.tenant in (None, quota.tenant_id)]

    @operators_only
    @writes
    async def remove_quota(self, tx: Tx, tenant: str, scope: Scope) -> bool:
        """Remove a tenant's weight and quotas; False if it had none."""
        exists = any(quota.tenant_id == tenant for quota in await tx.quotas.tenants())
        if exists:
            await tx.quotas.drop_tenant(tenant)
            await audit(tx, scope, "tenant.forget", tenant, tenant)
        return exists


_LEAST = {"weight": 1, "max_backlog": 0, "max_payload": 2}


def _limit(options: dict[str, Any]) -> Limit:
    try:
        return make_limit(**options)
    except TypeError as error:
        raise InvalidInput(f"limit(): {error}", code="OPTION_UNKNOWN") from None
