"""Refusals as problem+json (RFC 9457): stable code, retryable, trace_id, and what the code promises beside them."""

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
_ROUTING = {404: "ROUTE_NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}
_ADVICE = {404: "there is nothing at this address; /docs lists what there is", 405: "this address knows other methods"}
_RESERVED = {"status": "job_status", "type": "problem_type", "title": "problem_title", "detail": "details"}


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
    """The members of the standard cannot be overwritten by an extra of the same name."""
    told = {_RESERVED.get(name, name): value for name, value in (extra or {}).items()}
    body = {
        **told,
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
        "retryable": retryable,
        "trace_id": trace_id or new_trace(),
    }
    more = dict(headers or {})
    if status == 401:
        more.setdefault("WWW-Authenticate", "Bearer")
    if status in (429, 503):
        more.setdefault("Retry-After", "1")
    text = json.dumps(body, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace")
    return Response(text, status, more, MEDIA)


def problem_of(error: Exception, trace_id: str | None = None) -> Response:
    """Every exception becomes an answer; what nobody foresaw tells its trace_id and nothing else."""
    if isinstance(error, DetentError):
        if error.http_status >= 500:
            log.warning("%s %s", trace_id, error)
        told = error.message if error.http_status < 500 else _without_details(error)
        return problem(
            error.http_status, error.code, told, retryable=error.retryable, trace_id=trace_id, extra=error.extra
        )
    if isinstance(error, RequestValidationError):
        return _invalid(error, trace_id)
    if isinstance(error, HTTPException):
        code = _ROUTING.get(error.status_code, "HTTP_ERROR")
        detail = _ADVICE.get(error.status_code, str(error.detail))
        return problem(error.status_code, code, detail, trace_id=trace_id, headers=error.headers)
    trace_id = trace_id or new_trace()
    log.error("%s: a request broke off", trace_id, exc_info=error)
    return problem(500, "INTERNAL", "this is a fault of the server; its log tells more", trace_id=trace_id)


def _without_details(error: DetentError) -> str:
    """A store's own words may name hosts and users; the caller needs to know what kind of trouble it is."""
    if error.http_status == 503:
        return "the database does not answer; nothing is known to have changed, try again"
    return "the database refused the write; the server's log tells why"


def _invalid(error: RequestValidationError, trace_id: str | None) -> Response:
    found = [
        {
            "in": str(one["loc"][0]) if one["loc"] else "body",
            "field": ".".join(str(part) for part in one["loc"][1:]),
            "message": str(one["msg"]),
        }
        for one in error.errors()[:20]
    ]
    first = found[0] if found else {"in": "body", "field": "", "message": "invalid"}
    where = f"{first['in']} {first['field']}".strip()
    detail = f"{where}: {first['message']}; /docs shows what is expected"
    return problem(422, "INPUT_INVALID", detail, trace_id=trace_id, extra={"errors": found, "field": first["field"]})
