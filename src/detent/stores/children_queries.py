"""The part of a transaction that reads and writes parent-child links and approvals; the same in every store."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from detent.core.approval import Approval, Vote
from detent.core.contract.model import Move
from detent.core.job import CHILDREN, ApprovalRequest, Change, Job, Micros
from detent.ports.children import ChildCount, ChildRow, ChildState
from detent.ports.claims import Success

from .named_queries import NamedQueries
from .rows import as_text, job_from


class ChildrenQueries(NamedQueries):
    """Children of jobs, and the events (child ended, parent cancelled) that are processed after the commit."""

    async def record_family_events(self, change: Change) -> None:
        """Write what the parent or the children of this job must react to, in the transaction of the change."""
        before, after = change.before, change.after
        if before is not None and before.wait_kind == CHILDREN and after.wait_kind != CHILDREN:
            await self.change("drop_awaited", parent_id=after.id)
        if change.ended is None:
            return
        if after.parent_id is not None:
            failed = change.ended is not Move.SUCCEED
            await self.change("add_ended_child", parent_id=after.parent_id, child_id=after.id, failed=failed)
        if change.ended is Move.CANCEL:
            await self.change("add_child_cancel", parent_id=after.id)

    async def record_child_successes(self, successes: Sequence[Success], refused: Sequence[Success]) -> None:
        """Write an ended-child row for each settled success that has a parent; no statement if none has."""
        children = {success.id: success.parent_id for success in successes if success.parent_id is not None}
        for success in refused:
            children.pop(success.id, None)
        if children:
            await self.change("add_succeeded_children", ids=json.dumps(list(children)))

    async def await_children(self, parent_id: str, ids: Sequence[str], wakes_on: str) -> int:
        await self.change("drop_awaited", parent_id=parent_id)
        return await self.change("await_children", parent_id=parent_id, ids=json.dumps(list(ids)), wakes_on=wakes_on)

    async def any_failed(self, ids: Sequence[str], good: Sequence[str]) -> bool:
        return bool(await self.query("any_failed", ids=json.dumps(list(ids)), good=json.dumps(list(good))))

    async def take_ended_children(self, parent_id: str) -> dict[str, bool]:
        return {row[0]: bool(row[1]) for row in await self.query("take_ended_children", parent_id=parent_id)}

    async def stop_awaiting(self, parent_id: str, ids: Sequence[str]) -> dict[str, str]:
        rows = await self.query("stop_awaiting", parent_id=parent_id, ids=json.dumps(list(ids)))
        return {row[0]: row[1] for row in rows}

    async def awaits_children(self, parent_id: str) -> bool:
        return bool(await self.query("awaits_children", parent_id=parent_id))

    async def drop_ended_children(self, parent_id: str) -> None:
        await self.change("drop_ended_children", parent_id=parent_id)
        await self.change("drop_awaited", parent_id=parent_id)

    async def parents_ready(self, parents: Sequence[str]) -> list[str]:
        return [row[0] for row in await self.query("parents_ready", parents=json.dumps(list(parents)))]

    async def parents_with_ended_children(self, limit: int) -> list[str]:
        return [row[0] for row in await self.query("parents_with_ended_children", limit=limit)]

    async def has_children_to_cancel(self, parent_id: str) -> bool:
        return bool(await self.query("has_children_to_cancel", parent_id=parent_id))

    async def cancellable_children(self, parent_id: str, where_to: Sequence[str], limit: int) -> list[Job]:
        statuses_json = json.dumps(list(where_to))
        return await self.fetch_jobs("cancellable_children", parent_id=parent_id, where_to=statuses_json, limit=limit)

    async def all_children_cancelled(self, parent_id: str, where_to: Sequence[str]) -> bool:
        statuses_json = json.dumps(list(where_to))
        if await self.query("cancellable_children_left", parent_id=parent_id, where_to=statuses_json):
            return False
        await self.change("drop_child_cancel", parent_id=parent_id)
        return True

    async def list_children(self, parent_id: str, after: str | None = None, limit: int = 100) -> list[Job]:
        where = "true" if after is None else "id > :after"
        return await self.fetch_jobs("children", where, parent_id=parent_id, after=after, limit=limit)

    async def child_page(
        self, parent_id: str, after: str | None, limit: int, *, phase: str | None = None, status: str | None = None
    ) -> list[ChildRow]:
        values = {"after": after, "phase": phase, "status": status}
        tests = {"after": "id > :after", "phase": "phase = :phase", "status": "status = :status"}
        where = " AND ".join(tests[name] for name, value in values.items() if value is not None) or "true"
        rows = await self.query("child_page", where, parent_id=parent_id, limit=limit, **values)
        return [ChildRow(*row) for row in rows]

    async def count_children(self, parent_id: str) -> list[ChildCount]:
        return await self.fetch(ChildCount, "count_children", parent_id=parent_id)

    async def child_states(self, ids: Sequence[str]) -> list[ChildState]:
        return await self.fetch(ChildState, "child_states", ids=json.dumps(list(ids)))


class ApprovalQueries(ChildrenQueries):
    """Approvals and their votes."""

    async def approval(self, job_id: str, name: str) -> Approval | None:
        rows = await self.query("approval", job_id=job_id, name=name)
        return await self._with_votes(rows[0]) if rows else None

    async def approvals_of(self, job_id: str) -> list[Approval]:
        return [await self._with_votes(row) for row in await self.query("approvals_of", job_id=job_id)]

    async def _with_votes(self, row: Sequence[Any]) -> Approval:
        job_id, name, summary, about, digest, roles, quorum, on_expiry, *times, decision, at, expired = row
        request = ApprovalRequest(summary, about, digest, tuple(json.loads(roles)), quorum, on_expiry)
        votes = await self.fetch(_vote, "votes", job_id=job_id, name=name)
        return Approval(job_id, name, request, times[0], times[1], decision, at, bool(expired), tuple(votes))

    async def put_approval(self, approval: Approval) -> None:
        values = {**asdict(approval.request), "roles": json.dumps(approval.request.roles, ensure_ascii=False)}
        values |= {"asked_at": approval.requested_at, "deadline": approval.deadline}
        await self.change("drop_votes", job_id=approval.job_id, name=approval.name)
        await self.change("put_approval", job_id=approval.job_id, name=approval.name, **values)

    async def put_vote(self, job_id: str, name: str, vote: Vote) -> None:
        names = {"roles": as_text(vote.roles), "shared_with": as_text(vote.shared_with)}
        await self.change("put_vote", job_id=job_id, name=name, **{**asdict(vote), **names})

    async def decide_approval(self, job_id: str, name: str, decision: str, at: Micros, *, expired: bool) -> None:
        await self.change("decide_approval", job_id=job_id, name=name, decision=decision, at=at, expired=expired)

    async def awaiting_approval(self, tenant: str | None, after: str | None, limit: int) -> list[Job]:
        tests = {"tenant_id": "tenant_id = :tenant_id", "after": "id > :after"}
        rows = await self.matching("awaiting_approval", tests, tenant_id=tenant, after=after, limit=limit)
        return [job_from(row) for row in rows]


def _vote(person: str, approved: bool, reason: str | None, roles: str | None, at: Micros, shared: str | None) -> Vote:
    return Vote(person, bool(approved), reason, _names(roles), at, _names(shared))


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(json.loads(text))
