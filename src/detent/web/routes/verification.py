"""Verify over HTTP: started by one, run aside, seen by all; a second start while one runs joins it."""

from starlette.responses import Response

from ...core.people import Power
from .. import page_shapes
from ..guard import Asked, Router, answer

router = Router(tags=["service"])


@router.route_for("GET", "/verification", needs=Power.READ, answers={200: page_shapes.Verification})
async def show(asked: Asked) -> Response:
    """How far the one under way is, and what the last one found."""
    asked.caller.everywhere("verification")
    return answer(asked.web.verifier.as_dict())


@router.route_for("POST", "/verification", needs=Power.OPERATE, answers={202: page_shapes.Verification})
async def start(asked: Asked) -> Response:
    """Hold every job against its log and its contract, aside; ask GET for the result."""
    asked.caller.everywhere("verification")
    await asked.web.verifier.start(asked.caller.person)
    return answer(asked.web.verifier.as_dict(), 202)
