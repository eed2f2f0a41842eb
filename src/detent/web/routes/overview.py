"""What the first page shows, in one answer: how many jobs stand where, what waits longest, who works."""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from ...core.contract import Phase
from ...core.people import Power
from ...core.times import iso
from ...engine.queues import look_at_queues
from ...engine.series import series_view
from ...engine.why import is_live
from ...ports import Tx
from .. import page_shapes
from ..counting import Counts
from ..guard import Asked, Router, answer

router = Router(tags=["service"])


@router.route_for("GET", "/overview", needs=Power.READ, answers={200: page_shapes.Overview})
async def overview(asked: Asked) -> Response:
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


@router.route_for("GET", "/series", needs=Power.READ, answers={200: page_shapes.Series})
async def series(asked: Asked, chosen: Annotated[Span, Query()]) -> Response:
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
        "dead_letters": await tx.count_letters(),
        "workers": {
            "live": len(live),
            "busy": sum(worker.busy for worker in live),
            "slots": sum(worker.slots for worker in live),
        },
    }
