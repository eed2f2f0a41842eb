"""Verify over HTTP: started by one, run aside, seen by all; a second start while one runs joins it."""

from starlette.responses import Response

from detent.core.access import Power
from detent.web.http.route import ApiRequest, Router, answer
from detent.web.openapi import page_schemas

router = Router(tags=["service"])


@router.route_for("GET", "/verification", needs=Power.READ, answers={200: page_schemas.Verification})
async def show(asked: ApiRequest) -> Response:
    """How far the one under way is, and what the last one found."""
    asked.caller.everywhere("verification")
    return answer(asked.web.verifier.as_dict())


@router.route_for("POST", "/verification", needs=Power.OPERATE, answers={202: page_schemas.Verification})
async def start(asked: ApiRequest) -> Response:
    """Hold every job against its log and its contract, aside; ask GET for the result."""
    asked.caller.everywhere("verification")
    await asked.web.verifier.start(asked.caller.person)
    return answer(asked.web.verifier.as_dict(), 202)
