"""The inbox: jobs that wait for approval, with their votes."""

from typing import Annotated

from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from detent.core.access import Power
from detent.core.approval import may_decide
from detent.engine.execution.approvals import OpenApproval
from detent.engine.reads import responses
from detent.web.http.authentication import Caller
from detent.web.http.route import ApiRequest, Router, json_response
from detent.web.openapi import schemas

from .filters import Page

router = Router(tags=["jobs"])
_HIDDEN_FIELDS = {"about": None, "summary": None}
"""Replaced if the token may not see payloads: these texts come from the handler."""


class ApprovalFilter(Page):
    role: schemas.Name | None = Field(None, description="Only approvals that a person with this role may decide.")


@router.route_for("GET", "/approvals", needs=Power.READ, responses={200: responses.ApprovalList})
async def list_approvals(request: ApiRequest, query: Annotated[ApprovalFilter, Query()]) -> Response:
    """List the jobs that wait for approval, oldest first. may_decide: whether the caller may approve or reject."""
    engine, caller = await request.engine(), request.caller
    roles = None if query.role is None else [query.role]
    rows = await engine.approvals.waiting(roles=roles, after=query.cursor, limit=query.limit + 1)
    page = rows[: query.limit]
    hidden = {} if caller.payloads else _HIDDEN_FIELDS
    items = [{**row.as_dict(), **hidden, "may_decide": _may_decide(caller, row)} for row in page]
    return json_response({"items": items, "next_cursor": page[-1].job.id if len(rows) > query.limit else None})


def _may_decide(caller: Caller, row: OpenApproval) -> bool:
    return caller.may(Power.REVIEW) and (
        row.approval is None or may_decide(row.approval.request, caller.deciding_roles)
    )
