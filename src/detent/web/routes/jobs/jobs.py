"""Jobs: submit one or many, list, show, their events, why they are not running, whether their log is sound."""

from typing import Annotated, Any

from fastapi import Query
from pydantic import Field
from starlette.responses import Response

from detent.core.access import Power
from detent.core.contract.model import Contract
from detent.core.errors import IdempotencyConflict, InvalidInput
from detent.engine import Engine, Submission
from detent.engine.reads.listing import list_jobs
from detent.engine.reads.views import history_view, job_view, submitted_view
from detent.engine.reads.why import why
from detent.engine.submit.prepare import Submitted
from detent.ports.listing import Filter
from detent.proof.verify.verify import Scope, verify
from detent.web.http.authentication import Caller
from detent.web.http.route import ApiRequest, Router, answer
from detent.web.openapi import schemas

from .filters import JobFilter, JobId, Page, offset_of, tagged

router = Router(tags=["jobs"])
FIELDS = frozenset(
    {
        "job_type",
        "payload",
        "contract",
        "queue",
        "tenant_id",
        "idempotency_key",
        "idempotency_scope",
        "task_id",
        "schedule_type",
        "scheduled_at",
        "timeout_ms",
        "max_retries",
        "priority",
        "trace_id",
        "hold",
        "limit_key",
        "deadline",
    }
)
TASK = "task"
"""The type of a job under a contract that makes tasks, where none is named."""
_SUBMISSION = {"$ref": "#/components/schemas/Submission"}
_BULK = {
    "type": "object",
    "required": ["jobs"],
    "additionalProperties": False,
    "properties": {"jobs": {"type": "array", "minItems": 1, "maxItems": 1000, "items": _SUBMISSION}},
}


