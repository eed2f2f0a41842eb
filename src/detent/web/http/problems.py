"""Errors as problem+json (RFC 9457): a stable code, retryable, trace_id, and further members depending on the code."""

import logging
from http import HTTPStatus

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from detent.core.errors import DetentError, InvalidInput
from detent.system.error_links import error_link

from .json_response import JsonResponse
from .requests import new_request_id

log = logging.getLogger("detent.web")
MEDIA = "application/problem+json"
_ROUTING = {
    404: ("ROUTE_NOT_FOUND", "no such endpoint; /docs lists all endpoints"),
    405: (
        "METHOD_NOT_ALLOWED",
        "this endpoint does not support the method; the Allow header lists the supported methods",
    ),
}
_HEADERS = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}, 503: {"Retry-After": "1"}}
_RESERVED = {"status": "job_status", "type": "problem_type", "title": "problem_title", "detail": "details"}


class RetryLater(DetentError, retryable=True):
    """The same request may succeed later."""


def problem_of(error: Exception, trace_id: str | None = None) -> JsonResponse:
    """The problem+json response for any exception. An unexpected one becomes a 500 that shows its trace_id only.

    Extra members that are named like a member of the standard are renamed, see `_RESERVED`.
    """
    trace_id = trace_id or new_request_id()
    refusal = _refusal_of(error, trace_id)
    status = refusal.http_status
    body = {
        **{_RESERVED.get(name, name): value for name, value in refusal.extra.items()},
        "type": error_link(refusal.code),
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": refusal.message if status < 500 or isinstance(refusal, RetryLater) else _server_error(refusal),
        "code": refusal.code,
        "retryable": refusal.retryable,
        "trace_id": trace_id,
    }
    return JsonResponse(body, status, _HEADERS.get(status), MEDIA)


def _server_error(refusal: DetentError) -> str:
    """A detail without the store's error message, which may contain host and user names."""
    if refusal.code == "INTERNAL":
        return "internal server error; see the server log for this trace_id"
    if refusal.http_status == 503:
        return "the database does not respond; a change may or may not have been made, retry later"
    return "the database refused the write; see the server log for this trace_id"


def _refusal_of(error: Exception, trace_id: str) -> DetentError:
    if isinstance(error, RequestValidationError):
        return _invalid(error)
    if isinstance(error, HTTPException):
        if isinstance(error.__cause__, DetentError):  # FastAPI answers 400 without a reason if reading the body fails
            return error.__cause__
        code, detail = _ROUTING.get(error.status_code, ("HTTP_ERROR", str(error.detail)))
        return DetentError(detail, code=code, http_status=error.status_code)
    if isinstance(error, DetentError):
        if error.http_status >= 500:
            log.warning("%s %s", trace_id, error, extra={"request_id": trace_id})
        return error
    log.error("%s: unhandled exception in a request", trace_id, exc_info=error, extra={"request_id": trace_id})
    return DetentError("unhandled exception", code="INTERNAL")


def _invalid(error: RequestValidationError) -> DetentError:
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
    return InvalidInput(detail, code="INPUT_INVALID", errors=errors, field=first["field"])
