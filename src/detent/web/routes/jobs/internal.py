"""Executions without a handler and single transitions, to test a contract; served only with DETENT_INTERNAL=1."""

from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from detent.core.access import Power, Scope
from detent.core.errors import InvalidInput
from detent.engine.execution.manual_run import ManualRun
from detent.engine.reads import responses
from detent.engine.reads.views import job_view
from detent.web.http.route import ApiRequest, Router, json_response
from detent.web.openapi import schemas

from .filters import JobId

router = Router(tags=["internal"])


class ManualRunQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")
    force_fail: bool = Field(False, description="Fail with an error that is not retryable.")
    transient_fail: bool = Field(False, description="Fail with a retryable error.")


@router.route_for(
    "POST", "/internal/jobs/{job_id}/run", needs=Power.OPERATE, responses={200: responses.ManualRunResponse}
)
async def run_execution(request: ApiRequest, job_id: JobId, query: Annotated[ManualRunQuery, Query()]) -> Response:
    """Run one execution without calling a handler: it succeeds, or fails if force_fail or transient_fail is given.

    409 if the job is finished, blocked, or held by a worker.
    """
    if query.force_fail and query.transient_fail:
        raise InvalidInput("send either force_fail or transient_fail, not both", field="force_fail")
    outcome = ManualRun.FAIL if query.force_fail else ManualRun.RETRY if query.transient_fail else ManualRun.SUCCEED
    engine, caller = await request.engine(), request.caller
    result = await engine.jobs.run_manually(job_id, outcome, Scope(caller.person))
    return json_response(result.as_dict())


@router.route_for("POST", "/internal/jobs/{job_id}/transition", needs=Power.OPERATE, responses={200: responses.Job})
async def transition_job(request: ApiRequest, job_id: JobId, body: schemas.TransitionRequest) -> Response:
    """Move a job to another status. 409 if the contract has no transition to it from the job's status."""
    engine, caller = await request.engine(), request.caller
    job = await engine.jobs.transition(job_id, body.new_status, Scope(caller.person))
    return json_response(job_view(engine.contract(job.contract), job, payloads=caller.payloads))
