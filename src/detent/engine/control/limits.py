"""The engine's acts on limits, and on what is agreed with tenants: set while everything runs, audited."""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from detent.core.errors import InvalidInput, NotFound
from detent.core.job import Micros
from detent.core.limits import MAX_NUMBER, Limit, Meter, limit_of
from detent.engine.submit.submission import check_name
from detent.ports.access import Audit
from detent.ports.limits import TenantQuota
from detent.ports.store import Store
from detent.ports.tx import Tx

if TYPE_CHECKING:
    from detent.engine.engine import Engine

    from .tenancy import TenantEngine

T = TypeVar("T")
_DECLARED = "app"
"""Who sets what the application's code declares."""


class LimitActs:
    """Mixed into the engine."""

    store: Store
    _quotas: dict[str, TenantQuota] | None

    async def _again(self, act: Callable[[Tx], Awaitable[T]]) -> T:
        raise NameError("_again")

    def for_tenant(self, tenant: str) -> "TenantEngine":
        """Every act within one tenant; what is another's is TENANT_SCOPE_VIOLATION."""
        from .tenancy import TenantEngine

        return TenantEngine(cast("Engine", self), tenant)

    async def limit(self, *, actor: str, reason: str | None = None, **said: Any) -> Limit:
        """Set a limit: queue=, job_type=, tenant=, key= (what it bounds), per=, concurrency=, rate=(N, seconds)."""
        return await self._set_limit(_limit(said), actor, reason)

    async def _set_limit(self, limit: Limit, actor: str, reason: str | None, declared: str | None = None) -> Limit:
        async def act(tx: Tx) -> Limit:
            await tx.put_limit(limit, declared)
            told = limit.as_dict()
            await tx.add_audit(Audit(actor, "limit.set", limit.describe(), limit.tenant_id, reason, told))
            return next(one for one, _ in await tx.limits() if one.scope == limit.scope)

        return await self._again(act)

    async def declare_limits(self, limits: Sequence[Limit]) -> None:
        """What code declares holds until an operator says otherwise; code that says something new holds again."""
        if not limits:
            return
        known = {limit.scope: declared for limit, declared in await self.store.read(lambda tx: tx.limits())}
        for limit in limits:
            said = json.dumps(limit.as_dict(), sort_keys=True)
            if known.get(limit.scope) != said:
                await self._set_limit(limit, _DECLARED, None, said)

    async def limits(self) -> list[Limit]:
        return [limit for limit, _ in await self.store.read(lambda tx: tx.limits())]

    async def remove_limit(self, *, actor: str, reason: str | None = None, **said: Any) -> Limit:
        """Take a limit away, named by what it bounds."""
        scope = _limit({**said, "concurrency": 1}).scope

        async def act(tx: Tx) -> Limit:
            found = next((limit for limit, _ in await tx.limits() if limit.scope == scope), None)
            if found is None:
                asked = replace(_limit({**said, "concurrency": 1}), concurrency=None).describe()
                raise NotFound(f"there is no limit on {asked}; `detent queues limit list` shows all", code="NO_LIMIT")
            await tx.drop_limit(found.id)
            await tx.add_audit(Audit(actor, "limit.remove", found.describe(), found.tenant_id, reason))
            return found

        return await self._again(act)

    async def gauges(self, job_id: str) -> list[tuple[Meter, int, Micros]]:
        """The limits that concern a job, how many each counts as held, and the moment that was read at."""

        async def act(tx: Tx) -> list[tuple[Meter, int, Micros]]:
            found = (await tx.lock([job_id])).get(job_id)
            return [(meter, held, tx.now) for meter, held in await tx.gauges([found])] if found else []

        return await self.store.read(act)

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
        """What a tenant is given: its weight beside others, quotas for its backlog and payloads. None leaves as is."""
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
                    f"{name} must be a whole number of at least {least}", code="QUOTA_INVALID", field=name
                )

        async def act(tx: Tx) -> TenantQuota:
            old = {quota.tenant_id: quota for quota in await tx.tenants()}.get(tenant, TenantQuota(tenant))
            said = {"weight": weight, "max_backlog": max_backlog, "max_payload": max_payload}
            known: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
            quota = old._replace(**known)
            await tx.put_tenant(quota)
            await tx.add_audit(Audit(actor, "tenant.set_quota", tenant, tenant, reason, quota._asdict()))
            return quota

        quota = await self._again(act)
        self._quotas = None
        return quota

    async def tenant_quotas(self) -> list[TenantQuota]:
        return await self.store.read(lambda tx: tx.tenants())

    async def remove_quota(self, tenant: str, *, actor: str, reason: str | None = None) -> bool:
        """Forget weight and quotas of a tenant; False: there were none."""

        async def act(tx: Tx) -> bool:
            known = any(quota.tenant_id == tenant for quota in await tx.tenants())
            if known:
                await tx.drop_tenant(tenant)
                await tx.add_audit(Audit(actor, "tenant.forget", tenant, tenant, reason))
            return known

        return await self._again(act)


def _limit(said: dict[str, Any]) -> Limit:
    try:
        return limit_of(**said)
    except TypeError as error:
        raise InvalidInput(f"limit(): {error}", code="OPTION_UNKNOWN") from None
