"""Operations: statistics, workers and commands to them, alerts, and metrics for Prometheus."""

from typing import Annotated, Any, NotRequired, TypedDict

from fastapi import Body, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from detent.core.access import Power, Scope
from detent.core.times import iso
from detent.engine.metrics import alerts
from detent.engine.reads import workers
from detent.engine.reads.responses import Timestamp
from detent.observability.metrics import exposition
from detent.web.http.route import ApiRequest, Router, json_response
from detent.web.openapi import schemas

router = Router(tags=["service"])
root_router = Router("", tags=["service"])
WorkerId = Annotated[str, Path(min_length=1, max_length=200, pattern=schemas.PRINTABLE, description="The worker's id.")]
OptionalReason = Annotated[schemas.ReasonRequest | None, Body()]


class StatsResponse(TypedDict):
    """Counts of jobs. Unless the token is bound to a tenant, it also has backlog, dead letters, workers and pauses."""

    statuses: Annotated[dict[str, dict[str, int]], "contract -> status -> number of jobs"]
    phases: Annotated[dict[str, int], "phase -> number of jobs"]
    jobs: Annotated[int, "Number of jobs."]
    due: NotRequired[Annotated[int, "Number of ready jobs."]]
    later: NotRequired[Annotated[int, "Number of scheduled jobs."]]
    held: NotRequired[Annotated[int, "Number of running jobs."]]
    oldest_due_at: NotRequired[Timestamp | None]
    dead_letters: Annotated[dict[str, int], "status -> number of dead letters"]
    workers: NotRequired[Annotated[dict[str, int], "Live workers: their number, busy slots and all slots."]]
    paused: NotRequired[Annotated[list[dict[str, Any]], "Paused queues, job types and tenants."]]
    at: Timestamp


class WorkerList(TypedDict):
    workers: Annotated[list[dict[str, Any]], "Each worker with the jobs it holds and the last command to it."]


class RecoveryList(TypedDict):
    recoveries: Annotated[list[dict[str, Any]], "Per lost worker: the jobs that were reclaimed from it."]


class WorkerCommandResponse(TypedDict):
    """A command that was sent to a worker."""

    worker: str
    act: Annotated[str, "drain or stop."]
    actor: str
    reason: str | None
    at: Timestamp


class AlertList(TypedDict):
    alerts: Annotated[list[dict[str, Any]], "state is pending, firing or resolved."]


class DeliveryList(TypedDict):
    deliveries: Annotated[list[dict[str, Any]], "Newest first."]


class DeliveryQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")
    limit: int = Field(50, ge=1, le=500)


@router.route_for("GET", "/stats", needs=Power.READ, responses={200: StatsResponse})
async def get_stats(request: ApiRequest) -> Response:
    """Number of jobs by status and phase; for tokens without a tenant also backlog, dead letters, workers and pauses.

    If counting is slow, the last count is returned for a while; `at` is the time of the count.
    """
    engine, tenant = await request.engine(), request.caller.tenant
    name = "" if tenant is None else f"tenant {tenant}"
    return json_response(await request.web.shared_counts.get(name, engine.stats.view))


@router.route_for("GET", "/workers", needs=Power.READ, responses={200: WorkerList})
async def list_workers(request: ApiRequest) -> Response:
    """List the workers and the jobs each one holds. A worker without a heartbeat for three leases is not live."""
    request.caller.require_all_tenants("workers")
    return json_response({"workers": (await (await request.engine()).workers.overview()).views()})


@router.route_for("GET", "/workers/recoveries", needs=Power.READ, responses={200: RecoveryList})
async def list_recoveries(request: ApiRequest) -> Response:
    """List the jobs that were reclaimed from lost workers within the last week, by worker."""
    request.caller.require_all_tenants("workers")
    recoveries = await (await request.engine()).workers.recoveries()
    return json_response({"recoveries": [recovery.view() for recovery in recoveries]})


@router.route_for(
    "POST", "/workers/{worker_id:path}/drain", needs=Power.OPERATE, responses={200: WorkerCommandResponse}
)
async def drain_worker(request: ApiRequest, worker_id: WorkerId, body: OptionalReason = None) -> Response:
    """Drain a worker: it finishes the jobs it holds, claims no more, and exits. 404 WORKER_NOT_FOUND if not live."""
    return await _send_command(request, worker_id, workers.DRAIN, body)


@router.route_for("POST", "/workers/{worker_id:path}/stop", needs=Power.OPERATE, responses={200: WorkerCommandResponse})
async def stop_worker(request: ApiRequest, worker_id: WorkerId, body: OptionalReason = None) -> Response:
    """Stop a worker as SIGTERM would. 404 WORKER_NOT_FOUND if it is not live."""
    return await _send_command(request, worker_id, workers.STOP, body)


async def _send_command(request: ApiRequest, worker: str, act: str, body: schemas.ReasonRequest | None) -> Response:
    request.caller.require_all_tenants("workers")
    reason = body.reason if body else None
    engine, actor = await request.engine(), request.caller.person
    command = await engine.workers.send_command(worker, act, Scope(actor, reason))
    return json_response({**command._asdict(), "at": iso(command.at)})


@router.route_for("GET", "/alerts", needs=Power.READ, responses={200: AlertList}, tags=["alerts"])
async def list_alerts(request: ApiRequest) -> Response:
    """List the alerts that are pending or firing, and those resolved last."""
    request.caller.require_all_tenants("alerts")
    rows = await alerts.list_alerts(await request.engine())
    return json_response({"alerts": [alerts.alert_view(alert) for alert in rows]})


@router.route_for("GET", "/alerts/deliveries", needs=Power.READ, responses={200: DeliveryList}, tags=["alerts"])
async def list_alert_deliveries(request: ApiRequest, query: Annotated[DeliveryQuery, Query()]) -> Response:
    """List the notifications to alert channels, newest first, with their retries and errors."""
    request.caller.require_all_tenants("alerts")
    rows = await alerts.list_deliveries(await request.engine(), query.limit)
    return json_response({"deliveries": [alerts.delivery_view(delivery) for delivery in rows]})


@root_router.route_for(
    "GET",
    "/metrics",
    needs=Power.READ,
    responses={200: {"description": "Prometheus text format", "content": {"text/plain": {}}}},
)
async def get_metrics(request: ApiRequest) -> Response:
    """Metrics in the Prometheus text format. Configure Prometheus with a viewer's token."""
    request.caller.require_all_tenants("metrics")
    body, media_type = await exposition(await request.engine())
    return Response(body, 200, {"content-type": media_type})
