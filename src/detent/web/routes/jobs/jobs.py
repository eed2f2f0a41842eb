"""Jobs: submit one or many, list, get, their events, why they are not running, verify."""

import asyncio
from dataclasses import asdict, replace
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from detent.core.access import Power
from detent.core.contract.model import Phase
from detent.core.errors import IdempotencyConflict, InvalidInput
from detent.core.job import Job
from detent.engine import Engine, Submission
from detent.engine.reads import responses
from detent.engine.reads.responses import JsonObject
from detent.engine.reads.views import NEWEST, LogCursor, progress_view
from detent.engine.reads.why import Why
from detent.engine.submit.prepare import Submitted
from detent.proof.verify.verify import Scope, verify
from detent.web.http.authentication import Caller
from detent.web.http.requests import disconnected
from detent.web.http.route import ApiRequest, Router, json_response
from detent.web.openapi.document import SUBMISSION_OPTIONS
from detent.web.openapi.schemas import IF_NONE_MATCH, QueryParameters, whole_number

from .filters import JobFilter, JobId, Page, Paged, Searched, check_ids_alone, etag_response, searched

T = TypeVar("T")
router = Router(tags=["jobs"])
SUBMISSION_FIELDS = {"job_type", *SUBMISSION_OPTIONS}
DEFAULT_TASK_TYPE = "task"
"""job_type of a submission without one, under a contract that identifies jobs by task_id."""
_SUBMISSION = {"$ref": "#/components/schemas/Submission"}
_BULK = {
    "type": "object",
    "required": ["jobs"],
    "additionalProperties": False,
    "properties": {"jobs": {"type": "array", "minItems": 1, "maxItems": 1000, "items": _SUBMISSION}},
}


