"""Tokens and the audit log, for administrators; the caller's identity; and sessions for the dashboard."""

from contextlib import suppress
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import Field, StringConstraints
from starlette.responses import Response

from detent.core.access import POWERS, Power
from detent.core.times import iso
from detent.engine.control.access import Forbidden, Unauthorized, token_view
from detent.engine.reads import responses
from detent.engine.reads.audit_names import read_subject_names
from detent.engine.reads.responses import show
from detent.web.http.authentication import Caller, caller_of
from detent.web.http.problems import RetryLater
from detent.web.http.proxies import network_of
from detent.web.http.route import ApiRequest, Router, json_response
from detent.web.openapi import schemas
from detent.web.routes.jobs.filters import Page, Paged, TenantFilter

router = Router(tags=["access"])
_TOKEN_PREFIX_LENGTH = 16
TokenId = Annotated[str, schemas.in_path("The token's id.")]


class SessionRequest(schemas.RequestBody):
    token: Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=schemas.VISIBLE)]


@router.route_for("GET", "/tokens", Power.ADMIN)
async def list_tokens(request: ApiRequest) -> list[responses.TokenInfo]:
    """List all tokens without their secrets. A token that is bound to a tenant sees only the tokens of that tenant."""
    now = request.engine.store.now()
    return [token_view(token, now) for token in await request.engine.tokens.list()]


_NULL: dict[str, Any] = {"type": "null"}
_EMPTY = {"maxItems": 0}
_LIMITS_OF_ROLES: list[dict[str, Any]] = [
    {"properties": {"role": {"const": "worker"}, "tenant_id": _NULL, "tenant": _NULL, "payloads": {"const": True}}},
    {"properties": {"role": {"const": "admin"}, "queues": _EMPTY, "job_types": _EMPTY}},
    {"properties": {"role": {"enum": ["producer", "viewer", "operator", "reviewer"]}}},
]


class TokenCreateRequest(schemas.RequestBody, TenantFilter):
    model_config = schemas.any_of(*_LIMITS_OF_ROLES)
    name: schemas.Name = Field(description="The person. One person may have several tokens.")
    role: Literal["worker", "producer", "viewer", "operator", "reviewer", "admin"]
    tenant_id: schemas.Name | None = Field(None, description="Bind the token to this tenant.")
    queues: list[schemas.Name] = Field([], max_length=100, description="Limit the token to these queues.")
    job_types: list[schemas.Name] = Field([], max_length=100, description="Limit the token to these job types.")
    payloads: bool = Field(True, description="False hides payloads, results and error messages.")
    expires_days: Annotated[float, Field(gt=0, le=3_650)] | Literal["never"] | None = Field(
        None, description='"never", or null: after 90 days, or never for workers and producers.'
    )
    roles: list[schemas.Name] = Field([], max_length=50, description="Further roles that count in approvals.")


@router.route_for("POST", "/tokens", Power.ADMIN, status=201)
async def create_token(request: ApiRequest, body: TokenCreateRequest) -> responses.TokenCreateResponse:
    """Create a token. Its secret is in this response only. Creating the first token turns on sign-in.

    The new token sees payloads only if the caller's token does, and is bound to the caller's tenant if there is one.
    Until its owner rotates it, it does not count as a second person beside its creator.
    """
    engine, caller = request.engine, request.caller
    token, secret = await engine.tokens.create(
        body.name,
        body.role,
        request.acting(),
        tenant=body.tenant_for(caller),
        payloads=body.payloads and caller.payloads,
        **body.model_dump(include={"expires_days", "roles", "queues", "job_types"}),
    )
    request.web.authenticator.clear_cache()
    return {"token": secret, **token_view(token, engine.store.now())}


@router.route_for("POST", "/tokens/rotate", Power.SELF, status=201)
async def rotate_token(request: ApiRequest, body: SessionRequest) -> responses.TokenCreateResponse:
    """Replace the caller's token, which the body repeats, by one that nobody else knows. The old one stops working.

    The new one permits the same and expires at the same time. 401 UNAUTHORIZED if the body has another token.
    """
    web = request.web
    if (await web.authenticator.authenticate_secret(body.token)).token_id != request.caller.token_id:
        raise Unauthorized("send the token of this session or of the Authorization header in the body")
    token, secret = await (await web.engine()).tokens.rotate(body.token)
    web.authenticator.clear_cache()
    return {"token": secret, **token_view(token, request.engine.store.now())}


