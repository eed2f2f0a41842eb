"""Verification of all jobs: started over HTTP, runs in the background; the state is the same for all callers."""

from starlette.responses import Response

from detent.core.access import Power
from detent.engine.reads import responses
from detent.web.http.route import ApiRequest, Router, json_response

router = Router(tags=["service"])


@router.route_for("GET", "/verification", needs=Power.READ, responses={200: responses.VerificationState})
async def get_verification(request: ApiRequest) -> Response:
    """Progress of the running verification, and the report of the last one in this server process."""
    request.caller.require_all_tenants("verification")
    return json_response(request.web.verifier.as_dict())


@router.route_for("POST", "/verification", needs=Power.OPERATE, responses={202: responses.VerificationState})
async def start_verification(request: ApiRequest) -> Response:
    """Start comparing every job with its log and its contract, in the background. Does nothing if one is running.

    GET /verification returns the progress and the report.
    """
    request.caller.require_all_tenants("verification")
    await request.web.verifier.start(request.caller.person)
    return json_response(request.web.verifier.as_dict(), 202)
