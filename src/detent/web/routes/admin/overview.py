"""What the first page shows, in one answer: how many jobs stand where, what waits longest, who works."""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from detent.core.access import Power
from detent.core.contract.model import Phase
from detent.core.times import iso
from detent.engine.metrics.time_series import series_view
from detent.engine.reads.queues import look_at_queues
from detent.engine.reads.why import is_live
from detent.ports.tx import Tx
from detent.web.http.route import ApiRequest, Router, answer
from detent.web.live.job_counts import Counts
from detent.web.openapi import page_schemas

router = Router(tags=["service"])


@router.route_for("GET", "/overview", needs=Power.READ, answers={200: page_schemas.Overview})
async def overview(asked: ApiRequest) -> Response:
    """Jobs by phase and contract (counted at `counted_at`), queues with their oldest job, workers, dead letters."""
    asked.caller.everywhere("the overview")
    engine = await asked.engine()
    counts, queues, rest = await asyncio.gather(
        asked.web.counts.look(), look_at_queues(engine), engine.store.read(_rest)
    )
    return answer({"at": iso(engine.store.now()), **_counted(counts), **queues.as_dict(), **rest})


class Span(BaseModel):
    model_config = ConfigDict(extra="forbid")
    span: Literal["hour", "day", "week"] = "hour"


@router.route_for("GET", "/series", needs=Power.READ, answers={200: page_schemas.Series})
async def series(asked: ApiRequest, chosen: Annotated[Span, Query()]) -> Response:
    """Throughput and latency of the last hour, day or week; recorded by whoever serves."""
    asked.caller.everywhere("throughput")
    return answer(await series_view(await asked.engine(), chosen.span))


def _counted(counts: Counts | None) -> dict[str, Any]:
    """None while the first count is under way: what is known is told at once, the rest follows."""
    if counts is None:
        return {"jobs": None, "phases": None, "statuses": None, "counted_at": None}
    statuses: dict[str, dict[str, int]] = {}
    phases = {str(phase): 0 for phase in Phase}
    for contract, status, phase, number in sorted(counts.rows):
        statuses.setdefault(contract, {})[status] = number
        phases[phase] += number
    return {"jobs": sum(phases.values()), "phases": phases, "statuses": statuses, "counted_at": iso(counts.at)}


async def _rest(tx: Tx) -> dict[str, Any]:
    live = [worker for worker in await tx.workers() if is_live(worker, tx.now)]
    return {
        "dead_letters": await tx.dead_letter_counts(),
        "workers": {
            "live": len(live),
            "busy": sum(worker.busy for worker in live),
            "slots": sum(worker.slots for worker in live),
        },
    }
