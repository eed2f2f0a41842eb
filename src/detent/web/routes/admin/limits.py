"""Limits on what runs at once or begins within a period, and what is agreed with tenants; changed while all runs."""

from typing import Annotated, Any, Literal

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from detent.core.access import Power
from detent.core.errors import InvalidInput, NotFound
from detent.web.http.route import ApiRequest, Router, answer
from detent.web.openapi import schemas

router = Router(tags=["queues"])
_NUMBER = 1_000_000_000
_SECONDS = 366 * 86_400.0
Tenant = Annotated[str, Path(min_length=1, max_length=200, pattern=schemas.PRINTABLE, description="The tenant.")]


class Bounds(schemas.Asks):
    """What a limit bounds: the jobs of a queue, a type, a tenant, a key; one for all of them, or one per each."""

    queue: schemas.Name | None = None
    job_type: schemas.Name | None = None
    tenant: schemas.Name | None = None
    key: schemas.Name | None = None
    per: Literal["queue", "type", "tenant", "key"] | None = None
    reason: schemas.Prose | None = None


def _said(name: str) -> dict[str, Any]:
    return {"required": [name], "properties": {name: {"type": "integer"}}}


class SetLimit(Bounds):
    model_config = ConfigDict(json_schema_extra={"anyOf": [_said("concurrency"), _said("rate")]})
    concurrency: int | None = Field(None, ge=1, le=_NUMBER, description="How many run at once.")
    rate: int | None = Field(None, ge=1, le=_NUMBER, description="How many begin within period_seconds.")
    period_seconds: float = Field(1.0, ge=0.001, le=_SECONDS)


class SetTerms(schemas.Because):
    weight: int | None = Field(None, ge=1, le=_NUMBER)
    max_backlog: int | None = Field(None, ge=0, le=_NUMBER)
    max_payload: int | None = Field(None, ge=2, le=_NUMBER)


class LimitShape(BaseModel):
    queue: str | None
    job_type: str | None
    tenant: str | None
    key: str | None
    per: str | None
    concurrency: int | None
    rate: int | None
    period_seconds: float | None


class Limits(BaseModel):
    limits: list[LimitShape]


class TermsShape(BaseModel):
    tenant_id: str
    weight: int
    max_backlog: int | None
    max_payload: int | None


class Tenants(BaseModel):
    tenants: list[TermsShape]


class Removed(BaseModel):
    tenant_id: str
    removed: bool


def _scope(body: Bounds) -> dict[str, Any]:
    return body.model_dump(include={"queue", "job_type", "tenant", "key", "per"})


@router.route_for("GET", "/limits", needs=Power.READ, answers={200: Limits})
async def listing(asked: ApiRequest) -> Response:
    """Every limit."""
    asked.caller.everywhere("the list of limits")
    return answer({"limits": [limit.as_dict() for limit in await (await asked.engine()).limits()]})


@router.route_for("PUT", "/limits", needs=Power.OPERATE, answers={200: LimitShape})
async def put(asked: ApiRequest, body: SetLimit) -> Response:
    """Set a limit, or give one that is there other numbers; holds from the next claim of every worker on."""
    asked.caller.everywhere("a limit")
    if body.concurrency is None and body.rate is None:
        raise InvalidInput("a limit needs concurrency, a rate, or both", code="LIMIT_INVALID", field="concurrency")
    rate = None if body.rate is None else (body.rate, body.period_seconds)
    engine, who = await asked.engine(), asked.caller.person
    made = await engine.limit(**_scope(body), concurrency=body.concurrency, rate=rate, actor=who, reason=body.reason)
    return answer(made.as_dict())


@router.route_for("POST", "/limits/remove", needs=Power.OPERATE, answers={200: LimitShape})
async def remove(asked: ApiRequest, body: Bounds) -> Response:
    """Take a limit away, named by what it bounds."""
    asked.caller.everywhere("a limit")
    engine = await asked.engine()
    gone = await engine.remove_limit(**_scope(body), actor=asked.caller.person, reason=body.reason)
    return answer(gone.as_dict())


@router.route_for("GET", "/tenants", needs=Power.READ, answers={200: Tenants})
async def tenants(asked: ApiRequest) -> Response:
    """The tenants that have a weight or a quota of their own; a bound token sees its own."""
    found = [quota._asdict() for quota in await (await asked.engine()).tenant_quotas()]
    bound = asked.caller.tenant
    return answer({"tenants": [one for one in found if bound is None or one["tenant_id"] == bound]})


@router.route_for("PUT", "/tenants/{tenant}", needs=Power.ADMIN, answers={200: TermsShape})
async def set_quota(asked: ApiRequest, tenant: Tenant, body: SetTerms) -> Response:
    """Set a tenant's weight and quotas; what is not said stays as it is."""
    asked.caller.everywhere("what is agreed with tenants")
    said = body.model_dump(include={"weight", "max_backlog", "max_payload"})
    engine, who = await asked.engine(), asked.caller.person
    return answer((await engine.set_quota(tenant, **said, actor=who, reason=body.reason))._asdict())


@router.route_for("DELETE", "/tenants/{tenant}", needs=Power.ADMIN, answers={200: Removed})
async def forget(asked: ApiRequest, tenant: Tenant) -> Response:
    """Forget a tenant's weight and quotas; its jobs stay."""
    asked.caller.everywhere("what is agreed with tenants")
    if not await (await asked.engine()).remove_quota(tenant, actor=asked.caller.person):
        raise NotFound(f"nothing is agreed with tenant {tenant!r}", code="TENANT_NOT_FOUND")
    return answer({"tenant_id": tenant, "removed": True})
