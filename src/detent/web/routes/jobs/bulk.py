"""One act on many jobs: those that are named, or a page of those that match; a dry run counts them first."""

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
from detent.web.http.route import ApiRequest, Router, answer
from detent.web.openapi import page_schemas, schemas

from .filters import Cursor, JobFilter, Text
from .jobs import filter_of

router = Router(tags=["jobs"])
_PAGE = 500
_COUNTED = 5_000


class Many(schemas.Because):
    """Which jobs. ids: these; otherwise all that match, a page at a time: go on with next_cursor until it is null."""

    ids: list[str] | None = Field(None, min_length=1, max_length=_PAGE)
    status: schemas.Name | None = None
    phase: str | None = Field(None, pattern="^(claimable|leased|blocked|final)$")
    queue: schemas.Name | None = None
    contract: schemas.Name | None = None
    tenant: schemas.Name | None = None
    job_type: schemas.Name | None = None
    text: Text | None = None
    cursor: Cursor | None = None
    dry_run: bool = True


@router.route_for("POST", "/bulk/cancel", needs=Power.OPERATE, answers={200: page_schemas.BulkDone})
async def cancel(asked: ApiRequest, body: Many) -> Response:
    """Cancel those that are not at their end."""
    return await _page(asked, body, _can_cancel, cancel_many)


@router.route_for("POST", "/bulk/requeue", needs=Power.OPERATE, answers={200: page_schemas.BulkDone})
async def requeue(asked: ApiRequest, body: Many) -> Response:
    """Make new jobs of those that have ended."""
    return await _page(asked, body, _can_requeue, requeue_many)


def _can_cancel(engine: Engine, job: Job) -> bool:
    return engine.contract(job.contract).edge(job.status, Move.CANCEL) is not None and job.cancel_requested is None


def _can_requeue(engine: Engine, job: Job) -> bool:
    return job.phase is Phase.FINAL


async def _page(
    asked: ApiRequest, body: Many, fits: Callable[[Engine, Job], bool], act: Callable[..., Awaitable[BulkResult]]
) -> Response:
    engine, who = await asked.engine(), asked.caller
    found, cursor = await _found(engine, who, body)
    fitting = [job.id for job in found if fits(engine, job)]
    done = BulkResult()
    if not body.dry_run:
        done = await act(engine, fitting, actor=who.person, reason=body.reason, tenant=who.tenant)
    counts = {"dry_run": body.dry_run, "matched": len(found), "fitting": len(fitting)}
    return answer({**counts, **asdict(done), "next_cursor": cursor})


async def _found(engine: Engine, caller: Caller, body: Many) -> tuple[list[Job], str | None]:
    chosen = body.model_dump(include={"status", "phase", "queue", "contract", "tenant", "job_type", "text", "cursor"})
    if body.ids is None:
        wanted = JobFilter.model_construct(**chosen, limit=_COUNTED if body.dry_run else _PAGE)
        return await list_jobs(engine, filter_of(caller, wanted))
    if any(value is not None for value in chosen.values()):
        raise InvalidInput("name the jobs or say which match, not both", code="INPUT_INVALID", field="ids")
    rows = await engine.store.read(lambda tx: tx.lock(list(dict.fromkeys(body.ids or ()))))
    return [job for job in rows.values() if caller.tenant is None or job.tenant_id == caller.tenant], None