def _body(schema: dict[str, Any]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


@router.route_for(
    "POST",
    "/jobs",
    needs=Power.OPERATE,
    answers={201: schemas.Submitted, 200: schemas.Submitted},
    extra=_body(_SUBMISSION),
)
async def submit(asked: ApiRequest) -> Response:
    """Submit a job: 201 if it is new, 200 if its idempotency_key or task_id was known."""
    engine = await asked.engine()
    ask = submission(engine, asked.caller, await asked.json(), asked.fresh_id)
    try:
        made = await engine.submit(ask)
    except IdempotencyConflict as conflict:
        raise _without_texts(conflict, asked.caller) from None
    view = submitted_view(engine.contract(made.job.contract), made, payloads=asked.caller.payloads)
    return answer(view, 200 if made.hit else 201, {"Location": f"{asked.scope['path']}/{made.job.id}"})


@router.route_for("POST", "/jobs/bulk", needs=Power.OPERATE, answers={201: schemas.SubmittedMany}, extra=_body(_BULK))
async def submit_many(asked: ApiRequest) -> Response:
    """Submit up to 1,000 jobs in one commit: all, or none."""
    body, most = await asked.json(), asked.web.settings.max_bulk
    jobs = body.get("jobs") if isinstance(body, dict) and body.keys() == {"jobs"} else None
    if not isinstance(jobs, list) or not 1 <= len(jobs) <= most:
        raise InvalidInput(f'send {{"jobs": [...]}} with 1 to {most} jobs', code="INPUT_INVALID", field="jobs")
    engine = await asked.engine()
    asks = [submission(engine, asked.caller, one, None) for one in jobs]
    try:
        made = await engine.submit_many(asks)
    except IdempotencyConflict as conflict:
        raise _without_texts(conflict, asked.caller) from None
    return answer({"items": [_shown(engine, one, asked.caller) for one in made]}, 201)


def submission(engine: Engine, caller: Caller, body: Any, fresh_id: str | None) -> Submission:
    """A body as a request to the engine, which checks each value."""
    if not isinstance(body, dict):
        raise InvalidInput("send one JSON object", code="INPUT_INVALID", field="")
    unknown = body.keys() - FIELDS
    if unknown:
        named = ", ".join(sorted(unknown))[:200]
        raise InvalidInput(f"unknown fields: {named}; /docs lists the known", code="FIELD_UNKNOWN", field=named)
    told = {name: _whole(value) for name, value in body.items() if value is not None}
    if "job_type" not in told:
        told["job_type"] = _unnamed_type(engine.contract(told.get("contract")))
    if not isinstance(told.get("hold", False), bool):
        raise InvalidInput("hold is true or false", code="INPUT_INVALID", field="hold")
    if caller.tenant is not None:
        told["tenant_id"] = caller.tenant_for(told.get("tenant_id"))
    return Submission(**told, actor=caller.person, id=fresh_id)


def _whole(value: Any) -> Any:
    """In JSON 3.0 is a whole number too."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _unnamed_type(contract: Contract) -> str:
    if contract.keys.task_id_is_key:
        return TASK
    raise InvalidInput(
        "job_type is missing; it says which handler runs the job", code="INPUT_INVALID", field="job_type"
    )


def _shown(engine: Engine, made: Submitted, caller: Caller) -> dict[str, Any]:
    return submitted_view(engine.contract(made.job.contract), made, payloads=caller.payloads)


def _without_texts(conflict: IdempotencyConflict, caller: Caller) -> IdempotencyConflict:
    """A conflict shows the task it is about, but not what failed in it to those who may not know."""
    if not caller.payloads:
        conflict.extra.pop("task", None)
    return conflict


@router.route_for("GET", "/jobs", needs=Power.READ, answers={200: schemas.Jobs})
async def listing(asked: ApiRequest, chosen: Annotated[JobFilter, Query()]) -> Response:
    """Newest first. With a filter a page may be short and still have a next_cursor: go on until it is null."""
    caller, engine = asked.caller, await asked.engine()
    page, cursor = await list_jobs(engine, filter_of(caller, chosen))
    shown = [job_view(engine.contract(job.contract), job, payloads=caller.payloads) for job in page]
    return answer({"jobs": shown, "next_cursor": cursor})


def filter_of(caller: Caller, chosen: JobFilter) -> Filter:
    return Filter(
        contract=chosen.contract,
        status=chosen.status,
        phase=chosen.phase,
        queue=chosen.queue,
        tenant_id=caller.tenant_for(chosen.tenant),
        job_type=chosen.job_type,
        text=chosen.text if caller.payloads else None,
        text_outside=None if caller.payloads else chosen.text,
        before=chosen.cursor,
        limit=chosen.limit,
    )


@router.route_for(
    "GET",
    "/jobs/{job_id}",
    needs=Power.READ,
    answers={200: schemas.Job, 304: {"description": "it is as you know it (If-None-Match)"}},
)
async def show(asked: ApiRequest, job_id: JobId) -> Response:
    """One job. Its ETag changes whenever anything of it does."""
    engine, caller = await asked.engine(), asked.caller
    job = await engine.job(job_id, tenant=caller.tenant)
    return tagged(asked, job_view(engine.contract(job.contract), job, payloads=caller.payloads))


class EventPage(Page):
    cursor: str | None = Field(None, pattern="^[0-9]{1,9}$", description="next_cursor of the page before")
    limit: int = Field(500, ge=1, le=5_000)


@router.route_for("GET", "/jobs/{job_id}/events", needs=Power.READ, answers={200: schemas.Events})
async def events(asked: ApiRequest, job_id: JobId, page: Annotated[EventPage, Query()]) -> Response:
    """Everything that happened to a job, notes included, in order."""
    engine, caller = await asked.engine(), asked.caller
    told = await engine.history(job_id, tenant=caller.tenant)
    rows = history_view(told.contract, told.job, told.events, told.notes, payloads=caller.payloads)
    start = offset_of(page.cursor)
    end = start + page.limit
    return answer({"events": rows[start:end], "next_cursor": str(end) if end < len(rows) else None})


@router.route_for("GET", "/jobs/{job_id}/why", needs=Power.READ, answers={200: schemas.Why})
async def why_not(asked: ApiRequest, job_id: JobId) -> Response:
    """Why a job is not running, in words."""
    caller = asked.caller
    return answer((await why(await asked.engine(), job_id, caller.tenant, payloads=caller.payloads)).as_dict())


@router.route_for("GET", "/jobs/{job_id}/verify", needs=Power.READ, answers={200: schemas.Verified})
async def verified(asked: ApiRequest, job_id: JobId) -> Response:
    """Fold the job's log and compare it with its row."""
    engine = await asked.engine()
    job = await engine.job(job_id, tenant=asked.caller.tenant)
    report = await verify(engine.store, engine.contracts, Scope(job_id=job.id))
    return answer(report.as_dict())
