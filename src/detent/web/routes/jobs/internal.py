"""Executions without a handler and single transitions, to test a contract; served only with DETENT_INTERNAL=1."""

from typing import Annotated, cast

from fastapi import Query
from pydantic import Field

from detent.core.access import Power
from detent.core.errors import InvalidInput
from detent.engine.execution.manual_run import ManualRun
from detent.engine.reads import responses
from detent.web.http.route import ApiRequest, Router
from detent.web.openapi import schemas

from .filters import JobId

router = Router(tags=["internal"])


class ManualRunQuery(schemas.QueryParameters):
    force_fail: bool = Field(False, description="Fail with an error that is not retryable.")
    transient_fail: bool = Field(False, description="Fail with a retryable error.")


@router.route_for("POST", "/internal/jobs/{job_id}/run", Power.OPERATE)
async def run_execution(
    request: ApiRequest, job_id: JobId, query: Annotated[ManualRunQuery, Query()]
) -> responses.ManualRunResponse:
    """Run one execution without calling a handler: it succeeds, or fails if force_fail or transient_fail is given.

    409 if the job is finished, blocked, or held by a worker.
    """
    if query.force_fail and query.transient_fail:
        raise InvalidInput("send either force_fail or transient_fail, not both", field="force_fail")
    outcome = ManualRun.FAIL if query.force_fail else ManualRun.RETRY if query.transient_fail else ManualRun.SUCCEED
    return (await request.engine.jobs.run_manually(job_id, outcome, request.acting())).as_dict()


@router.route_for("POST", "/internal/jobs/{job_id}/transition", Power.OPERATE)
async def transition_job(
    request: ApiRequest, job_id: JobId, body: schemas.TransitionRequest
) -> responses.TransitionResponse:
    """Move a job to another status. 409 if the contract has no transition to it from the job's status.

    A worker that holds the job loses it; taken_from names it, here and in the job's log.
    """
    job = await request.engine.jobs.transition(job_id, body.new_status, request.acting())
    events = (await request.engine.jobs.history(job.id)).events
    data = [event.data or {} for event in events if event.at == job.updated_at and event.seq <= job.version]
    taken_from = next((entry["taken_from"] for entry in data if "taken_from" in entry), None)
    return cast(responses.TransitionResponse, request.job_view(job, taken_from=taken_from))
