"""The caller's identity, and sessions for the dashboard: a cookie that holds a token and is checked like one."""

from typing import Annotated

from pydantic import StringConstraints
from starlette.responses import Response

from detent.core.access import POWERS, Power
from detent.engine.reads import responses
from detent.web.http.authentication import COOKIE, Caller, check_secret, csrf_token_of
from detent.web.http.route import ApiRequest, Router, json_response
from detent.web.openapi import schemas

router = Router(tags=["access"])


class SessionRequest(schemas.RequestBody):
    token: Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[!-~]+$")]


@router.route_for("GET", "/me", needs=Power.READ, responses={200: responses.CallerResponse})
async def get_caller(request: ApiRequest) -> Response:
    """Whom the token belongs to, and what it permits."""
    return json_response(caller_view(request.caller, await request.web.authenticator.is_open()))


def caller_view(caller: Caller, is_open: bool) -> dict[str, object]:
    return {
        "name": caller.person,
        "role": str(caller.role),
        "tenant": caller.tenant,
        "payloads": caller.payloads,
        "open": is_open,
        "roles": caller.deciding_roles,
        "powers": sorted(str(power) for power in POWERS[caller.role]),
    }


@router.route_for("POST", "/session", needs=None, responses={200: responses.SessionResponse})
async def create_session(request: ApiRequest, body: SessionRequest) -> Response:
    """Exchange a token for a session cookie. Changes made with the cookie need the returned csrf_token as X-CSRF-Token.

    401 UNAUTHORIZED if the token is unknown, expired or revoked.
    """
    secret = check_secret(body.token)
    caller = await request.web.authenticator.authenticate_secret(secret)
    response = json_response({**caller_view(caller, False), "csrf_token": csrf_token_of(secret)})
    response.set_cookie(
        COOKIE,
        secret,
        path=request.scope.get("root_path") or "/",
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


@router.route_for("DELETE", "/session", needs=None, responses={204: {"description": "Cookie deleted"}})
async def delete_session(request: ApiRequest) -> Response:
    """Delete the session cookie. The token stays valid until it expires or is revoked."""
    response = Response(status_code=204)
    response.delete_cookie(COOKIE, path=request.scope.get("root_path") or "/", httponly=True, samesite="strict")
    return response
