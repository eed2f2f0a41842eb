"""The part of a transaction that stores limits, meters, tenant quotas and pauses; the same in every store."""

import json
from collections.abc import Sequence
from typing import Any

from detent.core.job import Job, Micros
from detent.core.limits import Limit, Meter, parse_spent
from detent.ports.limits import DeclaredLimit, MeterUse, Pause, TenantQuota

from .claim_plan import MeterKey, held_by_meter, meter_keys
from .lanes import party_of
from .named_queries import NamedQueries

_SCOPE = ("queue", "job_type", "tenant_id", "limit_key", "per")


class LimitQueries(NamedQueries):
    """Limits, meters, tenant quotas, pauses and deadlines, and the lane cache that claims read them from."""

    async def refresh_lane_cache(self) -> None:
        """Read groups, pauses and limits again if lane_version has changed since the last read."""
        version = (await self.query("lane_version"))[0][0]
        cache = self.lane_cache
        if cache.version == version:
            return
        groups = {row[0]: (row[1], row[2], row[3]) for row in await self.query("lane_groups")}
        paused: dict[str, set[str]] = {}
        for kind, name, *_ in await self.query("pauses"):
            paused.setdefault(kind, set()).add(name)
        parties = {row[0] for row in await self.query("paused_parties")}
        await self.refresh_limits()
        # Assigned together and last: other claims use this cache while we read.
        cache.groups, cache.paused, cache.paused_parties, cache.version = groups, paused, parties, version

    async def refresh_limits(self) -> None:
        """Read limits, weights, priorities in use and deadlines in use into the lane cache."""
        lane_cache = self.lane_cache
        lane_cache.limits = tuple(limit for limit, _ in await self.list_limits())
        lane_cache.weights = {quota.tenant_id: quota.weight for quota in await self.tenants() if quota.weight != 1}
        marks = [(row[0], row[1]) for row in await self.query("lane_marks")]
        lane_cache.has_deadlines = any(kind == "deadline" for kind, _ in marks)
        lane_cache.many_ranks = sum(kind == "rank" for kind, _ in marks) > 1
        lane_cache.full_cells.clear()
        lane_cache.counts.clear()
        if not lane_cache.needs_plan:
            lane_cache.held_back, lane_cache.opens_at = False, None

    async def list_limits(self) -> list[DeclaredLimit]:
        return [DeclaredLimit(_limit(row[:9]), row[9]) for row in await self.query("limits")]

    async def put_limit(self, limit: Limit, declared: str | None = None) -> None:
        values = dict(zip(_SCOPE, limit.scope, strict=True))
        numbers = {"concurrency": limit.concurrency, "rate": limit.rate, "period": limit.period}
        await self.change("put_limit", **values, **numbers, declared=declared)
        await self.change("raise_lane_version")

    async def drop_limit(self, limit_id: int) -> None:
        await self.change("drop_limit", id=limit_id)
        await self.change("drop_meters", id=limit_id)
        await self.change("raise_lane_version")

    async def tenants(self) -> list[TenantQuota]:
        return await self.fetch(TenantQuota, "tenants")

    async def put_tenant(self, quota: TenantQuota) -> None:
        await self.change("put_tenant", **quota._asdict())
        await self.change("raise_lane_version")

    async def drop_tenant(self, tenant_id: str) -> None:
        await self.change("drop_tenant", tenant_id=tenant_id)
        await self.change("raise_lane_version")

    async def lock_quotas(self, tenants: Sequence[str]) -> list[TenantQuota]:
        return await self.fetch(TenantQuota, "lock_quotas", tenants=json.dumps(list(tenants)))

    async def backlog_of(self, tenant_id: str, at_most: int) -> int:
        return await self.number("backlog_of", tenant_id=tenant_id, at_most=at_most)

    async def pause(self, kind: str, name: str, actor: str, reason: str | None) -> None:
        await self.change("pause", kind=kind, name=name, actor=actor, reason=reason, now=self.now)
        await self.change("raise_lane_version")

    async def resume(self, kind: str, name: str) -> None:
        await self.change("resume", kind=kind, name=name)
        await self.change("raise_lane_version")

    async def list_pauses(self) -> list[Pause]:
        return await self.fetch(Pause, "pauses")

    async def meter(self, limit: Limit, subject: str) -> Meter | None:
        rows = await self.query("meter", limit_id=limit.id, subject=subject)
        return Meter(rows[0][0], limit, rows[0][1], parse_spent(rows[0][2])) if rows else None

    async def shared_rate_meters(self) -> list[tuple[str, Meter]]:
        limits = {limit.id: limit for limit, _ in await self.list_limits()}
        rows = await self.query("shared_rate_meters")
        return [
            (subject, Meter(id, limits[limit_id], taken, parse_spent(spent)))
            for limit_id, subject, id, taken, spent in rows
        ]

    async def add_meters(self, missing: Sequence[MeterKey]) -> None:
        for limit_id, subject in sorted(missing):
            await self.change("add_meter", limit_id=limit_id, subject=subject, now=self.now)

    async def drop_idle_meters(self, before: Micros) -> int:
        return await self.change("drop_idle_meters", before=before)

    async def past_deadline(self, limit: int, contracts: Sequence[str]) -> list[Job]:
        return await self.fetch_jobs("past_deadline", now=self.now, limit=limit, contracts=json.dumps(list(contracts)))

    async def load_parties(self, lanes: Sequence[int]) -> None:
        """Read tenant and limit key of these lanes into the lane cache, where they are missing."""
        lane_cache = self.lane_cache
        for number in {party_of(lane) for lane in lanes} - lane_cache.parties.keys():
            lane_cache.parties[number] = (await self.query("party", id=number))[0]

    async def leased_by_lane(self) -> dict[int, int]:
        held = {row[0]: row[1] for row in await self.query("leased_by_lane")}
        await self.load_parties(list(held))
        return held

    async def meters_of(self, jobs: Sequence[Job]) -> list[MeterUse]:
        await self.refresh_lane_cache()
        if not self.lane_cache.limits:
            return []
        limits_by_id = {limit.id: limit for limit in self.lane_cache.limits}
        held = held_by_meter(self.lane_cache, await self.leased_by_lane())
        lanes = [row[0] for row in await self.query("lanes_of", ids=json.dumps([job.id for job in jobs]))]
        await self.load_parties(lanes)
        meters = []
        for limit_id, subject in sorted({key for lane in lanes for key in meter_keys(self.lane_cache, lane)}):
            limit = limits_by_id[limit_id]
            meter = await self.meter(limit, subject) or Meter(0, limit)
            meters.append(MeterUse(meter, held.get((limit_id, subject), 0)))
        return meters


def _limit(row: Sequence[Any]) -> Limit:
    """The stored '' means any and becomes None."""
    values: list[Any] = [value if value != "" else None for value in row]
    return Limit(*values)
