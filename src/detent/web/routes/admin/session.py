"""Who am I, and a session for pages: a cookie that holds a token, read by the same checks as a bearer token."""

from starlette.responses import Response

from detent.core.access import POWERS, Power
from detent.web.http.authentication import COOKIE, Caller, check_secret, csrf_of
from detent.web.http.route import ApiRequest, Router, answer
from detent.web.openapi import schemas

router = Router(tags=["people"])


@router.route_for("GET", "/me", needs=Power.READ, answers={200: schemas.Me})
async def me(asked: ApiRequest) -> Response:
    """Who the token belongs to, and what it may do."""
    return answer(me_view(asked.caller, await asked.web.people.is_open()))


def me_view(caller: Caller, is_open: bool) -> dict[str, object]:
    return {
        "name": caller.person,
        "role": str(caller.role),
        "tenant": caller.tenant,
        "payloads": caller.payloads,
        "open": is_open,
        "roles": caller.deciding_roles,
        "powers": sorted(str(power) for power in POWERS[caller.role]),
    }


@router.route_for("POST", "/session", needs=None, answers={200: schemas.Session})
async def begin(asked: ApiRequest, body: schemas.Begin) -> Response:
    """Trade a token for a session cookie; changes made with it must bring the X-CSRF-Token told here."""
    secret = check_secret(body.token)
    caller = await asked.web.people.of_secret(secret)
    told = answer({**me_view(caller, False), "csrf_token": csrf_of(secret)})
    told.set_cookie(
        COOKIE,
        secret,
        path=asked.scope.get("root_path") or "/",
        httponly=True,
        samesite="strict",
        secure=asked.url.scheme == "https",
    )
    return told


@router.route_for("DELETE", "/session", needs=None, answers={204: {"description": "the cookie is gone"}})
async def end(asked: ApiRequest) -> Response:
    """Forget the cookie; the token itself stays good until it is revoked."""
    told = Response(status_code=204)
    told.delete_cookie(COOKIE, path=asked.scope.get("root_path") or "/", httponly=True, samesite="strict")
    return told
