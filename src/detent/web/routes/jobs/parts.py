"""Lists that belong to one job: recorded steps, children, captured log lines."""

from typing import Annotated

from fastapi import Query
from pydantic import Field

from detent.core.access import Power
from detent.engine.reads import responses
from detent.engine.reads.responses import show
from detent.engine.reads.tree import NamedChild
from detent.engine.reads.views import progress_view, step_view
from detent.web.http.route import ApiRequest, Router
from detent.web.openapi.schemas import Name

from .filters import JobId, Page, Paged, Text

router = Router(tags=["jobs"])
_MAX_ROWS = 1_000


class StepPage(Page):
    cursor: str | None = Field(None, pattern="^[0-9]{1,9}$", description="next_cursor of the previous page")
    limit: int = Field(100, ge=1, le=_MAX_ROWS)
    name: Text | None = Field(None, description="Only the step with this name.")
    results: bool = Field(True, description="false: leave out the results.")


@router.route_for("GET", "/jobs/{job_id}/steps", Power.READ)
async def list_job_steps(
    request: ApiRequest, job_id: JobId, query: Annotated[StepPage, Query()]
) -> Paged[responses.StepRecord]:
    """The recorded steps of a job, in the order in which they started."""
    offset = int(query.cursor or 0)
    rows = await request.engine.jobs.steps(job_id, query.limit + 1, offset, name=query.name, results=query.results)
    page, last = query.cut(rows)
    return [step_view(step) for step in page], str(offset + query.limit) if last else None


class ChildPage(Page):
    limit: int = Field(100, ge=1, le=_MAX_ROWS)
    status: Name | None = None
    phase: str | None = Field(None, pattern="^(claimable|leased|blocked|final)$")


@router.route_for("GET", "/jobs/{job_id}/children", Power.READ)
async def list_job_children(
    request: ApiRequest, job_id: JobId, query: Annotated[ChildPage, Query()]
) -> Paged[responses.ChildJob]:
    """The children of a job, each with its name and the siblings it runs after, in the order of their ids."""
    engine, filters = request.engine, {"phase": query.phase, "status": query.status}
    page, last = query.cut(await engine.jobs.children(job_id, query.cursor, query.limit + 1, **filters))
    return [_child(child, payloads=engine.payloads) for child in page], last.row.id if last else None


def _child(child: NamedChild, *, payloads: bool) -> responses.ChildJob:
    progress = progress_view(child.progress, payloads=payloads)
    return show(responses.ChildJob, child.row, name=child.name, after=child.after, progress=progress)


class LogPage(Page):
    cursor: str | None = Field(
        None,
        pattern=r"^[0-9]{1,9}\.[0-9]{1,9}$",
        description="execution_no.n of a line: only later lines. Without it, the newest lines.",
    )
    limit: int = Field(200, ge=1, le=_MAX_ROWS)


@router.route_for("GET", "/jobs/{job_id}/logs", Power.READ)
async def list_job_logs(
    request: ApiRequest, job_id: JobId, query: Annotated[LogPage, Query()]
) -> Paged[responses.LogLine]:
    """The captured log lines of a job whose type has capture_logs, oldest first; those of a running execution too.

    To follow a running job, send the position of the last line that you have, as execution_no.n, as cursor.
    """
    after = None
    if query.cursor is not None:
        execution_no, n = query.cursor.split(".")
        after = int(execution_no), int(n)
    lines = await request.engine.jobs.log_lines(job_id, after, query.limit)
    is_full = after is not None and len(lines) == query.limit
    cursor = f"{lines[-1].execution_no}.{lines[-1].n}" if is_full else None
    return [show(responses.LogLine, line) for line in lines], cursor