def _body(schema: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


SUBMISSION = _body(_SUBMISSION)
"""The request body of a route that submits one job, for the OpenAPI document."""
TASK_SUBMISSION = _body({"$ref": "#/components/schemas/TaskSubmission"})
"""The same for a job of the contract men."""


@router.route_for(
    "POST",
    "/jobs",
    Power.SUBMIT,
    responses={201: responses.SubmitResponse, 200: responses.SubmitResponse},
    extra=SUBMISSION,
)
async def submit_job(request: ApiRequest) -> Response:
    """Submit a job: 201 if it is new, 200 if a job with this idempotency_key or task_id exists.

    409 IDEMPOTENCY_CONFLICT if the existing job differs; 422 if a value is invalid or the contract does not allow it;
    429 TENANT_BACKLOG_FULL if the tenant's quota is used up.

    Workers declare their job types: the declared options apply where the body has none, and the payload is checked (422
    PAYLOAD_INVALID). A type that no worker has declared is accepted with a warning, or refused (422 JOB_TYPE_UNKNOWN)
    by a server with --known-types-only.
    """
    (submitted,) = await submit_all(request, [await request.json()], fresh_id=request.fresh_id)
    location = f"{request.scope['path']}/{submitted.job.id}"
    return json_response(request.submitted_view(submitted), 200 if submitted.hit else 201, {"Location": location})


async def submit_all(request: ApiRequest, bodies: list[Any], *, fresh_id: str | None = None) -> list[Submitted]:
    """Submit the jobs of these bodies, all or none. fresh_id: of the only one."""
    engine, known_only = request.engine, request.web.settings.known_types_only
    submissions, warnings = [], []
    for body in bodies:
        submission = submission_of(engine, request.caller, body, fresh_id)
        if isinstance(submission.job_type, str):  # else the engine refuses it
            engine.reach.within_types({submission.job_type})  # before what a declaration says about the payload
        given = {name for name, value in body.items() if value is not None}
        submission, warning = await engine.declarations.apply(submission, given, known_only=known_only)
        submissions.append(submission)
        warnings.append((warning,) if warning else ())
    try:
        submitted = await engine.jobs.submit_many(submissions)
        return [replace(one, warnings=warning) for one, warning in zip(submitted, warnings, strict=True)]
    except IdempotencyConflict as conflict:
        if "task" in conflict.extra:  # as the caller may see it
            conflict.extra["task"] = request.task_view(await request.engine.jobs.get(conflict.extra["job_id"]))
        raise


@router.route_for("POST", "/jobs/bulk", Power.SUBMIT, status=201, extra=_body(_BULK))
async def submit_jobs(request: ApiRequest) -> responses.BulkSubmitResponse:
    """Submit up to 1,000 jobs in one transaction. If one is refused, none is submitted; errors as for one job."""
    body, max_jobs = await request.json(), request.web.settings.max_bulk
    jobs = body.get("jobs") if isinstance(body, dict) and body.keys() == {"jobs"} else None
    if not isinstance(jobs, list) or not 1 <= len(jobs) <= max_jobs:
        raise InvalidInput(f'send {{"jobs": [...]}} with 1 to {max_jobs} jobs', code="INPUT_INVALID", field="jobs")
    return {"items": [request.submitted_view(submitted) for submitted in await submit_all(request, jobs)]}


def submission_of(engine: Engine, caller: Caller, body: Any, fresh_id: str | None) -> Submission:
    """The submission in a request body. Checks the field names; the engine checks the values."""
    if not isinstance(body, dict):
        raise InvalidInput("send a JSON object", code="INPUT_INVALID", field="")
    unknown = body.keys() - SUBMISSION_FIELDS
    if unknown:
        names = ", ".join(sorted(unknown))[:200]
        raise InvalidInput(f"unknown fields: {names}; /docs lists all fields", code="FIELD_UNKNOWN", field=names)
    fields = {name: whole_number(value) for name, value in body.items() if value is not None}
    if "job_type" not in fields:
        if not engine.contract(fields.get("contract")).keys.task_id_is_key:
            raise InvalidInput("job_type is missing; it selects the handler", code="INPUT_INVALID", field="job_type")
        fields["job_type"] = DEFAULT_TASK_TYPE
    if not isinstance(fields.get("hold", False), bool):
        raise InvalidInput("hold must be true or false", code="INPUT_INVALID", field="hold")
    if caller.tenant is not None:
        fields["tenant_id"] = caller.tenant_for(fields.get("tenant_id"))
    return Submission(**fields, actor=caller.person, id=fresh_id)


@router.route_for("GET", "/jobs", Power.READ)
async def list_jobs(request: ApiRequest, query: Annotated[JobFilter, Query()]) -> Searched[responses.ListedJob]:
    """List jobs, newest first.

    A filter searches a bounded number of jobs per request, so that a page may be short or empty: `searched_until` says
    how far it looked; continue with next_cursor until it is null.
    """
    if query.id is not None:
        check_ids_alone(query)
        return searched(await _listed(request, await request.engine.jobs.get_many(query.id)), None)
    page, cursor = await request.engine.jobs.page(query.filter(request.caller))
    return searched(await _listed(request, page), cursor)


async def _listed(request: ApiRequest, jobs: list[Job]) -> list[responses.ListedJob]:
    """The jobs, the running ones with their progress."""
    running = [job.id for job in jobs if job.phase is Phase.LEASED]
    reports = await request.engine.store.read(lambda tx: tx.output.progress_of(running)) if running else {}
    views: list[Any] = []
    for job in jobs:
        report = reports.get(job.id)
        current = report if report is not None and report.execution_no == job.execution_no else None
        views.append(request.job_view(job, progress=progress_view(current, payloads=request.shows_payloads)))
    return views


class WaitQuery(QueryParameters):
    wait: float = Field(0, ge=0, le=20, description="Wait up to this many seconds until the job is finished.")


@router.route_for(
    "GET",
    "/jobs/{job_id}",
    Power.READ,
    responses={
        200: responses.Job,
        304: {"description": "Not changed since the response with the ETag in If-None-Match"},
    },
    extra={"parameters": [IF_NONE_MATCH]},
)
async def get_job(request: ApiRequest, job_id: JobId, query: Annotated[WaitQuery, Query()]) -> Response:
    """Get a job. Its ETag changes with every change of the job; send it as If-None-Match to get 304 until then.

    With `wait`, the answer comes when the job is finished, at the latest after so many seconds. 404 JOB_NOT_FOUND if it
    does not exist, 503 STREAMS_FULL if too many requests wait.
    """
    job = await request.engine.jobs.get(job_id)
    if query.wait and job.phase is not Phase.FINAL:
        job = await _wait_until_finished(request, job, query.wait)
    return etag_response(request, request.job_view(job))


async def _wait_until_finished(request: ApiRequest, job: Job, seconds: float) -> Job:
    """The job when it is finished, or after so many seconds. Ends early if the client disconnects or the server stops.

    The event tail of this process wakes the request, so that waiting requests do not query the database.
    """
    web, jobs = request.web, request.engine.jobs
    with web.stream_slot(request.caller):
        async with web.event_tail.watch_end(job.id) as ended:
            job = await jobs.get(job.id)
            if job.phase is Phase.FINAL:
                return job
            ends = (ended.wait(), web.stopping.wait(), disconnected(request.receive))
            tasks = [asyncio.ensure_future(end) for end in ends]
            try:
                await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
    await request.reauthenticate()
    return await jobs.get(job.id)


class EventPageQuery(Page):
    cursor: str | None = Field(
        None, pattern=r"^[0-9]{1,9}(\.[0-9]{1,18})?$", description="next_cursor of the previous page"
    )
    limit: int = Field(500, ge=1, le=5_000)
    order: Literal["asc", "desc"] = Field(
        "asc",
        description="asc: oldest first, with recorded steps, progress and log lines as notes. desc: newest first, "
        "without them; each page reads only its own entries.",
    )
    notes: bool = Field(True, description="false: only the status changes.")

    def cut_log(self, entries: list[T]) -> Paged[T]:
        end = int((self.cursor or "0").split(".")[0]) + self.limit
        return entries[end - self.limit : end], str(end) if end < len(entries) else None


@router.route_for("GET", "/jobs/{job_id}/events", Power.READ)
async def list_job_events(
    request: ApiRequest, job_id: JobId, query: Annotated[EventPageQuery, Query()]
) -> Paged[responses.Event]:
    """The log of a job: status changes and notes, oldest first, or newest first with order=desc."""
    if query.order == "desc":
        below = LogCursor(*map(int, query.cursor.split("."))) if query.cursor else NEWEST
        below = below if query.notes else below._replace(note=0)
        entries, following = await request.engine.jobs.newest_entries(job_id, query.limit, below)
        return entries, f"{following.seq}.{following.note}" if following else None
    history = await request.engine.jobs.history(job_id)
    log = history.entries(payloads=request.caller.payloads)
    return query.cut_log(log if query.notes else [entry for entry in log if not entry["note"]])


@router.route_for("GET", "/jobs/{job_id}/why", Power.READ, responses={200: responses.answer_of("WhyResponse", Why)})
async def explain_job(request: ApiRequest, job_id: JobId) -> JsonObject:
    """Explain why a job is not running: a code, a sentence, and details."""
    return asdict(await request.engine.jobs.why(job_id))


@router.route_for("GET", "/jobs/{job_id}/verify", Power.READ, responses={200: responses.VerifyReport})
async def verify_job(request: ApiRequest, job_id: JobId) -> JsonObject:
    """Compare a job's row with its log and its contract."""
    engine = request.engine
    job = await engine.jobs.get(job_id)
    return (await verify(engine.store, engine.contracts, Scope(job_id=job.id))).as_dict()
