"""Queues: their backlog, pauses and limits; weights and quotas of tenants; and the tables of contracts."""

from typing import Annotated, Any, Literal, cast

from fastapi import Query
from pydantic import Field

from detent.core.access import Power
from detent.core.errors import InvalidInput, NotFound
from detent.core.limits import MAX_NUMBER, MAX_PERIOD
from detent.engine.reads import operations
from detent.engine.reads.responses import JsonObject, show
from detent.engine.reads.stats import limit_view
from detent.engine.reads.views import contract_view, contracts_view
from detent.ports.listing import Backlog
from detent.web.http.route import ApiRequest, Router
from detent.web.openapi import schemas
from detent.web.routes.jobs.filters import TenantFilter

router = Router(tags=["queues"])
TargetName = Annotated[str, schemas.in_path("Name of the queue, job type or tenant.", schemas.PRINTABLE)]
ContractName = Annotated[str, schemas.in_path("The contract's name.", schemas.PRINTABLE)]
Tenant = Annotated[str, schemas.in_path("The tenant.", schemas.PRINTABLE)]


class PauseQuery(schemas.QueryParameters):
    kind: Literal["queue", "job_type", "tenant"] = Field("queue", description="What the name in the path names.")


class DeclarationQuery(schemas.QueryParameters):
    job_type: schemas.Name | None = Field(None, description="Only this type.")


class LimitScope(schemas.ReasonRequest, TenantFilter):
    """Which jobs a limit applies to: all that match every given field. Without fields it applies to all jobs."""

    queue: schemas.Name | None = None
    job_type: schemas.Name | None = None
    key: schemas.Name | None = Field(None, description="The jobs' limit_key.")
    per: Literal["queue", "type", "tenant", "key"] | None = Field(
        None, description="Apply the limit to each queue, job type, tenant or limit_key separately."
    )

    def fields(self) -> dict[str, Any]:
        return {**self.model_dump(include={"queue", "job_type", "key", "per"}), "tenant": self.given_tenant()}


def _requires(name: str) -> dict[str, Any]:
    return {"required": [name], "properties": {name: {"type": "integer"}}}


class LimitRequest(LimitScope):
    """A limit; at least one of concurrency and rate is needed."""

    model_config = schemas.any_of(_requires("concurrency"), _requires("rate"))
    concurrency: int | None = Field(None, ge=1, le=MAX_NUMBER, description="Max concurrent jobs.")
    rate: int | None = Field(None, ge=1, le=MAX_NUMBER, description="Max starts per period_seconds.")
    period_seconds: float = Field(1.0, ge=0.001, le=MAX_PERIOD)


class QuotaRequest(schemas.ReasonRequest):
    """A tenant's weight and quotas. Null leaves a value unchanged."""

    weight: int | None = Field(None, ge=1, le=MAX_NUMBER, description="The tenant's share of claims among tenants.")
    max_backlog: int | None = Field(None, ge=0, le=MAX_NUMBER, description="Max queued and running jobs.")
    max_payload: int | None = Field(None, ge=2, le=MAX_NUMBER, description="Max bytes of a payload.")


async def read_backlog(request: ApiRequest) -> list[Backlog]:
    """Numbers of unfinished jobs. With very many jobs they may be some seconds old, see SharedCounts."""

    async def count() -> JsonObject:
        return {"rows": await request.engine.stats.backlog()}

    return cast(list[Backlog], (await request.web.shared_counts.get("backlog", count))["rows"])


@router.route_for("GET", "/queues", Power.READ, shared="the list of queues")
async def list_queues(request: ApiRequest) -> operations.QueueList:
    """List the queues with their state and number of ready, scheduled and running jobs, and all pauses and limits."""
    return (await request.engine.stats.queues(await read_backlog(request))).queues_view()


@router.route_for("GET", "/queues/{name}", Power.READ, shared="a queue")
async def get_queue(request: ApiRequest, name: TargetName) -> operations.QueueDetail:
    """A queue: its state, what runs now with its progress, the workers that serve it, its limits.

    404 QUEUE_NOT_FOUND without jobs, worker and pause.
    """
    return await request.engine.stats.queue(name, await read_backlog(request))


@router.route_for("GET", "/job-types", Power.READ, shared="the list of job types")
async def list_job_types(request: ApiRequest) -> list[operations.JobType]:
    """List the job types with their state and number of ready, scheduled and running jobs."""
    stats = await request.engine.stats.queues(await read_backlog(request))
    return cast(list[operations.JobType], stats.groups("job_type"))


@router.route_for("GET", "/job-types/{name}", Power.READ, shared="a job type")
async def get_job_type(request: ApiRequest, name: TargetName) -> operations.JobTypeDetail:
    """A job type: its state, what runs now with its progress, the workers that run it, its limits.

    404 JOB_TYPE_NOT_FOUND without jobs, worker and pause.
    """
    return await request.engine.stats.job_type(name, await read_backlog(request))


