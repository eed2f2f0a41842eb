"""FastAPI and Starlette: lifespan, dependencies, durable background tasks, and API and dashboard under a prefix.

jobs = Detent("postgresql://localhost/shop")
api = FastAPI(lifespan=lifespan(jobs))
mount(api, "/detent", jobs, authenticate=person_of)
"""

import asyncio
import logging
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import replace
from types import FrameType
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from detent.client.app import Detent
from detent.client.handles import Handle
from detent.client.job import JobDefinition
from detent.client.sync import SyncHandle
from detent.core.errors import InvalidInput
from detent.system.extras import extra_imports

with extra_imports():
    from fastapi import Depends, FastAPI
    from starlette.applications import Starlette
    from starlette.requests import HTTPConnection

    from detent.web.app import create_app
    from detent.web.http.application_sign_in import Authenticate, Person
    from detent.web.http.settings import Settings
    from detent.web.http.state import Web

__all__ = ["BackgroundJobs", "Person", "background_jobs", "current_app", "lifespan", "mount"]
P = ParamSpec("P")
R = TypeVar("R")
log = logging.getLogger("detent.integrations.fastapi")
_MOUNTED: "WeakKeyDictionary[Detent, WeakSet[FastAPI]]" = WeakKeyDictionary()
"""Application -> its mounted APIs, which are not told by the server that it starts and stops."""
_PERSON_CHECK_SECONDS = 5.0
"""How often `authenticate` is asked again about an open event stream; it may query a database."""


def lifespan(
    app: Detent, *, worker: bool | Mapping[str, Any] = False
) -> Callable[[Any], AbstractAsyncContextManager[dict[str, Any]]]:
    """The lifespan of an API that uses this application: the database is opened with the server and closed with it.

        api = FastAPI(lifespan=lifespan(jobs, worker={"slots": 8, "queues": ["mail"]}))

    worker: True, or options of `app.worker`, runs a worker in the process of the server. When the server stops, the
    worker finishes its running jobs within `grace_seconds` (25) and hands back the others. In a test, where the fixture
    `detent_worker` runs the jobs, it is not started.

    An application with a lifespan of its own uses it inside: `async with lifespan(jobs)(api) as state: yield state`.

    Raises when the server starts: StoreUnavailable, SchemaMismatch, InvalidInput (URL_INVALID).
    """
    options = dict(worker) if isinstance(worker, Mapping) else {}
    if options.get("queues") is not None:
        options["queues"] = frozenset(options["queues"])

    @asynccontextmanager
    async def run(api: Any) -> AsyncIterator[dict[str, Any]]:
        mounted = list(_MOUNTED.get(app, ()))
        for inner in mounted:
            inner.state.web = Web(app, inner.state.web.settings)  # locks of the last start belong to another event loop
        api.state.detent = app
        await app.open()
        try:
            starts_worker = worker is not False and not app.is_under_test
            with _end_streams_at_signal([inner.state.web for inner in mounted]):
                async with _running_worker(app, options) if starts_worker else nullcontext():
                    yield {"detent": app}
        finally:
            for inner in mounted:
                await inner.state.web.close()
            await app.close()

    return run


