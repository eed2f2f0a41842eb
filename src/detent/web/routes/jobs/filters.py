"""What routes share: ids from paths, cursors, pages, and answers that know whether they have changed."""

import json
import re
from hashlib import blake2b
from typing import Annotated, Any

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.responses import Response

from detent.core.errors import InvalidInput
from detent.web.http.route import ApiRequest
from detent.web.openapi.schemas import Name

MAX_PAGE = 500
_UUID = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
_ETAG = re.compile(r'(?:W/)?"[^"]*"')
JobId = Annotated[str, Path(min_length=1, max_length=200, pattern=r"^[!-~]+$", description="The job's id.")]
DeadLetterId = Annotated[
    str, Path(min_length=1, max_length=200, pattern=r"^[!-~]+$", description="The dead letter's id.")
]
Cursor = Annotated[str, StringConstraints(pattern=_UUID)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00]*$")]


class Page(BaseModel):
    """Query parameters of a list; what is not known here is refused, not ignored."""

    model_config = ConfigDict(extra="forbid")
    cursor: Cursor | None = Field(None, description="next_cursor of the page before")
    limit: int = Field(50, ge=1, le=MAX_PAGE)


class JobFilter(Page):
    status: Name | None = None
    phase: str | None = Field(None, pattern="^(claimable|leased|blocked|final)$")
    queue: Name | None = None
    contract: Name | None = None
    tenant: Name | None = None
    job_type: Name | None = None
    text: Text | None = Field(None, description="Found in ids, keys, error codes and, if you may see them, payloads.")


def tagged(asked: ApiRequest, value: Any) -> Response:
    """The answer with its ETag; 304 without a body if the caller has just this one."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
    tag = f'"{blake2b(text, digest_size=12).hexdigest()}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache", "Vary": "Authorization, Cookie"}
    known = asked.headers.get("if-none-match", "")
    if known.strip() == "*" or tag in [one.removeprefix("W/") for one in _ETAG.findall(known)]:
        return Response(None, 304, headers)
    return Response(text, 200, headers, "application/json")


def offset_of(cursor: str | None) -> int:
    """The cursor of a list that is numbered."""
    if cursor is None:
        return 0
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 9:
        raise InvalidInput("this is no cursor; pass on the one a page gave you", code="CURSOR_INVALID", field="cursor")
    return int(cursor)
