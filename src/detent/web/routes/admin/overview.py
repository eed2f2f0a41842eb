"""For the dashboard: counts of jobs, queues, workers and dead letters; time series; verification of all jobs."""

import asyncio
from typing import Annotated, Literal

from fastapi import Query
from pydantic import Field

from detent.core.access import Power
from detent.core.times import iso
from detent.engine.metrics.time_series import series_view
from detent.engine.reads import operations
from detent.engine.reads.responses import JsonObject
from detent.engine.reads.stats import counts_view, live_workers_view
from detent.web.http.route import ApiRequest, Router
from detent.web.openapi import schemas

router = Router(tags=["service"])
_NOT_COUNTED: JsonObject = {"jobs": None, "phases": None, "statuses": None, "counted_at": None}


@router.route_for("GET", "/overview", Power.READ, shared="the overview", responses={200: operations.Overview})
async def get_overview(request: ApiRequest) -> JsonObject:
    """Counts of jobs by phase and status, queues with their oldest ready job, pauses, live workers and dead letters.

    Counting many jobs is slow: jobs, phases and statuses are as of counted_at, and null until the first count is done.
    """
    engine = request.engine

    async def count() -> JsonObject:
        rows = await engine.store.read(lambda tx: tx.stats.counts())
        return {**counts_view(rows), "counted_at": iso(engine.store.now())}

    counts, queues, dead_letters = await asyncio.gather(
        request.web.shared_counts.latest("overview", count),
        engine.stats.queues(),
        engine.store.read(lambda tx: tx.dead_letters.dead_letter_counts()),
    )
    workers = live_workers_view(queues.workers, queues.now)
    queue_list = queues.queues_view()
    return {
        "at": iso(engine.store.now()),
        **(counts or _NOT_COUNTED),
        "queues": queue_list["items"],
        "pauses": queue_list["pauses"],
        "limits": queue_list["limits"],
        "dead_letters": dead_letters,
        "workers": workers,
    }


class SeriesQuery(schemas.QueryParameters):
    span: Literal["hour", "day", "week"] = Field("hour", description="The last hour, day or week.")


@router.route_for("GET", "/series", Power.READ, shared="the time series")
async def get_series(request: ApiRequest, query: Annotated[SeriesQuery, Query()]) -> operations.TimeSeries:
    """Throughput and latency of the last hour, day or week. Servers record them while they run."""
    return await series_view(request.engine, query.span)


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
