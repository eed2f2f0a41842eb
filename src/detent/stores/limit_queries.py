"""Limits, shares and quotas in one transaction: named queries, the same in every store."""

import json
from collections.abc import Sequence
from typing import Any

from detent.core.job import Job, Micros
from detent.core.limits import Limit, Meter, spent_from
from detent.ports.limits import TenantQuota

from .claim_plan import Reading, held_by_reading, readings
from .lanes import party_of
from .named_queries import NamedQueries
from .rows import job_from

_SCOPE = ("queue", "job_type", "tenant_id", "limit_key", "per")


class LimitQueries(NamedQueries):
    """Part of a transaction."""

    async def refresh_book(self) -> None:
        raise NameError("refresh_book")

    async def refresh_rules(self) -> None:
        """What claims must obey besides pauses; part of `refresh_book`."""
        book = self.book
        book.limits = tuple(limit for limit, _ in await self.limits())
        book.weights = {quota.tenant_id: quota.weight for quota in await self.tenants() if quota.weight != 1}
        marks = [(row[0], row[1]) for row in await self.query("lane_marks")]
        book.dated = any(kind == "deadline" for kind, _ in marks)
        book.many_ranks = sum(kind == "rank" for kind, _ in marks) > 1
        book.closed.clear()
        book.counts.clear()
        if not book.ruled:
            book.held_back, book.opens_at = False, None

    async def limits(self) -> list[tuple[Limit, str | None]]:
        rows = await self.query("limits")
        return [(_limit(row[:9]), row[9]) for row in rows]

    async def put_limit(self, limit: Limit, declared: str | None = None) -> None:
        """A new limit, or other numbers for one with this scope; its count starts with the next claim."""
        values = dict(zip(_SCOPE, limit.scope, strict=True))
        numbers = {"concurrency": limit.concurrency, "rate": limit.rate, "period": limit.period}
        await self.change("put_limit", **values, **numbers, declared=declared)
        await self.change("raise_lane_version")

    async def drop_limit(self, limit_id: int) -> None:
        await self.change("drop_limit", id=limit_id)
        await self.change("drop_meters", id=limit_id)
        await self.change("raise_lane_version")

    async def tenants(self) -> list[TenantQuota]:
        return [TenantQuota(*row) for row in await self.query("tenants")]

    async def put_tenant(self, quota: TenantQuota) -> None:
        await self.change("put_tenant", **quota._asdict())
        await self.change("raise_lane_version")

    async def drop_tenant(self, tenant_id: str) -> None:
        await self.change("drop_tenant", tenant_id=tenant_id)
        await self.change("raise_lane_version")

    async def lock_quota(self, tenant_id: str) -> TenantQuota | None:
        rows = await self.query("lock_quota", tenant_id=tenant_id)
        return TenantQuota(*rows[0]) if rows else None

    async def backlog_of(self, tenant_id: str, at_most: int) -> int:
        number: int = (await self.query("backlog_of", tenant_id=tenant_id, at_most=at_most))[0][0]
        return number

    async def meter(self, limit: Limit, subject: str) -> Meter | None:
        rows = await self.query("meter", limit_id=limit.id, subject=subject)
        return Meter(rows[0][0], limit, rows[0][1], spent_from(rows[0][2])) if rows else None

    async def add_meters(self, missing: Sequence[Reading]) -> None:
        for limit_id, subject in sorted(missing):
            await self.change("add_meter", limit_id=limit_id, subject=subject, now=self.now)

    async def forget_meters(self, before: Micros) -> int:
        return await self.change("forget_meters", before=before)

    async def late(self, limit: int, contracts: Sequence[str]) -> list[Job]:
        rows = await self.query("late", now=self.now, limit=limit, contracts=json.dumps(list(contracts)))
        return [job_from(row) for row in rows]

    async def know_parties(self, lanes: Sequence[int]) -> None:
        """Whose these lanes are, looked up once."""
        book = self.book
        for number in {party_of(lane) for lane in lanes} - book.parties.keys():
            book.parties[number] = (await self.query("party", id=number))[0]

    async def holding(self) -> dict[int, int]:
        held = {row[0]: row[1] for row in await self.query("holding")}
        await self.know_parties(list(held))
        return held

    async def gauges(self, jobs: Sequence[Job]) -> list[tuple[Meter, int]]:
        """Every limit that concerns these jobs, as it stands: (meter, how many it counts as held)."""
        await self.refresh_book()
        if not self.book.limits:
            return []
        by_id = {limit.id: limit for limit in self.book.limits}
        held = held_by_reading(self.book, await self.holding())
        lanes = [row[0] for row in await self.query("lanes_of", ids=json.dumps([job.id for job in jobs]))]
        await self.know_parties(lanes)
        found = []
        for limit_id, subject in sorted({reading for lane in lanes for reading in readings(self.book, lane)}):
            limit = by_id[limit_id]
            meter = await self.meter(limit, subject) or Meter(0, limit)
            found.append((meter, held.get((limit_id, subject), 0)))
        return found


def _limit(row: Sequence[Any]) -> Limit:
    """'' stands for any."""
    values: list[Any] = [value if value != "" else None for value in row]
    return Limit(*values)
