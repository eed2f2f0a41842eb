"""Actions on many jobs: those with given ids, or a page of those that match a filter; a dry run only counts them."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from typing import Annotated

from pydantic import Field

from detent.core.access import Power, Scope
from detent.core.contract.model import Move, Phase
from detent.core.errors import InvalidInput
from detent.core.job import Job
from detent.engine import Engine
from detent.engine.jobs import BulkResult, Jobs
from detent.engine.reads import responses
from detent.engine.reads.responses import JsonObject
from detent.web.http.authentication import Caller
from detent.web.http.route import ApiRequest, Router
from detent.web.openapi import schemas

from .filters import Cursor, JobSelection

router = Router(tags=["jobs"])
_PAGE = 500
_DRY_RUN_PAGE = 5_000
BulkResponse = responses.answer_of(
    "JobBulkResponse",
    BulkResult,
    dry_run=bool,
    matched=Annotated[int, "Number of jobs on this page that match."],
    fitting=Annotated[int, "Number of those whose status allows the action."],
    next_cursor=Annotated[str | None, "Send it to continue; null on the last page."],
)


class JobBulkRequest(schemas.ReasonRequest, JobSelection):
    """Either ids, or a filter. A filter is applied page by page: send next_cursor as cursor until it is null."""

    ids: list[str] | None = Field(None, min_length=1, max_length=_PAGE)
    cursor: Cursor | None = Field(None, description="next_cursor of the previous response")
    dry_run: bool = Field(True, description="Only count the jobs.")


@router.route_for("POST", "/bulk/cancel", Power.OPERATE, responses={200: BulkResponse})
async def cancel_jobs(request: ApiRequest, body: JobBulkRequest) -> JsonObject:
    """Cancel many jobs: those whose contract allows it and whose cancellation is not requested yet.

    With dry_run, the default, only count them.
    """
    return await _act_on_page(request, body, _can_cancel, Jobs.cancel_many)


@router.route_for("POST", "/bulk/requeue", Power.OPERATE, responses={200: BulkResponse})
async def requeue_jobs(request: ApiRequest, body: JobBulkRequest) -> JsonObject:
    """Requeue many finished jobs as new jobs. With dry_run, the default, only count them."""
    return await _act_on_page(request, body, lambda _, job: job.phase is Phase.FINAL, Jobs.requeue_many)


def _can_cancel(engine: Engine, job: Job) -> bool:
    return engine.contract(job.contract).edge(job.status, Move.CANCEL) is not None and job.cancel_requested is None


async def _act_on_page(
    request: ApiRequest,
    body: JobBulkRequest,
    is_allowed: Callable[[Engine, Job], bool],
    action: Callable[[Jobs, Sequence[str], Scope], Awaitable[BulkResult]],
) -> JsonObject:
    engine = request.engine
    jobs, cursor = await _matching_jobs(engine, request.caller, body)
    allowed_ids = [job.id for job in jobs if is_allowed(engine, job)]
    result = BulkResult()
    if not body.dry_run:
        result = await action(engine.jobs, allowed_ids, request.acting(body))
    counts = {"dry_run": body.dry_run, "matched": len(jobs), "fitting": len(allowed_ids)}
    return {**counts, **asdict(result), "next_cursor": cursor}


async def _matching_jobs(engine: Engine, caller: Caller, body: JobBulkRequest) -> tuple[list[Job], str | None]:
    if body.ids is None:
        return await engine.jobs.page(body.filter(caller, limit=_DRY_RUN_PAGE if body.dry_run else _PAGE))
    if body.model_dump(include={*JobSelection.model_fields, "cursor"}, exclude_none=True):
        raise InvalidInput("send either ids or a filter, not both", code="INPUT_INVALID", field="ids")
    rows = await engine.store.read(lambda tx: tx.jobs.lock(list(dict.fromkeys(body.ids or ()))))
    return [job for job in rows.values() if caller.tenant is None or job.tenant_id == caller.tenant], None
