"""What the first page of the dashboard shows: counts of jobs, queues, workers, dead letters, and time series."""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from detent.core.access import Power
from detent.core.times import iso
from detent.engine.metrics.time_series import series_view
from detent.engine.reads import responses
from detent.engine.reads.stats import counts_view, live_workers_view
from detent.ports.tx import Tx
from detent.web.http.route import ApiRequest, Router, json_response
from detent.web.live.job_counts import Counts

router = Router(tags=["service"])


@router.route_for("GET", "/overview", needs=Power.READ, responses={200: responses.Overview})
async def get_overview(request: ApiRequest) -> Response:
    """Counts of jobs by phase and status, queues with their oldest ready job, pauses, live workers and dead letters.

    Counting many jobs is slow: jobs, phases and statuses are as of counted_at, and null until the first count is done.
    """
    request.caller.require_all_tenants("the overview")
    engine = await request.engine()
    counts, queues, rest = await asyncio.gather(
        request.web.job_counts.latest(), engine.stats.queues(), engine.store.read(_dead_letters_and_workers)
    )
    return json_response({"at": iso(engine.store.now()), **_counts_view(counts), **queues.as_dict(), **rest})


class SeriesQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")
    span: Literal["hour", "day", "week"] = Field("hour", description="The last hour, day or week.")


@router.route_for("GET", "/series", needs=Power.READ, responses={200: responses.TimeSeries})
async def get_series(request: ApiRequest, query: Annotated[SeriesQuery, Query()]) -> Response:
    """Throughput and latency of the last hour, day or week. Servers record them while they run."""
    request.caller.require_all_tenants("the time series")
    return json_response(await series_view(await request.engine(), query.span))


def _counts_view(counts: Counts | None) -> dict[str, Any]:
    """counts: None until the first count is done."""
    if counts is None:
        return {"jobs": None, "phases": None, "statuses": None, "counted_at": None}
    return {**counts_view(counts.rows), "counted_at": iso(counts.at)}


async def _dead_letters_and_workers(tx: Tx) -> dict[str, Any]:
    return {
        "dead_letters": await tx.dead_letters.dead_letter_counts(),
        "workers": live_workers_view(await tx.workers.list_workers(), tx.now),
    }
