"""Families and approvals in a transaction, the same in every store: named queries with named values."""

import json
from collections.abc import Sequence
from typing import Any

from detent.core.approval import Approval, Vote
from detent.core.contract.model import Move
from detent.core.job import CHILDREN, Asked, Change, Job, Micros
from detent.ports.children import Ended
from detent.ports.claims import Success

from .named_queries import NamedQueries
from .rows import job_from


class ChildrenQueries(NamedQueries):
    """Who is whose child, and what parents must be told."""

    async def tell_family(self, change: Change) -> None:
        """What relatives must know of this change, written with it."""
        before, after = change.before, change.after
        if after.wait_kind == CHILDREN:
            self.related_ids.add(after.id)
        elif before is not None and before.wait_kind == CHILDREN:
            await self.change("drop_awaited", parent_id=after.id)
        if change.ended is None:
            return
        if after.parent_id is not None:
            failed = change.ended is not Move.SUCCEED
            await self.change("add_news", parent_id=after.parent_id, child_id=after.id, failed=failed)
            self.related_ids.add(after.parent_id)
        if change.ended is Move.CANCEL and await self.change("add_orphans", parent_id=after.id):
            self.related_ids.add(after.id)

    async def tell_parents_of(self, successes: Sequence[Success], refused: Sequence[Success]) -> None:
        """Plain successes, settled in this transaction but for the refused; what has no parent costs nothing."""
        children = {success.id: success.parent_id for success in successes if success.parent_id is not None}
        for success in refused:
            children.pop(success.id, None)
        if children:
            await self.change("add_news_of", ids=json.dumps(list(children)))
            self.related_ids.update(parent for parent in children.values() if parent is not None)

    async def await_children(self, parent_id: str, ids: Sequence[str], wakes_on: str) -> int:
        await self.change("drop_awaited", parent_id=parent_id)
        return await self.change("await_children", parent_id=parent_id, ids=json.dumps(list(ids)), wakes_on=wakes_on)

    async def ended_badly(self, ids: Sequence[str], good: Sequence[str]) -> bool:
        return bool(await self.query("ended_badly", ids=json.dumps(list(ids)), good=json.dumps(list(good))))

    async def take_news(self, parent_id: str) -> dict[str, bool]:
        return {row[0]: bool(row[1]) for row in await self.query("take_news", parent_id=parent_id)}

    async def end_awaited(self, parent_id: str, ids: Sequence[str]) -> dict[str, str]:
        rows = await self.query("end_awaited", parent_id=parent_id, ids=json.dumps(list(ids)))
        return {row[0]: row[1] for row in rows}

    async def still_awaited(self, parent_id: str) -> bool:
        return bool(await self.query("still_awaited", parent_id=parent_id))

    async def drop_news(self, parent_id: str) -> None:
        await self.change("drop_news", parent_id=parent_id)
        await self.change("drop_awaited", parent_id=parent_id)

    async def families_ready(self, parents: Sequence[str]) -> list[str]:
        return [row[0] for row in await self.query("families_ready", parents=json.dumps(list(parents)))]

    async def families_with_news(self, limit: int) -> list[str]:
        return [row[0] for row in await self.query("families_with_news", limit=limit)]

    async def has_orphans(self, parent_id: str) -> bool:
        return bool(await self.query("has_orphans", parent_id=parent_id))

    async def stoppable(self, parent_id: str, where_to: Sequence[str], limit: int) -> list[Job]:
        told = json.dumps(list(where_to))
        rows = await self.query("stoppable", parent_id=parent_id, where_to=told, limit=limit)
        return [job_from(row) for row in rows]

    async def orphans_done(self, parent_id: str, where_to: Sequence[str]) -> bool:
        told = json.dumps(list(where_to))
        if await self.query("stoppable_left", parent_id=parent_id, where_to=told):
            return False
        await self.change("drop_orphans", parent_id=parent_id)
        return True

    async def children(self, parent_id: str, after: str | None = None, limit: int = 100) -> list[Job]:
        where, values = ("true", {}) if after is None else ("id > :after", {"after": after})
        rows = await self.query("children", where, parent_id=parent_id, **values, limit=limit)
        return [job_from(row) for row in rows]

    async def count_children(self, parent_id: str) -> list[tuple[str, str, str, str, int]]:
        rows = await self.query("count_children", parent_id=parent_id)
        return [(row[0], row[1], row[2], row[3], row[4]) for row in rows]

    async def child_ends(self, ids: Sequence[str]) -> list[Ended]:
        return [Ended(*row) for row in await self.query("child_ends", ids=json.dumps(list(ids)))]


class ApprovalQueries(ChildrenQueries):
    """Mixed in beside."""

    async def approval(self, job_id: str, name: str) -> Approval | None:
        found = await self.query("approval", job_id=job_id, name=name)
        return await self._with_votes(found[0]) if found else None

    async def approvals_of(self, job_id: str) -> list[Approval]:
        return [await self._with_votes(row) for row in await self.query("approvals_of", job_id=job_id)]

    async def _with_votes(self, row: Sequence[Any]) -> Approval:
        job_id, name, summary, about, digest, roles, quorum, on_expiry, asked_at, deadline, decision, at, expired = row
        asked = Asked(summary, about, digest, tuple(json.loads(roles)), quorum, on_expiry)
        rows = await self.query("votes", job_id=job_id, name=name)
        votes = tuple(
            Vote(person, bool(approved), reason, None if own is None else tuple(json.loads(own)), voted_at)
            for person, approved, reason, own, voted_at in rows
        )
        return Approval(job_id, name, asked, asked_at, deadline, decision, at, bool(expired), votes)

    async def put_approval(self, approval: Approval) -> None:
        asked = approval.asked
        await self.change("drop_votes", job_id=approval.job_id, name=approval.name)
        await self.change(
            "put_approval",
            job_id=approval.job_id,
            name=approval.name,
            summary=asked.summary,
            about=asked.about,
            digest=asked.digest,
            roles=json.dumps(asked.roles, ensure_ascii=False),
            quorum=asked.quorum,
            on_expiry=asked.on_expiry,
            asked_at=approval.asked_at,
            deadline=approval.deadline,
        )

    async def put_vote(self, job_id: str, name: str, vote: Vote) -> None:
        roles = None if vote.roles is None else json.dumps(vote.roles, ensure_ascii=False)
        told = {"approved": vote.approved, "reason": vote.reason, "roles": roles, "at": vote.at}
        await self.change("put_vote", job_id=job_id, name=name, person=vote.person, **told)

    async def decide_approval(self, job_id: str, name: str, decision: str, at: Micros, *, expired: bool) -> None:
        await self.change("decide_approval", job_id=job_id, name=name, decision=decision, at=at, expired=expired)

    async def asking(self, tenant: str | None, after: str | None, limit: int) -> list[Job]:
        asked = {"tenant_id": tenant, "after": after}
        tests = {"tenant_id": "tenant_id = :tenant_id", "after": "id > :after"}
        given = {name: value for name, value in asked.items() if value is not None}
        where = " AND ".join(tests[name] for name in given) or "true"
        return [job_from(row) for row in await self.query("asking", where, **given, limit=limit)]
