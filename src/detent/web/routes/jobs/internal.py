"""Playing executions and transitions by hand, for checks of a contract; served only where it is switched on."""

from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from detent.core.access import Power
from detent.core.errors import InvalidInput
from detent.engine.execution.manual_run import ManualRun, run_manually
from detent.engine.reads.views import job_view
from detent.web.http.route import ApiRequest, Router, answer
from detent.web.openapi import schemas

from .filters import JobId

router = Router(tags=["internal"])


class End(BaseModel):
    model_config = ConfigDict(extra="forbid")
    force_fail: bool = False
    transient_fail: bool = False


@router.route_for("POST", "/internal/jobs/{job_id}/run", needs=Power.OPERATE, answers={200: schemas.Played})
async def run(asked: ApiRequest, job_id: JobId, end: Annotated[End, Query()]) -> Response:
    """ManualRun one execution without calling a handler: it succeeds, fails for good (force_fail) or for now."""
    if end.force_fail and end.transient_fail:
        raise InvalidInput("an execution fails for good or for now; choose one", field="force_fail")
    how = ManualRun.FOR_GOOD if end.force_fail else ManualRun.FOR_NOW if end.transient_fail else ManualRun.WELL
    who = asked.caller
    return answer(
        (await run_manually(await asked.engine(), job_id, how, actor=who.person, tenant=who.tenant)).as_dict()
    )


@router.route_for("POST", "/internal/jobs/{job_id}/transition", needs=Power.OPERATE, answers={200: schemas.Job})
async def transition(asked: ApiRequest, job_id: JobId, body: schemas.NewStatus) -> Response:
    """Ask the contract's table for the one edge into a status; refused like any other move."""
    engine, who = await asked.engine(), asked.caller
    job = await engine.transition(job_id, body.new_status, actor=who.person, tenant=who.tenant)
    return answer(job_view(engine.contract(job.contract), job, payloads=who.payloads))
