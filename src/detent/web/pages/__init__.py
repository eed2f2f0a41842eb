"""The pages: mounted at the root beside the API, behind the same people and the same checks."""

from fastapi import FastAPI
from starlette.responses import HTMLResponse, Response

from ..guard import Asked, Router

router = Router("", tags=["pages"], include_in_schema=False)
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Detent</title><h1>Detent</h1>
<p>The API is at <a href="api/v1/jobs">api/v1</a>, its description at <a href="docs">docs</a>.</p></html>"""


@router.route_for("GET", "/", needs=None, answers={200: {"description": "a page"}})
async def home(asked: Asked) -> Response:
    """Where to go from here."""
    return HTMLResponse(_PAGE)


def install(app: FastAPI) -> None:
    """Add the pages to an application."""
    app.router.routes.extend(router.routes)
