"""The REST API: an ASGI application to be served alone or mounted in another one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ..core.contracts import CONTRACTS
from ..engine import Engine
from ..version import __version__
from . import pages
from .document import ABOUT, document
from .headers import SecurityHeaders
from .problems import problem_of
from .routes import dlq, events, internal, job_acts, jobs, people, queues, root, session
from .settings import Settings
from .state import Web

if TYPE_CHECKING:
    from ..app import Detent

__all__ = ["Settings", "Web", "create_app"]
PREFIX = "/api/v1"
ROUTERS = (jobs.router, job_acts.router, dlq.router, queues.router, events.router, people.router, session.router)


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
    for router in ROUTERS:
        app.include_router(router, prefix=PREFIX)
    if web.settings.internal:
        app.include_router(internal.router, prefix=PREFIX)
    app.include_router(root.router)
    pages.install(app)
    app.openapi = lambda: document(app, _contracts(web))  # type: ignore[method-assign]
    return app


async def _told(_: Request, error: Exception) -> Response:
    return problem_of(error)


def _contracts(web: Web) -> dict[str, Any]:
    engine = web.opened
    return dict(engine.contracts) if engine else dict(CONTRACTS)
