"""Errors as problem+json (RFC 9457): a stable code, retryable, trace_id, and further members depending on the code."""

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from detent.core.errors import DetentError
from detent.system.ids import RandomIds

log = logging.getLogger("detent.web")
MEDIA = "application/problem+json"
_ids = RandomIds()
_ROUTING = {
    404: ("ROUTE_NOT_FOUND", "no such endpoint; /docs lists all endpoints"),
    405: (
        "METHOD_NOT_ALLOWED",
        "this endpoint does not support the method; the Allow header lists the supported methods",
    ),
}
_RESERVED = {"status": "job_status", "type": "problem_type", "title": "problem_title", "detail": "details"}


class RetryLater(DetentError):
    """The same request may succeed later."""

    retryable = True


def new_trace() -> str:
    return f"req-{_ids.job()}"


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    retryable: bool = False,
    trace_id: str | None = None,
    extra: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A problem+json response. An extra named like a member of the standard is renamed, see `_RESERVED`."""
    body = {
        **{_RESERVED.get(name, name): value for name, value in (extra or {}).items()},
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
        "retryable": retryable,
        "trace_id": trace_id or new_trace(),
    }
    all_headers = dict(headers or {})
    if status == 401:
        all_headers.setdefault("WWW-Authenticate", "Bearer")
    if status in (429, 503):
        all_headers.setdefault("Retry-After", "1")
    text = json.dumps(body, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace")
    return Response(text, status, all_headers, MEDIA)


def problem_of(error: Exception, trace_id: str | None = None) -> Response:
    """The response for any exception. An unexpected one becomes a 500 that shows its trace_id and no details."""
    if isinstance(error, DetentError):
        if error.http_status >= 500:
            log.warning("%s %s", trace_id, error)
        detail = error.message if error.http_status < 500 else _without_details(error)
        return problem(
            error.http_status, error.code, detail, retryable=error.retryable, trace_id=trace_id, extra=error.extra
        )
    if isinstance(error, RequestValidationError):
        return _invalid(error, trace_id)
    if isinstance(error, HTTPException):
        code, detail = _ROUTING.get(error.status_code, ("HTTP_ERROR", str(error.detail)))
        return problem(error.status_code, code, detail, trace_id=trace_id, headers=error.headers)
    trace_id = trace_id or new_trace()
    log.error("%s: unhandled exception in a request", trace_id, exc_info=error)
    return problem(500, "INTERNAL", "internal server error; see the server log for this trace_id", trace_id=trace_id)


def _without_details(error: DetentError) -> str:
    """A detail without the store's error message, which may contain host and user names."""
    if error.http_status == 503:
        return "the database does not respond; a change may or may not have been made, retry later"
    return "the database refused the write; see the server log for this trace_id"


def _invalid(error: RequestValidationError, trace_id: str | None) -> Response:
    errors = [
        {
            "in": str(entry["loc"][0]) if entry["loc"] else "body",
            "field": ".".join(str(part) for part in entry["loc"][1:]),
            "message": str(entry["msg"]),
        }
        for entry in error.errors()[:20]
    ]
    first = errors[0] if errors else {"in": "body", "field": "", "message": "invalid"}
    location = f"{first['in']} {first['field']}".strip()
    detail = f"{location}: {first['message']}; see /docs"
    return problem(422, "INPUT_INVALID", detail, trace_id=trace_id, extra={"errors": errors, "field": first["field"]})
