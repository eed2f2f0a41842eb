"""Tokens and the audit log; for administrators."""

from typing import Annotated, Literal

from fastapi import Path, Query
from pydantic import Field
from starlette.responses import Response

from detent.core.access import Power, Scope
from detent.core.times import iso
from detent.engine.control.access import token_view
from detent.engine.reads import responses
from detent.web.http.route import ApiRequest, Router, json_response
from detent.web.openapi import schemas
from detent.web.routes.jobs.filters import Page

router = Router(tags=["access"])
TokenId = Annotated[str, Path(min_length=1, max_length=200, pattern=r"^[!-~]+$", description="The token's id.")]


@router.route_for("GET", "/tokens", needs=Power.ADMIN, responses={200: responses.TokenList})
async def list_tokens(request: ApiRequest) -> Response:
    """List all tokens without their secrets. A token that is bound to a tenant sees only the tokens of that tenant."""
    engine = await request.engine()
    return json_response({"tokens": [token_view(token, engine.store.now()) for token in await engine.tokens.list()]})


class TokenCreateRequest(schemas.RequestBody):
    name: schemas.Name = Field(description="The person. One person may have several tokens.")
    role: Literal["viewer", "operator", "reviewer", "admin"]
    tenant: schemas.Name | None = Field(None, description="Bind the token to this tenant.")
    payloads: bool = Field(True, description="False hides payloads, results and error messages.")
    expires_days: float | None = Field(None, gt=0, le=3_650, description="Null: does not expire.")
    roles: list[schemas.Name] = Field([], max_length=50, description="Further roles that count in approvals.")


@router.route_for("POST", "/tokens", needs=Power.ADMIN, responses={201: responses.TokenCreateResponse})
async def create_token(request: ApiRequest, body: TokenCreateRequest) -> Response:
    """Create a token. Its secret is in this response only. Creating the first token turns on sign-in.

    The new token sees payloads only if the caller's token does, and is bound to the caller's tenant if there is one.
    """
    engine, caller = await request.engine(), request.caller
    token, secret = await engine.tokens.create(
        body.name,
        body.role,
        Scope(caller.person),
        tenant=caller.tenant_for(body.tenant),
        payloads=body.payloads and caller.payloads,
        expires_days=body.expires_days,
        roles=body.roles,
    )
    request.web.authenticator.clear_cache()
    return json_response({"token": secret, **token_view(token, engine.store.now())}, 201)


@router.route_for("POST", "/tokens/{token_id}/revoke", needs=Power.ADMIN, responses={200: responses.TokenInfo})
async def revoke_token(request: ApiRequest, token_id: TokenId) -> Response:
    """Revoke a token. This is final; repeating it changes nothing. 404 TOKEN_NOT_FOUND if it does not exist."""
    engine = await request.engine()
    token = await engine.tokens.revoke(token_id, Scope(request.caller.person))
    request.web.authenticator.clear_cache()
    return json_response(token_view(token, engine.store.now()))


class AuditFilter(Page):
    cursor: str | None = Field(None, pattern="^[0-9]{1,18}$", description="next_cursor of the previous page")
    subject: schemas.Name | None = Field(None, description="Only actions on this id or name.")


@router.route_for("GET", "/audit", needs=Power.ADMIN, responses={200: responses.AuditList})
async def list_audit_entries(request: ApiRequest, query: Annotated[AuditFilter, Query()]) -> Response:
    """List the actions of people, newest first. The log of a job is at GET /jobs/{job_id}/events."""
    engine = await request.engine()
    before = int(query.cursor) if query.cursor else None
    filters = {"tenant": request.caller.tenant, "subject": query.subject}
    rows = await engine.store.read(lambda tx: tx.audit.list_audit(query.limit + 1, before=before, **filters))
    page = rows[: query.limit]
    items = [
        {"n": n, "at": iso(at), **{name: getattr(entry, name) for name in _FIELDS}, "data": entry.data}
        for n, at, entry in page
    ]
    return json_response({"items": items, "next_cursor": str(page[-1].number) if len(rows) > query.limit else None})


_FIELDS = ("actor", "act", "subject", "tenant_id", "reason")
