"""The jobs of a filter as a file, NDJSON or CSV; and the search of the command palette."""

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import Field
from starlette.responses import Response, StreamingResponse

from detent.core.access import Power
from detent.core.errors import DetentError
from detent.core.job import Job
from detent.core.times import SECOND
from detent.engine.control.access import Forbidden, Unauthorized
from detent.engine.reads import responses
from detent.engine.reads.responses import show
from detent.engine.reads.search import search
from detent.ports.listing import Filter
from detent.web.http.problems import RetryLater
from detent.web.http.route import ApiRequest, Router
from detent.web.openapi import schemas

from .filters import JobSelection, Text

router = Router(tags=["jobs"])
MAX_ROWS = 1_000_000
_PAGE = 500
_PAGE_SECONDS = 1.0
CSV_COLUMNS = (
    *("id", "job_type", "status", "phase", "queue", "tenant_id", "contract", "priority", "execution_no"),
    *("created_at", "due_at", "started_at", "finished_at", "duration_seconds", "worker", "error_code"),
    *("error_message", "parent_id", "trace_id", "idempotency_key", "task_id", "requeued_from", "payload", "result"),
)
_FORMULA_STARTS = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "\n")
_FILE = {
    "description": "One job per line",
    "content": {"application/x-ndjson": {"schema": {"type": "string"}}, "text/csv": {"schema": {"type": "string"}}},
}


class ExportQuery(schemas.QueryParameters, JobSelection):
    """Query parameters of an export."""

    format: Literal["ndjson", "csv"] = "ndjson"
    limit: int = Field(100_000, ge=1, le=MAX_ROWS, description="At most this many jobs, the newest ones.")


@router.route_for("GET", "/jobs/export", Power.READ, responses={200: _FILE})
async def export_jobs(request: ApiRequest, query: Annotated[ExportQuery, Query()]) -> Response:
    """All jobs that match, newest first: one JSON object per line (NDJSON), or CSV with a header line.

    The answer is streamed: a long search sends nothing for a while. Text that a spreadsheet would run as a formula gets
    an apostrophe in front in CSV. Payload, result and error message are null if the token may not see payloads.
    """
    headers = {
        "Content-Disposition": f'attachment; filename="jobs.{query.format}"',
        "Cache-Control": "private, no-store",
    }
    media_type = "text/csv; charset=utf-8" if query.format == "csv" else "application/x-ndjson"
    key = request.caller.token_id or request.caller.person
    if request.web.streams[key] >= request.web.settings.max_streams_per_caller:
        message = "there are too many event streams and exports of this caller; close some, or retry later"
        raise RetryLater(message, code="STREAMS_FULL", http_status=503)
    pages = _pages(request, query)
    first: list[Job] = await anext(pages, [])  # an invalid filter is refused before the answer begins
    lines = (_csv_lines if query.format == "csv" else _json_lines)(request, _chained(first, pages))
    return StreamingResponse(_counted(request, key, lines), 200, headers, media_type)


async def _chained(first: list[Job], others: AsyncIterator[list[Job]]) -> AsyncIterator[list[Job]]:
    yield first
    async for page in others:
        yield page


async def _counted(request: ApiRequest, key: str, lines: AsyncIterator[str]) -> AsyncIterator[str]:
    streams = request.web.streams
    streams[key] += 1
    try:
        async for text in lines:
            yield text
    finally:
        streams[key] -= 1
        if not streams[key]:
            del streams[key]


async def _pages(request: ApiRequest, query: ExportQuery) -> AsyncIterator[list[Job]]:
    """Pages of at most 500 jobs, so that memory stays bounded. Ends early if the token becomes invalid."""
    filter: Filter = replace(query.filter(request.caller), limit=_PAGE)
    remaining = query.limit
    cursor: str | None = None
    while remaining > 0 and not request.web.stopping.is_set():
        if not await _still_allowed(request):
            return
        part = replace(filter, before=cursor, limit=min(_PAGE, remaining))
        page, cursor = await request.engine.jobs.page(part, seconds=_PAGE_SECONDS)
        remaining -= len(page)
        yield page
        if cursor is None:
            return
        await asyncio.sleep(0)


async def _still_allowed(request: ApiRequest) -> bool:
    try:
        return await request.web.authenticator.authenticate(request, "GET") == request.caller
    except (Unauthorized, Forbidden):
        return False
    except DetentError:
        return True  # without the store nothing is known about the token


async def _json_lines(request: ApiRequest, pages: AsyncIterator[list[Job]]) -> AsyncIterator[str]:
    async for page in pages:
        views = (request.job_view(job) for job in page)
        yield "".join(json.dumps(view, ensure_ascii=False, separators=(",", ":")) + "\n" for view in views)


async def _csv_lines(request: ApiRequest, pages: AsyncIterator[list[Job]]) -> AsyncIterator[str]:
    yield ",".join(CSV_COLUMNS) + "\r\n"
    async for page in pages:
        text = io.StringIO()
        csv.writer(text).writerows(_csv_row(request, job) for job in page)
        yield text.getvalue()


def _csv_row(request: ApiRequest, job: Job) -> list[Any]:
    view: dict[str, Any] = {**request.job_view(job)}
    if job.started_at is not None and job.finished_at is not None:
        view["duration_seconds"] = (job.finished_at - job.started_at) / SECOND
    return [_csv_cell(view.get(name)) for name in CSV_COLUMNS]


def _csv_cell(value: Any) -> Any:
    """The value as a cell; text that a spreadsheet would take for a formula gets an apostrophe in front."""
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value


class SearchQuery(schemas.QueryParameters):
    q: Text


@router.route_for("GET", "/search", Power.READ)
async def search_everything(request: ApiRequest, query: Annotated[SearchQuery, Query()]) -> responses.SearchResponse:
    """Find jobs by id, its first 8 or more digits, task id or idempotency key; dead letters by id; and others by name.

    Queues, job types and schedules are found by a part of their name. At most 8 of each kind.
    """
    result = await search(request.engine, query.q.strip())
    return {
        "jobs": [show(responses.FoundJob, job) for job in result.jobs],
        "dead_letters": [{"dlq_id": item.id, "job_type": item.job_type} for item in result.dead_letters],
        "queues": result.queues,
        "job_types": result.job_types,
        "schedules": [{"id": schedule.id, "name": schedule.name} for schedule in result.schedules],
    }
