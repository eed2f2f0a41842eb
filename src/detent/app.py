"""The front door: `Detent`, its jobs and their handles, for async callers and, as `app.sync`, for plain ones."""

import asyncio
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

from .connect import default_url, environment_guard, store_from
from .context import PARK_SECONDS, Context, SyncContext
from .core.contract import Contract
from .core.errors import InvalidInput, JobFailed
from .dead_letters import DeadLetters, SyncDeadLetters
from .engine import Engine, Submission
from .handlers import Handler, Options, inspect_handler
from .handles import Handle
from .options import JobOptions, Limited, Using, UsingOptions
from .schedules import Schedules, Scheduling, SyncSchedules
from .settings import Settings, load_settings
from .streams import stream_worker
from .sync_handle import SyncHandle
from .tracing import Tracer
from .transactions import submit_on, submit_on_sync
from .worker import DEFAULT_SLOTS, Worker

__all__ = ["Detent", "Handle", "JobDefinition", "JobFailed", "SyncClient", "SyncHandle"]

if TYPE_CHECKING:
    from .tenants import TenantApp

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class JobDefinition(Generic[P, R]):
    """A handler that can be enqueued. Called directly, it is the plain function it was."""

    def __init__(self, app: "Detent", handler: Handler, using: Using | None = None) -> None:
        self.app = app
        self.handler = handler
        self.name = handler.name
        self._using = using or Using()
        self.__doc__ = handler.function.__doc__
        self.__wrapped__ = handler.function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.handler.function(*args, **kwargs)

    def using(self, **options: Unpack[UsingOptions]) -> "JobDefinition[P, R]":
        """The same job with other options: delay=, at=, key=, scope=, tenant=, priority=, …"""
        try:
            return JobDefinition(self.app, self.handler, replace(self._using, **options))
        except TypeError as error:
            raise InvalidInput(f"using(): {error}", code="OPTION_UNKNOWN") from None

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Submit one job; its arguments are checked here."""
        engine = await self.app.ready()
        made = await engine.submit(self.submission(self.handler.payload(args, kwargs)))
        return Handle(self.app, made.job.id, self.handler, made.hit)

    async def enqueue_many(self, arguments: Sequence[Mapping[str, Any]]) -> list[Handle[R]]:
        """Submit many in one commit: all or none."""
        engine = await self.app.ready()
        payloads = [self.handler.payload((), one) for one in arguments]
        made = await engine.submit_alike(self.submission({}), payloads)
        return [Handle(self.app, one.id, self.handler, one.hit) for one in made]

    async def enqueue_in(self, connection: Any, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Submit in your own Postgres transaction (asyncpg or psycopg, async); found by a poll after your commit."""
        made = await submit_on(await self.app.ready(), connection, self.submission(self.handler.payload(args, kwargs)))
        return Handle(self.app, made.job.id, self.handler, made.hit)

    def enqueue_in_sync(self, connection: Any, /, *args: P.args, **kwargs: P.kwargs) -> "SyncHandle[R]":
        """The same on a blocking psycopg connection."""
        ask, run = self.submission(self.handler.payload(args, kwargs)), self.app.sync.run
        made = submit_on_sync(run(self.app.ready()), connection, ask, run)
        return SyncHandle(self.app.sync, Handle(self.app, made.job.id, self.handler, made.hit))

    def submission(self, payload: dict[str, Any]) -> Submission:
        own, use = self.handler.options, self._using
        timeout = own.timeout if use.timeout is None else use.timeout
        return Submission(
            job_type=self.name,
            payload=payload,
            contract=own.contract,
            queue=use.queue or own.queue,
            tenant_id=use.tenant,
            idempotency_key=use.key,
            idempotency_scope=use.scope,
            task_id=use.task_id,
            scheduled_at=use.at,
            delay=use.delay,
            timeout_ms=None if timeout is None else int(timeout * 1_000),
            max_retries=own.max_retries if use.max_retries is None else use.max_retries,
            priority=own.priority if use.priority is None else use.priority,
            trace_id=use.trace_id,
            hold=use.hold,
            limit_key=use.limit_key,
            deadline=use.deadline,
        )


