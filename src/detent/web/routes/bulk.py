"""One act on many jobs: those that are named, or a page of those that match; a dry run counts them first."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict

from pydantic import Field
from starlette.responses import Response

from ...core.contract import Move, Phase
from ...core.errors import InvalidInput
from ...core.job import Job
from ...core.people import Power
from ...engine import Engine
from ...engine.listing import list_jobs
from ...engine.many import Done, cancel_many, requeue_many
from .. import page_shapes, shapes
from ..guard import Asked, Router, answer
from ..people import Caller
from .jobs import filter_of
from .reading import Cursor, JobFilter, Text

router = Router(tags=["jobs"])
_PAGE = 500
_COUNTED = 5_000


class Many(shapes.Because):
    """Which jobs. ids: these; otherwise all that match, a page at a time: go on with next_cursor until it is null."""

    ids: list[str] | None = Field(None, min_length=1, max_length=_PAGE)
    status: shapes.Name | None = None
    phase: str | None = Field(None, pattern="^(claimable|leased|blocked|final)$")
    queue: shapes.Name | None = None
    contract: shapes.Name | None = None
    tenant: shapes.Name | None = None
    job_type: shapes.Name | None = None
    text: Text | None = None
    cursor: Cursor | None = None
    dry_run: bool = True


@router.route_for("POST", "/bulk/cancel", needs=Power.OPERATE, answers={200: page_shapes.BulkDone})
async def cancel(asked: Asked, body: Many) -> Response:
    """Cancel those that are not at their end."""
    return await _page(asked, body, _can_cancel, cancel_many)


@router.route_for("POST", "/bulk/requeue", needs=Power.OPERATE, answers={200: page_shapes.BulkDone})
async def requeue(asked: Asked, body: Many) -> Response:
    """Make new jobs of those that have ended."""
    return await _page(asked, body, _can_requeue, requeue_many)


def _can_cancel(engine: Engine, job: Job) -> bool:
    return engine.contract(job.contract).edge(job.status, Move.CANCEL) is not None and job.cancel_requested is None


def _can_requeue(engine: Engine, job: Job) -> bool:
    return job.phase is Phase.FINAL


async def _page(
    asked: Asked, body: Many, fits: Callable[[Engine, Job], bool], act: Callable[..., Awaitable[Done]]
) -> Response:
    engine, who = await asked.engine(), asked.caller
    found, cursor = await _found(engine, who, body)
    fitting = [job.id for job in found if fits(engine, job)]
    done = Done()
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
