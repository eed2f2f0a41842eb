"""Endpoints at the root: liveness, readiness, metrics for Prometheus, the OpenAPI document and its page."""

from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response

from detent.core.access import Power
from detent.core.errors import StoreUnavailable
from detent.engine.reads import operations
from detent.engine.reads.responses import JsonObject
from detent.observability.metrics import exposition
from detent.web.http.route import HTML_PAGE, ApiRequest, Router
from detent.web.openapi.docs_page import docs_page
from detent.web.openapi.document import document
from detent.web.pages.shell import PREFIX

router = Router("", tags=["service"])
_DOCUMENT = {
    "description": "OpenAPI 3.1 document",
    "content": {
        "application/json": {
            "schema": {"type": "object", "additionalProperties": True},
            "example": {"openapi": "3.1.0", "info": {"title": "Detent"}, "paths": {}},
        }
    },
}
_PROMETHEUS = {"description": "Prometheus text format", "content": {"text/plain": {}}}


@router.route_for("GET", "/healthz", None)
async def check_liveness(request: ApiRequest) -> operations.HealthResponse:
    """Liveness probe: 200 if the process responds. Does not use the database."""
    return {"ok": True}


@router.route_for("GET", "/readyz", None)
async def check_readiness(request: ApiRequest) -> operations.HealthResponse:
    """Readiness probe: 200 if the database can be read, otherwise 503."""
    if not await request.web.store_readable():
        raise StoreUnavailable("the store does not respond")
    return {"ok": True}


@router.route_for("GET", "/openapi.json", None, responses={200: _DOCUMENT})
async def get_openapi_document(request: ApiRequest) -> JsonObject:
    """This OpenAPI document. It may require a token, or be turned off: `Settings.docs`, $DETENT_DOCS."""
    return await _document(request)


@router.route_for("GET", "/docs", None, responses={200: HTML_PAGE})
async def get_docs_page(request: ApiRequest) -> Response:
    """The OpenAPI document as a web page. It uses no scripts and loads nothing from other sites."""
    return HTMLResponse(docs_page(await _document(request, page=True), PREFIX.lstrip("/")))


@router.route_for("GET", "/metrics", Power.READ, shared="metrics", responses={200: _PROMETHEUS})
async def get_metrics(request: ApiRequest) -> Response:
    """Metrics in the Prometheus text format. Configure Prometheus with a viewer's token that never expires."""
    body, media_type = await exposition(request.engine)
    return Response(body, 200, {"content-type": media_type})


async def _document(request: ApiRequest, *, page: bool = False) -> JsonObject:
    """The document, cached until a contract is added or the first token is created."""
    if request.web.settings.docs == "off":
        raise HTTPException(404)
    if request.web.settings.docs == "token":
        await request.web.authenticator.authenticate(request, "GET", page=page)
    contracts, is_open = (await request.web.engine()).contracts, await request.web.authenticator.is_open()
    cache = request.web.openapi_documents
    key = (frozenset(contracts), is_open)
    if key not in cache:
        cache.clear()
        cache[key] = document(request.app, contracts, is_open=is_open)
    return cache[key]