@router.route_for("POST", "/tokens/{token_id}/revoke", Power.ADMIN)
async def revoke_token(request: ApiRequest, token_id: TokenId) -> responses.TokenInfo:
    """Revoke a token. This is final; repeating it changes nothing. 404 TOKEN_NOT_FOUND if it does not exist."""
    token = await request.engine.tokens.revoke(token_id, request.acting())
    request.web.authenticator.clear_cache()
    return token_view(token, request.engine.store.now())


class AuditFilter(Page):
    cursor: str | None = Field(None, pattern="^[0-9]{1,18}$", description="next_cursor of the previous page")
    subject: schemas.Name | None = Field(None, description="Only actions on this id or name.")


@router.route_for("GET", "/audit", Power.ADMIN)
async def list_audit_entries(
    request: ApiRequest, query: Annotated[AuditFilter, Query()]
) -> Paged[responses.AuditEntry]:
    """List the actions of people, newest first. The log of a job is at GET /jobs/{job_id}/events."""
    before = int(query.cursor) if query.cursor else None
    rows = await request.engine.audit(query.limit + 1, before=before, subject=query.subject)
    page, last = query.cut(rows)
    names = await read_subject_names(request.engine, page)
    items = [
        show(
            responses.AuditEntry,
            row.entry,
            n=row.number,
            at=iso(row.at),
            subject_name=names.get(row.entry.subject),
        )
        for row in page
    ]
    return items, str(last.number) if last else None


@router.route_for("GET", "/me", Power.SELF)
async def get_caller(request: ApiRequest) -> responses.CallerResponse:
    """Whom the token belongs to, and what it permits."""
    return caller_view(request.caller, await request.web.authenticator.is_open())


def caller_view(caller: Caller, is_open: bool) -> responses.CallerResponse:
    powers = sorted(str(power) for power in POWERS[caller.role])
    values = {"name": caller.person, "tenant_id": caller.tenant, "open": is_open, "roles": caller.deciding_roles}
    names = {"queues": list(caller.reach.queues), "job_types": list(caller.reach.job_types)}
    shared_with = None if caller.shared_with is None else list(caller.shared_with)
    return show(responses.CallerResponse, caller, **values, **names, powers=powers, shared_with=shared_with)


@router.route_for("POST", "/session", None, responses={200: responses.SessionResponse})
async def create_session(request: ApiRequest, body: SessionRequest) -> Response:
    """Exchange a token for a session: a cookie, and a session_key that each request sends as X-Session-Key.

    401 UNAUTHORIZED if the token is unknown, expired or revoked. 429 SIGN_IN_LIMITED after too many failures.
    """
    web, settings, authenticator = request.web, request.web.settings, request.web.authenticator
    address = web.proxies.address(request)
    origins = (network_of(address), f"token {body.token[:_TOKEN_PREFIX_LENGTH]}")
    if not all(web.sign_in_failures.try_take(origin) for origin in origins):
        raise RetryLater("too many failed sign-ins; try again in a minute", code="SIGN_IN_LIMITED", http_status=429)
    audited = web.audited_sign_ins.try_take(origins[0])
    signed_in = await (await web.engine()).sessions.create(
        body.token,
        idle_seconds=settings.session_idle_seconds,
        seconds=settings.session_seconds,
        address=address,
        replaces=authenticator.session_cookie(request),
        audit_success=audited,
        audit_refusal=audited and web.audited_sign_ins.try_take(""),
    )
    web.sign_in_failures.give_back(*origins)
    web.audited_sign_ins.give_back("")
    session = {"session": signed_in.session.label, "session_key": signed_in.key}
    response = json_response({**caller_view(caller_of(signed_in.token), False), **session})
    response.set_cookie(value=signed_in.cookie, **authenticator.cookie_options(request))
    return response


@router.route_for("DELETE", "/session", None, responses={204: {"description": "Session ended"}})
async def delete_session(request: ApiRequest) -> Response:
    """End the session and delete its cookie. The token stays valid until it expires or is revoked."""
    authenticator = request.web.authenticator
    if cookie := authenticator.session_cookie(request):
        with suppress(Unauthorized, Forbidden):  # without the key, only the cookie of this browser is deleted
            await authenticator.authenticate(request, request.method)
            await (await request.web.engine()).sessions.end(cookie)
            authenticator.clear_cache()
    response = Response(status_code=204)
    response.delete_cookie(**authenticator.cookie_options(request))
    return response