@asynccontextmanager
async def _running_worker(app: Detent, options: dict[str, Any]) -> AsyncIterator[None]:
    worker = await app.worker(**options)
    running = asyncio.create_task(worker.run(handle_signals=False), name="detent-worker")
    stopping = False

    def report(task: "asyncio.Task[int]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None or not stopping:
            log.error("the worker in this process has ended; its jobs wait for another worker", exc_info=error)

    running.add_done_callback(report)
    try:
        yield
    finally:
        stopping = True
        worker.stop()
        await asyncio.wait({running})


@contextmanager
def _end_streams_at_signal(webs: list[Web]) -> Iterator[None]:
    """End event streams at SIGINT and SIGTERM: a server waits for open responses before it ends the lifespan."""
    loop = asyncio.get_running_loop()
    in_main_thread = threading.current_thread() is threading.main_thread()
    numbers = (signal.SIGINT, signal.SIGTERM) if webs and in_main_thread else ()
    before = {number: handler for number in numbers if callable(handler := signal.getsignal(number))}

    def end_streams(number: int, frame: FrameType | None) -> None:
        for web in webs:
            loop.call_soon_threadsafe(web.stopping.set)
        before[signal.Signals(number)](number, frame)

    for number in before:
        signal.signal(number, end_streams)
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is end_streams:
                signal.signal(number, handler)


def current_app(connection: HTTPConnection) -> Detent:
    """Dependency: the application of the lifespan, `Annotated[Detent, Depends(current_app)]`.

    In Starlette call it: `current_app(request)`. Raises InvalidInput (APP_CLOSED) if the lifespan has not run.
    """
    for state in (connection.state, connection.app.state):
        app = getattr(state, "detent", None)
        if isinstance(app, Detent):
            return app
    message = "no Detent application is open; use FastAPI(lifespan=lifespan(app)), and in tests `with TestClient(api)`"
    raise InvalidInput(message, code="APP_CLOSED")


class BackgroundJobs:
    """Durable background tasks: they are jobs, survive a restart of the server, and are retried."""

    def __init__(self, session: Any = None) -> None:
        self.session = session

    async def add_task(self, job: JobDefinition[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Enqueue a job. With a session it exists if and only if the session commits. Raises what `enqueue` raises.

        await tasks.add_task(send_mail.using(delay=60), to="ann@shop.example")
        """
        _check_job(job)
        if self.session is None:
            return await job.enqueue(*args, **kwargs)
        return await job.enqueue_in(self.session, *args, **kwargs)

    def add_task_sync(self, job: JobDefinition[P, R], /, *args: P.args, **kwargs: P.kwargs) -> SyncHandle[R]:
        """The same for a plain `def` endpoint; a session has to be a plain Session."""
        _check_job(job)
        if self.session is None:
            return job.app.sync.enqueue(job, *args, **kwargs)
        return job.enqueue_in_sync(self.session, *args, **kwargs)


def _check_job(job: object) -> None:
    if not isinstance(job, JobDefinition):
        name = getattr(job, "__name__", type(job).__name__)
        raise InvalidInput(f"{name} is not a job; declare it with @app.job", code="HANDLER_INVALID")


def background_jobs(session: Callable[..., Any] | None = None) -> Callable[..., BackgroundJobs]:
    """A dependency that gives BackgroundJobs. session: your dependency that gives a session or connection.

    Tasks = Annotated[BackgroundJobs, Depends(background_jobs(get_session))]

    FastAPI calls `get_session` once for a request, so endpoint and tasks share one session and its transaction.
    """
    if session is None:
        return lambda: BackgroundJobs()

    def in_transaction(opened: Any = Depends(session)) -> BackgroundJobs:
        return BackgroundJobs(opened)

    return in_transaction


def mount(
    api: Starlette,
    prefix: str,
    app: Detent,
    *,
    authenticate: Authenticate | None = None,
    sign_in_url: str = "",
    sign_out_url: str = "",
    **settings: Any,
) -> FastAPI:
    """Mount REST API and dashboard of the application below a prefix: /detent/, /detent/api/v1/jobs.

        async def person_of(request: HTTPConnection) -> Person | None:
            user = await user_of_session(request.cookies.get("session"))
            return user and Person(user.email, role="operator", tenant=user.company)

        mount(api, "/detent", jobs, authenticate=person_of, sign_in_url="/login")

    authenticate: plain or async; maps a request to a Person. None, or an HTTPException with status 401, is nobody: then
        a bearer token of Detent counts, for programs. Without it only tokens and sessions of Detent count.
        Changes by a person are accepted from pages of the same origin only, so that cookies are safe.
    sign_in_url: where the dashboard sends people who are not signed in, with the page they wanted as `next`.
    sign_out_url: where *Sign out* leads.
    settings: fields of `detent.web.Settings`, instead of those of the environment.

    `api` needs `lifespan(app)`, which closes what is mounted here. Returns the mounted application.
    """
    own = {"authenticate": authenticate, "token_check_seconds": _PERSON_CHECK_SECONDS} if authenticate else {}
    urls = {"sign_in_url": sign_in_url} | ({"proxy_sign_out_url": sign_out_url} if sign_out_url else {})
    inner = create_app(app, replace(Settings.from_environment(), **{**urls, **own, **settings}))
    _MOUNTED.setdefault(app, WeakSet()).add(inner)
    api.mount(prefix, inner)
    return inner
