"""Tokens and the audit: for administrators."""

from typing import Annotated

from fastapi import Path, Query
from pydantic import Field
from starlette.responses import Response

from detent.core.access import Power
from detent.core.errors import TenantViolation
from detent.core.times import iso
from detent.engine.control.access import create_token, list_tokens, revoke_token, token_view
from detent.web.http.route import ApiRequest, Router, answer
from detent.web.openapi import schemas
from detent.web.routes.jobs.filters import Page

router = Router(tags=["people"])
TokenId = Annotated[str, Path(min_length=1, max_length=200, pattern=r"^[!-~]+$")]


@router.route_for("GET", "/tokens", needs=Power.ADMIN, answers={200: schemas.Tokens})
async def listing(asked: ApiRequest) -> Response:
    """Every token without its secret; a token that is bound to a tenant sees its tenant's."""
    engine, bound = await asked.engine(), asked.caller.tenant
    found = [token for token in await list_tokens(engine) if bound is None or token.tenant_id == bound]
    return answer({"tokens": [token_view(token, engine.store.now()) for token in found]})


@router.route_for("POST", "/tokens", needs=Power.ADMIN, answers={201: schemas.NewToken})
async def create(asked: ApiRequest, body: schemas.MakeToken) -> Response:
    """Make a token; it is shown in this answer and never again."""
    engine, who = await asked.engine(), asked.caller
    kept, shown = await create_token(
        engine,
        body.name,
        body.role,
        actor=who.person,
        tenant=who.tenant_for(body.tenant),
        payloads=body.payloads and who.payloads,
        expires_days=body.expires_days,
        roles=body.roles,
    )
    asked.web.people.forget()
    return answer({"token": shown, **token_view(kept, engine.store.now())}, 201)


@router.route_for("POST", "/tokens/{token_id}/revoke", needs=Power.ADMIN, answers={200: schemas.TokenShape})
async def revoke(asked: ApiRequest, token_id: TokenId) -> Response:
    """End a token for good."""
    engine, who = await asked.engine(), asked.caller
    if who.tenant is not None:
        known = {token.id: token for token in await list_tokens(engine)}
        if token_id in known and known[token_id].tenant_id != who.tenant:
            raise TenantViolation("this token belongs to another tenant")
    token = await revoke_token(engine, token_id, actor=who.person)
    asked.web.people.forget()
    return answer(token_view(token, engine.store.now()))


class AuditFilter(Page):
    cursor: str | None = Field(None, pattern="^[0-9]{1,18}$", description="next_cursor of the page before")
    subject: schemas.Name | None = None


@router.route_for("GET", "/audit", needs=Power.ADMIN, answers={200: schemas.AuditPage})
async def audit(asked: ApiRequest, chosen: Annotated[AuditFilter, Query()]) -> Response:
    """Who did what, newest first; what happened to a job by itself is in its events."""
    engine = await asked.engine()
    before = int(chosen.cursor) if chosen.cursor else None
    found = await engine.store.read(
        lambda tx: tx.audit_page(before, chosen.limit + 1, asked.caller.tenant, chosen.subject)
    )
    page = found[: chosen.limit]
    items = [
        {"n": n, "at": iso(at), **{name: getattr(entry, name) for name in _FIELDS}, "data": entry.data}
        for n, at, entry in page
    ]
    return answer({"items": items, "next_cursor": str(page[-1][0]) if len(found) > chosen.limit else None})


_FIELDS = ("actor", "act", "subject", "tenant_id", "reason")