@router.route_for("GET", "/declarations", Power.SUBMIT)
async def list_declarations(
    request: ApiRequest, query: Annotated[DeclarationQuery, Query()]
) -> list[operations.DeclaredType]:
    """List the job types that workers have declared and that the caller may submit, with the schemas of payloads."""
    declared = await request.engine.declarations.types(request.engine.reach, query.job_type)
    return [{"job_type": name, "options": row.options, "payload_schema": row.schema} for name, row in declared.items()]


@router.route_for("POST", "/queues/{name:path}/pause", Power.OPERATE)
async def pause_queue(
    request: ApiRequest, name: TargetName, query: Annotated[PauseQuery, Query()], body: schemas.OptionalReason = None
) -> operations.PauseResponse:
    """Pause a queue, a job type or a tenant: its jobs are not claimed any more. Running jobs continue."""
    request.caller.require_all_queues("pauses")
    await request.engine.limits.pause(query.kind, name, request.acting(body))
    return {"kind": query.kind, "name": name, "paused": True}


@router.route_for("POST", "/queues/{name:path}/resume", Power.OPERATE)
async def resume_queue(
    request: ApiRequest, name: TargetName, query: Annotated[PauseQuery, Query()]
) -> operations.PauseResponse:
    """Resume a queue, a job type or a tenant. 404 PAUSE_NOT_FOUND if it is not paused."""
    request.caller.require_all_queues("pauses")
    if not await request.engine.limits.resume(query.kind, name, request.acting()):
        raise NotFound(f"{query.kind.replace('_', ' ')} {name!r} is not paused", code="PAUSE_NOT_FOUND")
    return {"kind": query.kind, "name": name, "paused": False}


@router.route_for("GET", "/contracts", Power.READ, tags=["contracts"])
async def list_contracts(request: ApiRequest) -> list[operations.ContractSummary]:
    """List the built-in contracts and those stored in the database."""
    return contracts_view(request.engine.contracts)


@router.route_for("GET", "/contracts/{name}", Power.READ, tags=["contracts"])
async def get_contract(request: ApiRequest, name: ContractName) -> operations.Contract:
    """The table of a contract: statuses, legal transitions, error codes, retry policy.

    404 CONTRACT_UNKNOWN if it does not exist.
    """
    contracts = request.engine.contracts
    if name not in contracts:
        raise NotFound(f"unknown contract {name!r}; use one of {', '.join(sorted(contracts))}", code="CONTRACT_UNKNOWN")
    return contract_view(contracts[name])


@router.route_for("GET", "/limits", Power.READ, shared="limits")
async def list_limits(request: ApiRequest) -> list[operations.LimitResponse]:
    """List all limits."""
    return [limit_view(limit) for limit in await request.engine.limits.list()]


@router.route_for("PUT", "/limits", Power.OPERATE, shared="limits")
async def set_limit(request: ApiRequest, body: LimitRequest) -> operations.LimitResponse:
    """Set a limit, or change the one with the same scope. It applies from the next claim of every worker.

    422 LIMIT_INVALID without concurrency and rate.
    """
    if body.concurrency is None and body.rate is None:
        raise InvalidInput("a limit needs concurrency, rate or both", code="LIMIT_INVALID", field="concurrency")
    rate = None if body.rate is None else (body.rate, body.period_seconds)
    limits, scope = request.engine.limits, request.acting(body)
    return limit_view(await limits.set(scope, **body.fields(), concurrency=body.concurrency, rate=rate))


@router.route_for("POST", "/limits/remove", Power.OPERATE, shared="limits")
async def remove_limit(request: ApiRequest, body: LimitScope) -> operations.LimitResponse:
    """Remove the limit that has exactly this scope. 404 NO_LIMIT if it does not exist."""
    return limit_view(await request.engine.limits.remove(request.acting(body), **body.fields()))


@router.route_for("GET", "/tenants", Power.READ)
async def list_tenants(request: ApiRequest) -> list[operations.QuotaResponse]:
    """List the tenants that have a weight or a quota. A token that is bound to a tenant sees only that tenant."""
    request.caller.require_all_queues("tenant quotas")
    return [show(operations.QuotaResponse, quota) for quota in await request.engine.limits.quotas()]


@router.route_for("PUT", "/tenants/{tenant}", Power.ADMIN, shared="tenant quotas")
async def set_quota(request: ApiRequest, tenant: Tenant, body: QuotaRequest) -> operations.QuotaResponse:
    """Set a tenant's weight and quotas. Fields that are missing or null stay unchanged."""
    changes = body.model_dump(exclude={"reason"})
    return show(
        operations.QuotaResponse, await request.engine.limits.set_quota(tenant, request.acting(body), **changes)
    )


@router.route_for("DELETE", "/tenants/{tenant}", Power.ADMIN, shared="tenant quotas")
async def remove_quota(request: ApiRequest, tenant: Tenant) -> operations.QuotaRemovedResponse:
    """Remove a tenant's weight and quotas; its jobs stay. 404 TENANT_NOT_FOUND if it has none."""
    if not await request.engine.limits.remove_quota(tenant, request.acting()):
        raise NotFound(f"tenant {tenant!r} has no weight and no quota", code="TENANT_NOT_FOUND")
    return {"tenant_id": tenant, "removed": True}
