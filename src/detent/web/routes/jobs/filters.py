"""Shared by routes: path parameters, query parameters of lists, cursors, and responses with an ETag."""

import json
import re
from dataclasses import fields, replace
from hashlib import blake2b
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.responses import Response

from detent.core.errors import InvalidInput
from detent.core.job import Micros
from detent.core.options.option import PRINTABLE
from detent.core.times import SECOND, from_iso, iso, moment_of_id
from detent.engine.reads import responses
from detent.ports.listing import Filter
from detent.web.http.authentication import Caller
from detent.web.http.route import ApiRequest
from detent.web.openapi.schemas import Name, QueryParameters, any_of, in_path

T = TypeVar("T")
Paged = tuple[list[T], str | None]
"""A page of a list, and the cursor of the next page or None."""
Searched = tuple[list[T], str | None, responses.Timestamp | None]
"""A page of a search from new to old, the cursor to continue with, and the time up to which it has searched."""
MAX_PAGE = 500
UUID = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
_ETAG = re.compile(r'(?:W/)?"[^"]*"')
JobId = Annotated[str, in_path("The job's id, or the task_id of its task.", PRINTABLE)]
Cursor = Annotated[str, StringConstraints(pattern=UUID)]
Time = Annotated[str, StringConstraints(max_length=40), Field(json_schema_extra={"format": "date-time"})]
Text = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00]*$")]


class Page(QueryParameters):
    """Query parameters of a list."""

    cursor: Cursor | None = Field(None, description="next_cursor of the previous page")
    limit: int = Field(50, ge=1, le=MAX_PAGE)

    def cut(self, rows: list[T]) -> tuple[list[T], T | None]:
        """From up to limit + 1 rows: (the page, its last row if there is a next page)."""
        page = rows[: self.limit]
        return page, page[-1] if len(rows) > self.limit else None


def check_ids_alone(query: BaseModel) -> None:
    """Raise InvalidInput for a list of given ids that has filters or a page, too."""
    if others := query.model_fields_set - {"id", "fields"}:
        names = ", ".join(sorted(others))
        raise InvalidInput(f"id lists exactly these; send it without {names}", code="INPUT_INVALID", field="id")


class TenantFilter(BaseModel):
    """A tenant, under either of its names."""

    tenant_id: Name | None = None
    tenant: Name | None = Field(None, description="Another name of tenant_id.")

    def tenant_for(self, caller: Caller) -> str | None:
        """The tenant to act in. Raises TenantViolation if the caller's token is bound to another tenant."""
        return caller.tenant_for(self.given_tenant())

    def given_tenant(self) -> str | None:
        if None not in (self.tenant, self.tenant_id) and self.tenant != self.tenant_id:
            raise InvalidInput("tenant is another name of tenant_id; send one of them", field="tenant")
        return self.tenant_id or self.tenant


class Selection(TenantFilter):
    """Which rows a list shows: those that match every given field."""

    queue: Name | None = None
    contract: Name | None = None
    job_type: Name | None = None
    text: Text | None = Field(
        None,
        description="Text to search in ids, keys and error codes and, if the token may see payloads, in payloads and "
        "error messages.",
    )

    def filter(self, caller: Caller, **more: Any) -> Filter:
        """The filter for the engine, which limits it to what the caller may see."""
        values = self.model_dump(include=_FILTERS) | {"tenant_id": self.tenant_for(caller)}
        values |= {name: _moment(values.get(name), name) for name in ("since", "until")}
        return Filter(**values, before=getattr(self, "cursor", None), **more)


def _moment(text: str | None, field: str) -> Micros | None:
    return None if text is None else from_iso(text, field=field)


class EndedSelection(Selection):
    """The same for jobs and dead letters, which have an end."""

    error_code: Name | None = Field(None, description="Only those that ended with this error code.")
    since: Time | None = Field(None, description="Created at this time or later.")
    until: Time | None = Field(None, description="Created at this time or earlier.")


_FILTERS = {field.name for field in fields(Filter)} - {"tenant_id", "before", "ids"}


def ids_or_filter(*filters: str) -> ConfigDict:
    """The configuration of a body that has either `ids` or some of these filters."""
    null = {"type": "null"}
    return any_of({"properties": {"ids": null}}, {"properties": dict.fromkeys(filters, null)})


class JobSelection(EndedSelection):
    """Which jobs. Filters by parent_id, trace_id and error_code read only the jobs that have it; others search the jobs
    from the newest to older ones."""

    status: Name | list[Name] | None = Field(
        None, min_length=1, max_length=50, description="Any of these statuses; repeat it."
    )
    phase: responses.PhaseName | None = None
    error_code: Name | None = Field(
        None,
        description="Only jobs that ended with this error code; with a phase other than final: whose last failure has "
        "this code.",
    )
    parent_id: Name | None = Field(None, description="Only the children of this job.")
    roots: bool | None = Field(None, description="true: only jobs without a parent; false: only children.")
    worker: Name | None = Field(None, description="Only jobs that this worker has claimed.")
    trace_id: Name | None = Field(None, description="Only jobs of this trace.")
    task_id: Name | None = Field(None, description="Only jobs of this task, under any contract.")
    min_duration_seconds: float | None = Field(
        None, ge=0, le=1e9, description="From the first start to the end, or to now if the job has not ended."
    )
    max_duration_seconds: float | None = Field(None, ge=0, le=1e9)
    min_attempts: int | None = Field(None, ge=0, le=1_000_000, description="Number of executions so far.")
    max_attempts: int | None = Field(None, ge=0, le=1_000_000)

    def filter(self, caller: Caller, **more: Any) -> Filter:
        statuses = [self.status] if isinstance(self.status, str) else self.status or []
        chosen = super().filter(caller, **more)
        status = statuses[0] if len(statuses) == 1 else None
        return replace(
            chosen,
            status=status,
            statuses=tuple(statuses) if len(statuses) > 1 else None,
            min_duration=_duration(self.min_duration_seconds),
            max_duration=_duration(self.max_duration_seconds),
        )


def _duration(seconds: float | None) -> Micros | None:
    return None if seconds is None else int(seconds * SECOND)


class JobFilter(Page, JobSelection):
    """Query parameters of the list of jobs."""

    id: list[Cursor] | None = Field(
        None,
        max_length=100,
        description="Exactly these jobs; repeat it. Of the other parameters only fields goes with it.",
    )


def searched(rows: list[T], cursor: str | None) -> Searched[T]:
    """The page; the time up to which it searched is that of the cursor, because ids begin with their time."""
    return rows, cursor, iso(moment_of_id(cursor)) if cursor else None


def etag_response(request: ApiRequest, value: Any) -> Response:
    """A JSON response with an ETag; 304 without a body if the request's If-None-Match has this ETag."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
    etag = f'"{blake2b(text, digest_size=12).hexdigest()}"'
    headers = {"ETag": etag, "Cache-Control": "private, no-cache", "Vary": "Authorization, Cookie"}
    none_match = request.headers.get("if-none-match", "")
    if none_match.strip() == "*" or etag in [sent.removeprefix("W/") for sent in _ETAG.findall(none_match)]:
        return Response(None, 304, headers)
    return Response(text, 200, headers, "application/json")