class Declare(Protocol):
    """The decorator: with or without a context, async or plain, the enqueue takes what the function takes."""

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Awaitable[R]], /) -> JobDefinition[P, R]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[SyncContext, P], R], /) -> JobDefinition[P, R]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> JobDefinition[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> JobDefinition[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> JobDefinition[P, R]: ...


class Detent(Scheduling, Limited):
    """One application: a database, its contracts and its jobs. Opens by itself, once per event loop and process."""

    def __init__(
        self,
        url: str | None = None,
        *,
        contracts: Sequence[Contract] = (),
        park_seconds: float = PARK_SECONDS,
        strict_steps: bool = False,
        **options: Any,
    ) -> None:
        self.url = url or default_url()
        self.contracts = {contract.name: contract for contract in contracts}
        self.jobs: dict[str, JobDefinition[Any, Any]] = {}
        self.schedules = Schedules(self)
        self.dead_letters = DeadLetters(self)
        self.sync = SyncClient(self)
        self.companions: list[Callable[[], Awaitable[None]]] = []
        self.tracer: Tracer | None = options.pop("tracer", None)
        self.config: Settings | None = options.pop("config", None)
        self._options = options
        self._defaults = Options(park_seconds=park_seconds, strict_steps=strict_steps)
        self._engines: dict[asyncio.AbstractEventLoop, Engine] = {}
        self._opening: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()
        self._pid = os.getpid()

    def job(self, name: str, *, run_in: str = "auto", **options: Unpack[JobOptions]) -> "Declare":
        """Declare a job: its name, and options queue=, contract=, max_retries=, timeout=, priority=."""
        try:
            settings = replace(self._defaults, **options)
        except TypeError as error:
            raise InvalidInput(f"job {name!r}: {error}", code="OPTION_UNKNOWN") from None

        def declare(function: Callable[..., Any]) -> JobDefinition[Any, Any]:
            if name in self.jobs:
                raise InvalidInput(f"job {name!r} is declared twice", code="HANDLER_INVALID")
            made: JobDefinition[Any, Any] = JobDefinition(self, inspect_handler(name, function, settings, run_in))
            self.jobs[name] = made
            return made

        return declare

    def companion(self, function: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """Declare a coroutine that `detent up` runs beside the worker: a producer, a watcher."""
        self.companions.append(function)
        return function

    def for_tenant(self, tenant: str) -> "TenantApp":
        """The same application within one tenant: nothing of another's is seen or changed."""
        from .tenants import TenantApp

        return TenantApp(self, tenant)

    async def __aenter__(self) -> "Detent":
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        await self.ready()

    async def ready(self) -> Engine:
        """The engine of this event loop, opened on first use."""
        if self._pid != os.getpid():
            self._leave_to_the_parent()
        loop = asyncio.get_running_loop()
        engine = self._engines.get(loop)
        if engine is not None:
            return engine
        async with self._opening.setdefault(loop, asyncio.Lock()):
            engine = self._engines.get(loop)
            if engine is None:
                await self._close_engines_of_closed_loops()
                engine = self.make_engine()
                await engine.open()
                await engine.declare_limits(self.limits)
                self._engines[loop] = engine
        return engine

    def _leave_to_the_parent(self) -> None:
        """After a fork its connections are not ours; closing them, even by forgetting them, would touch its files."""
        _PARENTS.append(self._engines)
        self._engines = {}
        self._opening = weakref.WeakKeyDictionary()
        self._pid = os.getpid()

    async def _close_engines_of_closed_loops(self) -> None:
        """A loop that ended without `close` leaves an engine with its threads and connections behind."""
        for loop in [loop for loop in self._engines if loop.is_closed()]:
            engine = self._engines.pop(loop)
            with suppress(Exception):  # a server's connections cannot be closed in good order without their loop
                await engine.close()

    def make_engine(self, **store_options: Any) -> Engine:
        engine = Engine(store_from(self.url, **store_options), self.contracts, **self._options)
        engine.tracer = self.tracer
        engine.guard = engine.guard or environment_guard()
        return engine

    @property
    def engine(self) -> Engine:
        """The engine of the running loop; open the app first."""
        engine = self._engines.get(asyncio.get_running_loop())
        if engine is None:
            raise InvalidInput("the app is not open on this event loop; use `async with app` first", code="APP_CLOSED")
        return engine

    async def close(self) -> None:
        engine = self._engines.pop(asyncio.get_running_loop(), None)
        if engine is not None:
            await engine.close()

    async def handle(self, job_id: str) -> Handle[Any]:
        job = await (await self.ready()).job(job_id)
        known = self.jobs.get(job.job_type)
        return Handle(self, job_id, known.handler if known else None)

    async def approvals(self, **choice: Any) -> list[dict[str, Any]]:
        """What waits for people, oldest first; choice: tenant=, roles=, after=, limit=."""
        return [line.as_dict() for line in await (await self.ready()).approvals_open(**choice)]

    async def worker(self, *, transport: str = "database", **options: Any) -> Worker:
        """transport "redis": its tasks come over Redis Streams; the server is $DETENT_REDIS_URL, or settings=."""
        engine = await self.ready()
        await self.schedules.declare()
        options.setdefault("config", self.config or load_settings())
        make: Callable[..., Worker] = stream_worker if transport == "redis" else Worker
        return make(engine, {name: definition.handler for name, definition in self.jobs.items()}, **options)

    async def run_worker(
        self,
        *,
        queues: Sequence[str] | None = None,
        slots: int = DEFAULT_SLOTS,
        lease_seconds: float | None = None,
        until_idle: bool = False,
        **options: Any,
    ) -> int:
        """Work in this process until SIGTERM, SIGINT or, if asked, until nothing is left to do."""
        worker = await self.worker(
            queues=None if queues is None else frozenset(queues),
            slots=slots,
            lease_seconds=lease_seconds,
            until_idle=until_idle,
            **options,
        )
        try:
            return await worker.run()
        finally:
            await self.close()


_PARENTS: list[Any] = []
"""Engines a forked child inherited: kept so that nothing ever closes them there."""


class SyncClient:
    """The same client without an event loop: one implementation, run on a loop in a thread of its own."""

    def __init__(self, app: Detent) -> None:
        self._app = app
        self.schedules = SyncSchedules(self, app.schedules)
        self.dead_letters = SyncDeadLetters(self, app.dead_letters)
        self._forget()
        forget = weakref.WeakMethod(self._forget)
        os.register_at_fork(after_in_child=lambda: (method := forget()) and method())

    def _forget(self) -> None:
        """In a new process there is no thread yet, and a lock that was held at the fork is held for ever."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run any call of the app to its end: app.sync.run(handle.result())."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._own_loop()).result()

    def enqueue(self, job: JobDefinition[P, R], *args: P.args, **kwargs: P.kwargs) -> "SyncHandle[R]":
        return SyncHandle(self, self.run(job.enqueue(*args, **kwargs)))

    def enqueue_many(self, job: JobDefinition[P, R], arguments: Sequence[Mapping[str, Any]]) -> "list[SyncHandle[R]]":
        return [SyncHandle(self, handle) for handle in self.run(job.enqueue_many(arguments))]

    def close(self) -> None:
        """Close the connection and end the thread; the next call opens both again."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(self._app.close(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_serve, args=(self._loop,), name="detent-sync", daemon=True)
                self._thread.start()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()
