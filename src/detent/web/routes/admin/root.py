"""Endpoints at the root: liveness, readiness, the OpenAPI document and its page."""

from typing import Any

from starlette.responses import HTMLResponse, Response

from detent.engine.reads import responses
from detent.web.http.route import ApiRequest, Router, json_response
from detent.web.openapi.docs_page import docs_page
from detent.web.openapi.document import document
from detent.web.pages.assets import PREFIX

router = Router("", tags=["service"])


@router.route_for("GET", "/healthz", needs=None, responses={200: responses.HealthResponse})
async def check_liveness(request: ApiRequest) -> Response:
    """Liveness probe: 200 if the process responds. Does not use the database."""
    return json_response({"ok": True})


@router.route_for("GET", "/readyz", needs=None, responses={200: responses.HealthResponse})
async def check_readiness(request: ApiRequest) -> Response:
    """Readiness probe: 200 if the database can be read, otherwise 503."""
    if await request.web.store_readable():
        return json_response({"ok": True})
    return json_response({"ok": False, "detail": "the database does not respond"}, 503, {"Retry-After": "1"})


@router.route_for("GET", "/openapi.json", needs=None, responses={200: {"description": "OpenAPI 3.1 document"}})
async def get_openapi_document(request: ApiRequest) -> Response:
    """This OpenAPI document."""
    return json_response(await _document(request))


@router.route_for(
    "GET", "/docs", needs=None, responses={200: {"description": "HTML page", "content": {"text/html": {}}}}
)
async def get_docs_page(request: ApiRequest) -> Response:
    """The OpenAPI document as a web page. It uses no scripts and loads nothing from other sites."""
    return HTMLResponse(docs_page(await _document(request), PREFIX.lstrip("/")))


async def _document(request: ApiRequest) -> dict[str, Any]:
    """The document, cached until a contract is added or the first token is created."""
    contracts, is_open = (await request.web.engine()).contracts, await request.web.authenticator.is_open()
    cache = request.web.openapi_documents
    key = (frozenset(contracts), is_open)
    if key not in cache:
        cache.clear()
        cache[key] = document(request.app, contracts, is_open=is_open)
    return cache[key]
