"""For the dashboard: counts of jobs, queues, workers and dead letters; time series; verification of all jobs."""

import asyncio
from typing import Annotated, cast

from fastapi import Query
from pydantic import Field

from detent.core.access import Power
from detent.core.errors import InvalidInput
from detent.core.times import iso
from detent.engine.metrics.alerts import list_alerts
from detent.engine.metrics.series_views import Dimension, groups_view, series_view
from detent.engine.metrics.time_series import ALL
from detent.engine.reads import operations
from detent.engine.reads.responses import JsonObject
from detent.engine.reads.stats import Stats, counts_view, live_workers_view
from detent.ports.metrics import Subject
from detent.web.http.route import ApiRequest, Router
from detent.web.live.job_counts import Count
from detent.web.openapi import schemas
from detent.web.routes.jobs.filters import TenantFilter

from .queues import read_backlog

router = Router(tags=["service"])
_MAX_APPROVALS = 100
_NOT_COUNTED: JsonObject = {"jobs": None, "phases": None, "statuses": None, "counted_at": None}


@router.route_for("GET", "/overview", Power.READ, responses={200: operations.Overview})
async def get_overview(request: ApiRequest) -> JsonObject:
    """Counts of jobs by phase and status, queues with their state, pauses, live workers and dead letters.

    Counting many jobs is slow: jobs, phases and statuses are as of counted_at, and null until the first count is done.
    A token that is bound to a tenant gets the counts of that tenant; tenants share queues, limits and workers.
    """
    request.caller.require_all_queues("the overview")
    engine, tenant = request.engine, request.caller.tenant

    async def count() -> JsonObject:
        rows = await engine.store.read(lambda tx: tx.stats.counts(tenant))
        return {**counts_view(rows), "counted_at": iso(engine.store.now())}

    counts, queues, dead_letters = await asyncio.gather(
        request.web.shared_counts.latest("overview" if tenant is None else f"overview of {tenant}", count),
        _read_queues(request),
        request.web.shared_counts.get(*_dead_letter_count(request), exact=False),
    )
    queue_list = queues.queues_view()
    return {
        "at": iso(engine.store.now()),
        **(counts or _NOT_COUNTED),
        "queues": queue_list["items"],
        "pauses": queue_list["pauses"],
        "limits": queue_list["limits"],
        "dead_letters": dead_letters,
        "workers": live_workers_view(queues.workers, queues.now) if tenant is None else None,
        "tenant_id": tenant,
    }


async def _read_queues(request: ApiRequest) -> Stats:
    """The queues; for a tenant nothing but its own pause."""
    tenant = request.caller.tenant
    if tenant is None:
        return await request.engine.stats.queues(await read_backlog(request))
    pauses = await request.engine.store.read(lambda tx: tx.pauses.list_pauses())
    own = [pause for pause in pauses if (pause.kind, pause.name) == ("tenant", tenant)]
    return Stats(request.engine.store.now(), pauses=own)


def _dead_letter_count(request: ApiRequest) -> tuple[str, Count]:
    """The key in SharedCounts and the query: it reads all dead letters."""
    tenant = request.caller.tenant

    async def count() -> JsonObject:
        return dict(await request.engine.store.read(lambda tx: tx.dead_letters.dead_letter_counts(tenant)))

    return "dead letters" if tenant is None else f"dead letters of {tenant}", count


@router.route_for("GET", "/attention", Power.READ)
async def get_attention(request: ApiRequest) -> operations.Attention:
    """How many approvals, dead letters and alerts wait for a person, for the menu of the dashboard."""
    engine, caller = request.engine, request.caller
    limited = caller.reach.is_limited

    counts = None if limited else await request.web.shared_counts.latest(*_dead_letter_count(request))
    shared = caller.tenant is None and not limited
    firing = [alert for alert in await list_alerts(engine) if alert.state == "firing"] if shared else None
    return {
        "approvals": len(await engine.approvals.waiting(roles=None, after=None, limit=_MAX_APPROVALS)),
        "dead_letters": None if counts is None else counts.get("open", 0),
        "alerts": None if firing is None else len(firing),
    }


class SpanQuery(schemas.QueryParameters):
    span: operations.SpanName = Field(
        "hour", description="The last 5 or 15 minutes, hour, 6 hours, day, week or 30 days."
    )


class SeriesQuery(SpanQuery, TenantFilter):
    queue: schemas.Name | None = Field(None, description="Only jobs of this queue.")
    job_type: schemas.Name | None = Field(None, description="Only jobs of this type.")


class SeriesGroupsQuery(SpanQuery):
    by: Dimension = Field("job_type", description="What to group by.")


@router.route_for("GET", "/series", Power.READ)
async def get_series(request: ApiRequest, query: Annotated[SeriesQuery, Query()]) -> operations.TimeSeries:
    """Throughput and latency over time: of all jobs, or of one queue, one job type or one tenant.

    Servers record them while they run. A token that is bound to a tenant sees the series of that tenant.
    422 INPUT_INVALID with more than one of queue, job_type and tenant_id.
    """
    request.caller.require_all_queues("the time series")
    if query.queue or query.job_type:
        request.caller.require_all_tenants("the time series of a queue or job type")
    tenant = query.tenant_for(request.caller)
    names: dict[Dimension, str | None] = {"queue": query.queue, "job_type": query.job_type, "tenant": tenant}
    subjects = [Subject(kind, name) for kind, name in names.items() if name is not None]
    if len(subjects) > 1:
        message = "give at most one of queue, job_type and tenant_id: series are kept for each of them, not for pairs"
        raise InvalidInput(message, code="INPUT_INVALID", field=subjects[-1].kind)
    return await series_view(request.engine, query.span, subjects[0] if subjects else ALL)


@router.route_for(
    "GET", "/series/groups", Power.READ, shared="time series by group", responses={200: operations.SeriesGroups}
)
async def get_series_groups(request: ApiRequest, query: Annotated[SeriesGroupsQuery, Query()]) -> JsonObject:
    """Throughput, failures, waiting and running time of every queue, job type or tenant over a span, most jobs first.

    If summing is slow, the last result is reused for a while.
    """

    async def read() -> JsonObject:
        return cast(JsonObject, await groups_view(request.engine, query.span, query.by))

    return await request.web.shared_counts.get(f"series {query.span} {query.by}", read, exact=False)


@router.route_for("GET", "/verification", Power.READ, shared="verification")
async def get_verification(request: ApiRequest) -> operations.VerificationState:
    """Progress of the running verification, and the report of the last one in this server process."""
    return request.web.verifier.view()


@router.route_for("POST", "/verification", Power.OPERATE, status=202, shared="verification")
async def start_verification(request: ApiRequest) -> operations.VerificationState:
    """Start comparing every job with its log and its contract, in the background. Does nothing if one is running.

    GET /verification returns the progress and the report.
    """
    await request.web.verifier.start(request.caller.person)
    return request.web.verifier.view()
