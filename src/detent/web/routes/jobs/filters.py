"""Shared by routes: path parameters, query parameters of lists, cursors, and responses with an ETag."""

import json
import re
from hashlib import blake2b
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, StringConstraints
from starlette.responses import Response

from detent.core.errors import InvalidInput
from detent.core.options.option import PRINTABLE
from detent.ports.listing import Filter
from detent.web.http.authentication import Caller
from detent.web.http.route import ApiRequest
from detent.web.openapi.schemas import Name, QueryParameters, in_path

T = TypeVar("T")
Paged = tuple[list[T], str | None]
"""A page of a list, and the cursor of the next page or None."""
MAX_PAGE = 500
_UUID = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
_ETAG = re.compile(r'(?:W/)?"[^"]*"')
JobId = Annotated[str, in_path("The job's id, or the task_id of its task.", PRINTABLE)]
Cursor = Annotated[str, StringConstraints(pattern=_UUID)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00]*$")]


class Page(QueryParameters):
    """Query parameters of a list."""

    cursor: Cursor | None = Field(None, description="next_cursor of the previous page")
    limit: int = Field(50, ge=1, le=MAX_PAGE)

    def cut(self, rows: list[T]) -> tuple[list[T], T | None]:
        """From up to limit + 1 rows: (the page, its last row if there is a next page)."""
        page = rows[: self.limit]
        return page, page[-1] if len(rows) > self.limit else None


class TenantFilter(BaseModel):
    tenant_id: Name | None = None
    tenant: Name | None = Field(None, description="Another name of tenant_id.")

    def tenant_for(self, caller: Caller) -> str | None:
        """The tenant to filter by. Raises TenantViolation if the caller's token is bound to another tenant."""
        if None not in (self.tenant, self.tenant_id) and self.tenant != self.tenant_id:
            raise InvalidInput("tenant is another name of tenant_id; send one of them", field="tenant")
        return caller.tenant_for(self.tenant_id or self.tenant)


class Selection(TenantFilter):
    """Which rows a list shows or an action changes: those that match every given field."""

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
        return Filter(**values, before=getattr(self, "cursor", None), **more)


_FILTERS = {"text", "queue", "contract", "job_type", "status", "phase", "error_code", "task_id", "limit"}


class JobSelection(Selection):
    status: Name | None = None
    phase: Literal["claimable", "leased", "blocked", "final"] | None = None


class JobFilter(Page, JobSelection):
    """Query parameters of the list of jobs."""

    task_id: Name | None = Field(None, description="Only jobs of this task, under any contract.")


def etag_response(request: ApiRequest, value: Any) -> Response:
    """A JSON response with an ETag; 304 without a body if the request's If-None-Match has this ETag."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
    etag = f'"{blake2b(text, digest_size=12).hexdigest()}"'
    headers = {"ETag": etag, "Cache-Control": "private, no-cache", "Vary": "Authorization, Cookie"}
    none_match = request.headers.get("if-none-match", "")
    if none_match.strip() == "*" or etag in [sent.removeprefix("W/") for sent in _ETAG.findall(none_match)]:
        return Response(None, 304, headers)
    return Response(text, 200, headers, "application/json")
