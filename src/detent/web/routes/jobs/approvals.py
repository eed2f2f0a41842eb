"""The inbox: jobs that wait for people, what they ask, and who has answered."""

from typing import Annotated

from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from detent.core.access import Power
from detent.core.approval import may_decide
from detent.engine.execution.approvals import Open, inbox
from detent.ports.tx import Tx
from detent.web.http.authentication import Caller
from detent.web.http.route import ApiRequest, Router, answer
from detent.web.openapi import page_schemas, schemas

from .filters import Page

router = Router(tags=["jobs"])
_OF_A_HANDLER = {"about": None, "summary": None}
"""What a handler wrote into its question, which may be as private as a payload."""


class Wanted(Page):
    role: schemas.Name | None = Field(None, description="Only what somebody with this role may decide.")


@router.route_for("GET", "/approvals", needs=Power.READ, answers={200: page_schemas.Inbox})
async def approvals(asked: ApiRequest, page: Annotated[Wanted, Query()]) -> Response:
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
