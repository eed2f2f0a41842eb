"""The ASGI application: REST API and dashboard, served alone or mounted in another application."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from detent.engine import Engine
from detent.web.http.headers import SecurityHeaders
from detent.web.http.problems import problem_of
from detent.web.http.requests import REQUEST_ID, RequestMiddleware
from detent.web.http.route import PREFIX, ApiRequest, ApiRoute
from detent.web.http.settings import Settings
from detent.web.http.state import Web
from detent.web.pages import pages
from detent.web.routes.admin import access, alerts, overview, queues, root, schedules, views, webhooks, workers
from detent.web.routes.jobs import (
    actions,
    dashboard,
    dead_letters,
    events,
    export,
    internal,
    jobs,
    parts,
    tasks,
    worker,
    worker_execution,
)

if TYPE_CHECKING:
    from detent.client.app import Detent

__all__ = ["Settings", "Web", "create_app"]
API = (
    *(export, jobs, parts, actions, tasks, worker, worker_execution, dead_letters),
    *(queues, schedules, workers, alerts, webhooks, events, access, root, internal),
)
DASHBOARD = (dashboard, overview, views, pages)


def create_app(target: "Detent | Engine", settings: Settings | None = None) -> FastAPI:
    """The ASGI application for a Detent app or an open engine.

    Served alone, it closes with the server. Mounted in another application it is not notified of start and stop: it
    opens on first use, and you call `await app.state.web.close()`. Example: `outer.mount("/detent", create_app(app))`.
    """
    web = Web(target, settings or Settings.from_environment())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if web.settings.sweep:
            web.start(web.engine(), "start")  # leases end and webhooks are sent also before the first request
        yield
        await web.close()

    app = FastAPI(openapi_url=None, lifespan=lifespan, redirect_slashes=False)
    app.state.web = web
    app.add_middleware(SecurityHeaders, proxies=web.proxies)
    app.add_middleware(RequestMiddleware)
    for kind in (HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _problem_response)
    for module in (*API, *DASHBOARD):
        if module is not internal or web.settings.internal:
            app.router.routes.extend(module.router.routes)
    return app


async def _problem_response(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException) and error.status_code == 404 and _opens_a_page(request):
        page_request = ApiRequest(request.scope, request.receive)
        page_request.web = request.app.state.web
        return await pages.show_page(page_request, pages.NOT_FOUND)
    response = problem_of(error, request.scope.get(REQUEST_ID))
    if response.status_code == 405:
        response.headers["Allow"] = ", ".join(sorted(_methods(request)))
    return response


def _opens_a_page(request: Request) -> bool:
    """Whether a browser asks for a page: other clients do not ask for HTML, and the API has none."""
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    asks_for_html = "text/html" in request.headers.get("accept", "")
    return request.method in ("GET", "HEAD") and asks_for_html and not path.startswith(PREFIX)


def _fixed_length(route: ApiRoute) -> int:
    """The length of the path without its parameters."""
    return len(re.sub(r"\{.*?\}", "", route.path))


def _methods(request: Request) -> set[str]:
    """The methods of the routes that match this path. /jobs/bulk takes precedence over /jobs/{job_id}."""
    routes = [route for route in request.app.router.routes if isinstance(route, ApiRoute)]
    matching = [route for route in routes if route.matches(dict(request.scope))[0] is not Match.NONE]
    most = max(map(_fixed_length, matching), default=0)
    methods = {method for route in matching if _fixed_length(route) == most for method in route.methods or ()}
    return methods | ({"HEAD"} if "GET" in methods else set())
