"""Limits and tenant quotas: they can be changed while workers run; each change is in the audit log."""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from detent.core.errors import InvalidInput, NotFound
from detent.core.limits import MAX_NUMBER, Limit, make_limit
from detent.engine.submit.submission import check_name
from detent.ports.access import Audit
from detent.ports.limits import TenantQuota
from detent.ports.store import Store
from detent.ports.tx import Tx

if TYPE_CHECKING:
    from detent.engine.engine import Engine

    from .tenancy import TenantEngine

T = TypeVar("T")
_DECLARED_BY = "app"
"""The audit log's actor for limits that the application declares in code."""


class LimitActs:
    """The engine's methods for limits and tenant quotas; a mixin of Engine."""

    store: Store
    _quotas: dict[str, TenantQuota] | None

    async def _retry_on_conflict(self, act: Callable[[Tx], Awaitable[T]]) -> T:
        raise NameError("_retry_on_conflict")

    def for_tenant(self, tenant: str) -> "TenantEngine":
        """The engine limited to one tenant; access to another tenant's jobs raises TENANT_SCOPE_VIOLATION."""
        from .tenancy import TenantEngine

        return TenantEngine(cast("Engine", self), tenant)

    async def set_limit(self, *, actor: str, reason: str | None = None, **options: Any) -> Limit:
        """Set a limit. Scope: queue=, job_type=, tenant=, key=, per=. Bound: concurrency=, rate=(N, seconds)."""
        return await self._store_limit(_limit(options), actor, reason)

    async def _store_limit(self, limit: Limit, actor: str, reason: str | None, declared: str | None = None) -> Limit:
        async def act(tx: Tx) -> Limit:
            await tx.limits.put_limit(limit, declared)
            await tx.audit.add_audit(
                Audit(actor, "limit.set", limit.describe(), limit.tenant_id, reason, limit.as_dict())
            )
            return next(stored for stored, _ in await tx.limits.list_limits() if stored.scope == limit.scope)

        return await self._retry_on_conflict(act)

    async def declare_limits(self, limits: Sequence[Limit]) -> None:
        """Store the limits declared in code. An operator's change is kept until the declaration itself changes."""
        if not limits:
            return
        declared = {limit.scope: text for limit, text in await self.store.read(lambda tx: tx.limits.list_limits())}
        for limit in limits:
            declaration = json.dumps(limit.as_dict(), sort_keys=True)
            if declared.get(limit.scope) != declaration:
                await self._store_limit(limit, _DECLARED_BY, None, declaration)

    async def limits(self) -> list[Limit]:
        return [limit for limit, _ in await self.store.read(lambda tx: tx.limits.list_limits())]

    async def remove_limit(self, *, actor: str, reason: str | None = None, **options: Any) -> Limit:
        """Remove the limit with this scope (queue=, job_type=, tenant=, key=, per=)."""
        requested = _limit({**options, "concurrency": 1})

        async def act(tx: Tx) -> Limit:
            limit = next(
                (stored for stored, _ in await tx.limits.list_limits() if stored.scope == requested.scope), None
            )
            if limit is None:
                scope = replace(requested, concurrency=None).describe()
                raise NotFound(
                    f"there is no limit on {scope}; `detent queues limit list` lists all limits", code="NO_LIMIT"
                )
            await tx.limits.drop_limit(limit.id)
            await tx.audit.add_audit(Audit(actor, "limit.remove", limit.describe(), limit.tenant_id, reason))
            return limit

        return await self._retry_on_conflict(act)

    async def set_quota(
        self,
        tenant: str,
        *,
        actor: str,
        weight: int | None = None,
        max_backlog: int | None = None,
        max_payload: int | None = None,
        reason: str | None = None,
    ) -> TenantQuota:
        """Set a tenant's claim weight and its quotas for backlog and payload size. None keeps the stored value."""
        check_name(tenant, "tenant")
        for name, value, least in (
            ("weight", weight, 1),
            ("max_backlog", max_backlog, 0),
            ("max_payload", max_payload, 2),
        ):
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_NUMBER
            ):
                raise InvalidInput(
                    f"{name} must be a whole number from {least} to {MAX_NUMBER}", code="QUOTA_INVALID", field=name
                )

        async def act(tx: Tx) -> TenantQuota:
            old = {quota.tenant_id: quota for quota in await tx.quotas.tenants()}.get(tenant, TenantQuota(tenant))
            values = {"weight": weight, "max_backlog": max_backlog, "max_payload": max_payload}
            changes: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
            quota = old._replace(**changes)
            await tx.quotas.put_tenant(quota)
            await tx.audit.add_audit(Audit(actor, "tenant.set_quota", tenant, tenant, reason, quota._asdict()))
            return quota

        quota = await self._retry_on_conflict(act)
        self._quotas = None
        return quota

    async def tenant_quotas(self) -> list[TenantQuota]:
        return await self.store.read(lambda tx: tx.quotas.tenants())

    async def remove_quota(self, tenant: str, *, actor: str, reason: str | None = None) -> bool:
        """Remove a tenant's weight and quotas; False if it had none."""

        async def act(tx: Tx) -> bool:
            exists = any(quota.tenant_id == tenant for quota in await tx.quotas.tenants())
            if exists:
                await tx.quotas.drop_tenant(tenant)
                await tx.audit.add_audit(Audit(actor, "tenant.forget", tenant, tenant, reason))
            return exists

        return await self._retry_on_conflict(act)


def _limit(options: dict[str, Any]) -> Limit:
    try:
        return make_limit(**options)
    except TypeError as error:
        raise InvalidInput(f"limit(): {error}", code="OPTION_UNKNOWN") from None
