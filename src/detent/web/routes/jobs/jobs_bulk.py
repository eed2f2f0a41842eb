"""Actions on many jobs: those with given ids, or a page of those that match a filter; a dry run only counts them."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict

from pydantic import Field
from starlette.responses import Response

from detent.core.access import Power
from detent.core.contract.model import Move, Phase
from detent.core.errors import InvalidInput
from detent.core.job import Job
from detent.engine import Engine
from detent.engine.control.jobs_bulk import BulkResult, cancel_many, requeue_many
from detent.engine.reads.listing import list_jobs
from detent.web.http.authentication import Caller
from detent.web.http.route import ApiRequest, Router, json_response
from detent.web.openapi import page_schemas, schemas

from .filters import Cursor, JobFilter, Text
from .jobs import filter_of

router = Router(tags=["jobs"])
_PAGE = 500
_DRY_RUN_PAGE = 5_000


class JobBulkRequest(schemas.ReasonRequest):
    """Either ids, or a filter. A filter is applied page by page: send next_cursor as cursor until it is null."""

    ids: list[str] | None = Field(None, min_length=1, max_length=_PAGE)
    status: schemas.Name | None = None
    phase: str | None = Field(None, pattern="^(claimable|leased|blocked|final)$")
    queue: schemas.Name | None = None
    contract: schemas.Name | None = None
    tenant: schemas.Name | None = None
    job_type: schemas.Name | None = None
    text: Text | None = None
    cursor: Cursor | None = Field(None, description="next_cursor of the previous response")
    dry_run: bool = Field(True, description="Only count the jobs.")


@router.route_for("POST", "/bulk/cancel", needs=Power.OPERATE, responses={200: page_schemas.JobBulkResponse})
async def cancel_jobs(request: ApiRequest, body: JobBulkRequest) -> Response:
    """Cancel many jobs: those whose contract allows it and whose cancellation is not requested yet.

    With dry_run, the default, only count them.
    """
    return await _act_on_page(request, body, _can_cancel, cancel_many)


@router.route_for("POST", "/bulk/requeue", needs=Power.OPERATE, responses={200: page_schemas.JobBulkResponse})
async def requeue_jobs(request: ApiRequest, body: JobBulkRequest) -> Response:
    """Requeue many finished jobs as new jobs. With dry_run, the default, only count them."""
    return await _act_on_page(request, body, _can_requeue, requeue_many)


def _can_cancel(engine: Engine, job: Job) -> bool:
    return engine.contract(job.contract).edge(job.status, Move.CANCEL) is not None and job.cancel_requested is None


def _can_requeue(engine: Engine, job: Job) -> bool:
    return job.phase is Phase.FINAL


async def _act_on_page(
    request: ApiRequest,
    body: JobBulkRequest,
    is_allowed: Callable[[Engine, Job], bool],
    action: Callable[..., Awaitable[BulkResult]],
) -> Response:
    engine, caller = await request.engine(), request.caller
    jobs, cursor = await _matching_jobs(engine, caller, body)
    allowed_ids = [job.id for job in jobs if is_allowed(engine, job)]
    result = BulkResult()
    if not body.dry_run:
        result = await action(engine, allowed_ids, actor=caller.person, reason=body.reason, tenant=caller.tenant)
    counts = {"dry_run": body.dry_run, "matched": len(jobs), "fitting": len(allowed_ids)}
    return json_response({**counts, **asdict(result), "next_cursor": cursor})


async def _matching_jobs(engine: Engine, caller: Caller, body: JobBulkRequest) -> tuple[list[Job], str | None]:
    fields = body.model_dump(include={"status", "phase", "queue", "contract", "tenant", "job_type", "text", "cursor"})
    if body.ids is None:
        query = JobFilter.model_construct(**fields, limit=_DRY_RUN_PAGE if body.dry_run else _PAGE)
        return await list_jobs(engine, filter_of(caller, query))
    if any(value is not None for value in fields.values()):
        raise InvalidInput("send either ids or a filter, not both", code="INPUT_INVALID", field="ids")
    rows = await engine.store.read(lambda tx: tx.jobs.lock(list(dict.fromkeys(body.ids or ()))))
    return [job for job in rows.values() if caller.tenant is None or job.tenant_id == caller.tenant], None
