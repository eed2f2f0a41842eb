"""Queues: their backlog, pause and resume. Contracts: their tables."""

from typing import Annotated, Literal

from fastapi import Body, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from detent.core.access import Power, Scope
from detent.core.errors import NotFound
from detent.engine.reads import responses
from detent.engine.reads.views import contract_view, contracts_view
from detent.web.http.route import ApiRequest, Router, json_response
from detent.web.openapi import schemas

router = Router(tags=["queues"])
TargetName = Annotated[
    str,
    Path(min_length=1, max_length=200, pattern=schemas.PRINTABLE, description="Name of the queue, job type or tenant."),
]
ContractName = Annotated[
    str, Path(min_length=1, max_length=200, pattern=schemas.PRINTABLE, description="The contract's name.")
]


class PauseQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")
    kind: Literal["queue", "job_type", "tenant"] = Field("queue", description="What the name in the path names.")


@router.route_for("GET", "/queues", needs=Power.READ, responses={200: responses.QueueList})
async def list_queues(request: ApiRequest) -> Response:
    """List the queues with their number of ready, scheduled and running jobs, and all pauses."""
    request.caller.require_all_tenants("the list of queues")
    return json_response((await (await request.engine()).stats.queues()).as_dict())


@router.route_for("POST", "/queues/{name:path}/pause", needs=Power.OPERATE, responses={200: responses.PauseResponse})
async def pause_queue(
    request: ApiRequest,
    name: TargetName,
    query: Annotated[PauseQuery, Query()],
    body: Annotated[schemas.ReasonRequest | None, Body()] = None,
) -> Response:
    """Pause a queue, a job type or a tenant: its jobs are not claimed any more. Running jobs continue."""
    _check_tenant(request, query.kind, name)
    engine = await request.engine()
    await engine.limits.pause(query.kind, name, Scope(request.caller.person, body.reason if body else None))
    return json_response({"kind": query.kind, "name": name, "paused": True})


@router.route_for("POST", "/queues/{name:path}/resume", needs=Power.OPERATE, responses={200: responses.PauseResponse})
async def resume_queue(request: ApiRequest, name: TargetName, query: Annotated[PauseQuery, Query()]) -> Response:
    """Resume a queue, a job type or a tenant. 404 PAUSE_NOT_FOUND if it is not paused."""
    _check_tenant(request, query.kind, name)
    engine = await request.engine()
    pauses = await engine.store.read(lambda tx: tx.pauses.list_pauses())
    if (query.kind, name) not in {(pause[0], pause[1]) for pause in pauses}:
        raise NotFound(f"{query.kind.replace('_', ' ')} {name!r} is not paused", code="PAUSE_NOT_FOUND")
    await engine.limits.resume(query.kind, name, Scope(request.caller.person))
    return json_response({"kind": query.kind, "name": name, "paused": False})


def _check_tenant(request: ApiRequest, kind: str, name: str) -> None:
    """A token that is bound to a tenant may pause its own tenant, but no queue or job type."""
    if kind == "tenant":
        request.caller.tenant_for(name)
    else:
        request.caller.require_all_tenants(f"the {kind.replace('_', ' ')} {name!r}")


@router.route_for("GET", "/contracts", needs=Power.READ, responses={200: responses.ContractList}, tags=["contracts"])
async def list_contracts(request: ApiRequest) -> Response:
    """List the built-in contracts and those stored in the database."""
    return json_response({"contracts": contracts_view((await request.engine()).contracts)})


@router.route_for("GET", "/contracts/{name}", needs=Power.READ, responses={200: responses.Contract}, tags=["contracts"])
async def get_contract(request: ApiRequest, name: ContractName) -> Response:
    """The table of a contract: statuses, legal transitions, error codes, retry policy.

    404 CONTRACT_UNKNOWN if it does not exist.
    """
    contracts = (await request.engine()).contracts
    if name not in contracts:
        raise NotFound(f"unknown contract {name!r}; use one of {', '.join(sorted(contracts))}", code="CONTRACT_UNKNOWN")
    return json_response(contract_view(contracts[name]))
