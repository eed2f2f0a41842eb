"""How things stand: counts, workers and orders to them, alerts, and the numbers for Prometheus."""

from typing import Annotated, Any

from fastapi import Body, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from detent.core.access import Power
from detent.core.times import iso
from detent.engine.metrics import alerts
from detent.engine.reads import workers as worker_acts
from detent.engine.reads.stats import read_stats, stats_of_tenant, stats_view
from detent.observability.metrics import exposition
from detent.web.http.route import ApiRequest, Router, answer
from detent.web.openapi import schemas

router = Router(tags=["service"])
at_root = Router("", tags=["service"])
WorkerId = Annotated[str, Path(min_length=1, max_length=200, pattern=schemas.PRINTABLE, description="The worker's id.")]
Because = Annotated[schemas.Because | None, Body()]


class Stats(BaseModel):
    model_config = ConfigDict(extra="allow")
    statuses: dict[str, dict[str, int]]
    phases: dict[str, int]
    jobs: int


class Workers(BaseModel):
    workers: list[dict[str, Any]]


class Recoveries(BaseModel):
    recoveries: list[dict[str, Any]]


class Ordered(BaseModel):
    worker: str
    act: str
    actor: str
    reason: str | None
    at: schemas.Moment


class Alerts(BaseModel):
    alerts: list[dict[str, Any]]


class Deliveries(BaseModel):
    deliveries: list[dict[str, Any]]


class Newest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    limit: int = Field(50, ge=1, le=500)


@router.route_for("GET", "/stats", needs=Power.READ, answers={200: Stats})
async def stats(asked: ApiRequest) -> Response:
    """Jobs by status and phase; for tokens of all tenants also the backlog, dead letters, workers and pauses.

    Where counting takes long the last count is told again for a while: `at` says when that was so.
    """
    engine, tenant = await asked.engine(), asked.caller.tenant

    async def count() -> dict[str, Any]:
        return stats_view(await read_stats(engine)) if tenant is None else await stats_of_tenant(engine, tenant)

    return answer(await asked.web.shared_counts.told("" if tenant is None else f"tenant {tenant}", count))


@router.route_for("GET", "/workers", needs=Power.READ, answers={200: Workers})
async def workers(asked: ApiRequest) -> Response:
    """Who works here and what each holds; a worker not seen for three leases is gone."""
    asked.caller.everywhere("the list of workers")
    return answer({"workers": (await worker_acts.read_workers(await asked.engine())).views()})


@router.route_for("GET", "/workers/recoveries", needs=Power.READ, answers={200: Recoveries})
async def recoveries(asked: ApiRequest) -> Response:
    """What was taken back from lost workers within the last week."""
    asked.caller.everywhere("the list of recoveries")
    found = await worker_acts.recoveries(await asked.engine())
    return answer({"recoveries": [one.view() for one in found]})


@router.route_for("POST", "/workers/{worker_id:path}/drain", needs=Power.OPERATE, answers={200: Ordered})
async def drain(asked: ApiRequest, worker_id: WorkerId, body: Because = None) -> Response:
    """Tell a worker to finish what it holds and then to end."""
    return await _order(asked, worker_id, worker_acts.DRAIN, body)


@router.route_for("POST", "/workers/{worker_id:path}/stop", needs=Power.OPERATE, answers={200: Ordered})
async def stop(asked: ApiRequest, worker_id: WorkerId, body: Because = None) -> Response:
    """Tell a worker to stop as SIGTERM would."""
    return await _order(asked, worker_id, worker_acts.STOP, body)


async def _order(asked: ApiRequest, worker: str, act: str, body: schemas.Because | None) -> Response:
    asked.caller.everywhere("a worker")
    reason = body.reason if body else None
    made = await worker_acts.order(await asked.engine(), worker, act, actor=asked.caller.person, reason=reason)
    return answer({**made._asdict(), "at": iso(made.at)})


@router.route_for("GET", "/alerts", needs=Power.READ, answers={200: Alerts}, tags=["alerts"])
async def firing(asked: ApiRequest) -> Response:
    """Alerts: those that wait, fire, and what was resolved last."""
    asked.caller.everywhere("the list of alerts")
    return answer({"alerts": [alerts.alert_view(one) for one in await alerts.listing(await asked.engine())]})


@router.route_for("GET", "/alerts/deliveries", needs=Power.READ, answers={200: Deliveries}, tags=["alerts"])
async def deliveries(asked: ApiRequest, newest: Annotated[Newest, Query()]) -> Response:
    """What sinks were told, or could not be told."""
    asked.caller.everywhere("the list of deliveries")
    found = await alerts.deliveries(await asked.engine(), newest.limit)
    return answer({"deliveries": [alerts.delivery_view(one) for one in found]})


@at_root.route_for(
    "GET", "/metrics", needs=Power.READ, answers={200: {"description": "for Prometheus", "content": {"text/plain": {}}}}
)
async def metrics(asked: ApiRequest) -> Response:
    """The numbers of the log, for Prometheus; give it a viewer's token."""
    asked.caller.everywhere("the page of metrics")
    body, media = await exposition(await asked.engine())
    return Response(body, 200, {"content-type": media})
