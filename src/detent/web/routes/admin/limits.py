"""Limits on concurrent jobs and on starts per period, and the weights and quotas of tenants."""

from typing import Annotated, Any, Literal, TypedDict

from fastapi import Path
from pydantic import ConfigDict, Field
from starlette.responses import Response

from detent.core.access import Power, Scope
from detent.core.errors import InvalidInput, NotFound
from detent.engine.reads import responses
from detent.web.http.route import ApiRequest, Router, json_response
from detent.web.openapi import schemas

router = Router(tags=["queues"])
_MAX_NUMBER = 1_000_000_000
_MAX_SECONDS = 366 * 86_400.0
Tenant = Annotated[str, Path(min_length=1, max_length=200, pattern=schemas.PRINTABLE, description="The tenant.")]


class LimitScope(schemas.RequestBody):
    """Which jobs a limit applies to: all that match every given field. Without fields it applies to all jobs."""

    queue: schemas.Name | None = None
    job_type: schemas.Name | None = None
    tenant: schemas.Name | None = None
    key: schemas.Name | None = Field(None, description="The jobs' limit_key.")
    per: Literal["queue", "type", "tenant", "key"] | None = Field(
        None, description="Apply the limit to each queue, job type, tenant or limit_key separately."
    )
    reason: schemas.Prose | None = None


def _requires(name: str) -> dict[str, Any]:
    return {"required": [name], "properties": {name: {"type": "integer"}}}


class LimitRequest(LimitScope):
    """A limit; at least one of concurrency and rate is needed."""

    model_config = ConfigDict(json_schema_extra={"anyOf": [_requires("concurrency"), _requires("rate")]})
    concurrency: int | None = Field(None, ge=1, le=_MAX_NUMBER, description="Max concurrent jobs.")
    rate: int | None = Field(None, ge=1, le=_MAX_NUMBER, description="Max starts per period_seconds.")
    period_seconds: float = Field(1.0, ge=0.001, le=_MAX_SECONDS)


class QuotaRequest(schemas.ReasonRequest):
    """A tenant's weight and quotas. Null leaves a value unchanged."""

    weight: int | None = Field(None, ge=1, le=_MAX_NUMBER, description="The tenant's share of claims among tenants.")
    max_backlog: int | None = Field(None, ge=0, le=_MAX_NUMBER, description="Max queued and running jobs.")
    max_payload: int | None = Field(None, ge=2, le=_MAX_NUMBER, description="Max bytes of a payload.")


class LimitList(TypedDict):
    limits: list[responses.LimitResponse]


class QuotaResponse(TypedDict):
    """A tenant's weight and quotas; null means no quota."""

    tenant_id: str
    weight: int
    max_backlog: int | None
    max_payload: int | None


class TenantList(TypedDict):
    tenants: list[QuotaResponse]


class QuotaRemovedResponse(TypedDict):
    tenant_id: str
    removed: bool


def _scope(body: LimitScope) -> dict[str, Any]:
    return body.model_dump(include={"queue", "job_type", "tenant", "key", "per"})


@router.route_for("GET", "/limits", needs=Power.READ, responses={200: LimitList})
async def list_limits(request: ApiRequest) -> Response:
    """List all limits."""
    request.caller.require_all_tenants("limits")
    return json_response({"limits": [limit.as_dict() for limit in await (await request.engine()).limits.list()]})


@router.route_for("PUT", "/limits", needs=Power.OPERATE, responses={200: responses.LimitResponse})
async def set_limit(request: ApiRequest, body: LimitRequest) -> Response:
    """Set a limit, or change the one with the same scope. It applies from the next claim of every worker.

    422 LIMIT_INVALID without concurrency and rate.
    """
    request.caller.require_all_tenants("limits")
    if body.concurrency is None and body.rate is None:
        raise InvalidInput("a limit needs concurrency, rate or both", code="LIMIT_INVALID", field="concurrency")
    rate = None if body.rate is None else (body.rate, body.period_seconds)
    engine, actor = await request.engine(), request.caller.person
    limit = await engine.limits.set(Scope(actor, body.reason), **_scope(body), concurrency=body.concurrency, rate=rate)
    return json_response(limit.as_dict())


@router.route_for("POST", "/limits/remove", needs=Power.OPERATE, responses={200: responses.LimitResponse})
async def remove_limit(request: ApiRequest, body: LimitScope) -> Response:
    """Remove the limit that has exactly this scope. 404 NO_LIMIT if it does not exist."""
    request.caller.require_all_tenants("limits")
    engine = await request.engine()
    limit = await engine.limits.remove(Scope(request.caller.person, body.reason), **_scope(body))
    return json_response(limit.as_dict())


@router.route_for("GET", "/tenants", needs=Power.READ, responses={200: TenantList})
async def list_tenants(request: ApiRequest) -> Response:
    """List the tenants that have a weight or a quota. A token that is bound to a tenant sees only that tenant."""
    quotas = [quota._asdict() for quota in await (await request.engine()).limits.quotas()]
    return json_response({"tenants": quotas})


@router.route_for("PUT", "/tenants/{tenant}", needs=Power.ADMIN, responses={200: QuotaResponse})
async def set_quota(request: ApiRequest, tenant: Tenant, body: QuotaRequest) -> Response:
    """Set a tenant's weight and quotas. Fields that are missing or null stay unchanged."""
    request.caller.require_all_tenants("tenant quotas")
    changes = body.model_dump(include={"weight", "max_backlog", "max_payload"})
    engine, actor = await request.engine(), request.caller.person
    return json_response((await engine.limits.set_quota(tenant, Scope(actor, body.reason), **changes))._asdict())


@router.route_for("DELETE", "/tenants/{tenant}", needs=Power.ADMIN, responses={200: QuotaRemovedResponse})
async def remove_quota(request: ApiRequest, tenant: Tenant) -> Response:
    """Remove a tenant's weight and quotas; its jobs stay. 404 TENANT_NOT_FOUND if it has none."""
    request.caller.require_all_tenants("tenant quotas")
    if not await (await request.engine()).limits.remove_quota(tenant, Scope(request.caller.person)):
        raise NotFound(f"tenant {tenant!r} has no weight and no quota", code="TENANT_NOT_FOUND")
    return json_response({"tenant_id": tenant, "removed": True})
