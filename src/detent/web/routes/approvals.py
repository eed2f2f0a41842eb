"""The inbox: jobs that wait for people, what they ask, and who has answered."""

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from ...core.people import Power
from ...engine.approvals import Open, inbox
from ...ports import Tx
from .. import page_shapes
from ..guard import Asked, Router, answer
from .reading import Page

router = Router(tags=["jobs"])
_OF_A_HANDLER = {"about": None, "summary": None}
"""What a handler wrote into its question, which may be as private as a payload."""


@router.route_for("GET", "/approvals", needs=Power.READ, answers={200: page_shapes.Inbox})
async def approvals(asked: Asked, page: Annotated[Page, Query()]) -> Response:
    """Jobs in a status that people end by approving or rejecting, oldest first."""
    engine, caller = await asked.engine(), asked.caller

    async def look(tx: Tx) -> list[Open]:
        return await inbox(engine, tx, caller.tenant, None, page.cursor, page.limit + 1)

    found = await engine.store.read(look)
    shown = found[: page.limit]
    items = [{**one.as_dict(), **({} if caller.payloads else _OF_A_HANDLER)} for one in shown]
    return answer({"items": items, "next_cursor": shown[-1].job.id if len(found) > page.limit else None})
