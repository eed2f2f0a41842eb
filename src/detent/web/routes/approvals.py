"""The inbox: jobs that wait for people, what they ask, and who has answered."""

from typing import Annotated

from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from ...core.approval import may_decide
from ...core.people import Power
from ...engine.approvals import Open, inbox
from ...ports import Tx
from .. import page_shapes, shapes
from ..guard import Asked, Router, answer
from ..people import Caller
from .reading import Page

router = Router(tags=["jobs"])
_OF_A_HANDLER = {"about": None, "summary": None}
"""What a handler wrote into its question, which may be as private as a payload."""


class Wanted(Page):
    role: shapes.Name | None = Field(None, description="Only what somebody with this role may decide.")


@router.route_for("GET", "/approvals", needs=Power.READ, answers={200: page_shapes.Inbox})
async def approvals(asked: Asked, page: Annotated[Wanted, Query()]) -> Response:
    """Jobs in a status that people end by approving or rejecting, oldest first; may_decide: whether the caller may."""
    engine, caller = await asked.engine(), asked.caller
    wanted = None if page.role is None else [page.role]

    async def look(tx: Tx) -> list[Open]:
        return await inbox(engine, tx, caller.tenant, wanted, page.cursor, page.limit + 1)

    found = await engine.store.read(look)
    shown = found[: page.limit]
    items = [
        {**one.as_dict(), **({} if caller.payloads else _OF_A_HANDLER), "may_decide": _may_decide(caller, one)}
        for one in shown
    ]
    return answer({"items": items, "next_cursor": shown[-1].job.id if len(found) > page.limit else None})


def _may_decide(caller: Caller, one: Open) -> bool:
    return caller.may(Power.REVIEW) and (one.approval is None or may_decide(one.approval.asked, caller.deciding_roles))
