"""The REST API: an ASGI application to be served alone or mounted in another one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from ..engine import Engine
from ..version import __version__
from . import pages
from .document import ABOUT
from .guard import GuardedRoute
from .headers import SecurityHeaders
from .problems import problem_of
from .routes import (
    dlq,
    events,
    fleet,
    internal,
    job_acts,
    jobs,
    limits,
    people,
    queues,
    root,
    schedules,
    session,
    worker,
)
from .settings import Settings
from .state import Web

if TYPE_CHECKING:
    from ..app import Detent

__all__ = ["Settings", "Web", "create_app"]
ROUTERS = (
    jobs.router,
    job_acts.router,
    worker.router,
    dlq.router,
    queues.router,
    limits.router,
    schedules.router,
    fleet.router,
    fleet.at_root,
    events.router,
    people.router,
    session.router,
    root.router,
)


def create_app(target: "Detent | Engine", settings: Settings | None = None) -> FastAPI:
    """The API over an application or an open engine. Mounted, it opens on first use; `state.web.close()` ends it."""
    web = Web(target, settings or Settings.from_environment())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await web.close()

    app = FastAPI(
        title="Detent",
        version=__version__,
        description=ABOUT,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    app.state.web = web
    app.add_middleware(SecurityHeaders)
    for kind in (HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _told)
    for router in (*ROUTERS, internal.router) if web.settings.internal else ROUTERS:
        app.router.routes.extend(router.routes)
    pages.install(app)
    return app


async def _told(request: Request, error: Exception) -> Response:
    answer = problem_of(error)
    if answer.status_code == 405:
        answer.headers["Allow"] = ", ".join(sorted(_methods(request)))
    return answer


def _methods(request: Request) -> set[str]:
    """Whatever any route takes at this address."""
    routes = [route for route in request.app.router.routes if isinstance(route, GuardedRoute)]
    fitting = [route for route in routes if route.matches(dict(request.scope))[0] is not Match.NONE]
    exact = [route for route in fitting if not route.param_convertors]
    return {method for route in exact or fitting for method in route.methods or ()}
