"""At the root: is it alive, is it ready, the OpenAPI document and a page made from it."""

from typing import Any

from starlette.responses import HTMLResponse, Response

from detent.web.http.route import ApiRequest, Router, answer
from detent.web.openapi import schemas
from detent.web.openapi.docs_page import page
from detent.web.openapi.document import document
from detent.web.pages.assets import PREFIX

router = Router("", tags=["service"])


@router.route_for("GET", "/healthz", needs=None, answers={200: schemas.Health})
async def alive(asked: ApiRequest) -> Response:
    """The process answers; it says nothing about the database."""
    return answer({"ok": True})


@router.route_for("GET", "/readyz", needs=None, answers={200: schemas.Health})
async def ready(asked: ApiRequest) -> Response:
    """The database answers too, now: 200; otherwise 503."""
    if await asked.web.answers():
        return answer({"ok": True})
    return answer({"ok": False, "detail": "the database does not answer"}, 503, {"Retry-After": "1"})


@router.route_for("GET", "/openapi.json", needs=None, answers={200: {"description": "OpenAPI 3.1"}})
async def openapi(asked: ApiRequest) -> Response:
    """This document."""
    return answer(await _document(asked))


@router.route_for("GET", "/docs", needs=None, answers={200: {"description": "a page", "content": {"text/html": {}}}})
async def docs(asked: ApiRequest) -> Response:
    """The document for people to read; it loads nothing from anywhere."""
    return HTMLResponse(page(await _document(asked), PREFIX.lstrip("/")))


async def _document(asked: ApiRequest) -> dict[str, Any]:
    """Kept until the contracts change, or the first token comes."""
    contracts, is_open = (await asked.engine()).contracts, await asked.web.people.is_open()
    known: dict[Any, dict[str, Any]] = asked.web.documents
    key = (frozenset(contracts), is_open)
    if key not in known:
        known.clear()
        known[key] = document(asked.app, contracts, is_open=is_open)
    return known[key]
