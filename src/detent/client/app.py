"""`Detent`, the application object: declares jobs, opens the database, runs workers."""

import asyncio
import inspect
import logging
import os
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, overload

from detent.core.approval_rules import ApprovalPolicy
from detent.core.contract.model import Contract
from detent.core.errors import InvalidInput
from detent.engine import Engine
from detent.engine.submit.submission import MAX_PAYLOAD, check_names_and_numbers
from detent.engine.tracing import Tracer
from detent.handler.base_context import PARK_SECONDS
from detent.handler.context import Context
from detent.handler.handler import HAND_BACK_SECONDS, Options, inspect_handler
from detent.handler.hooks import Hooked
from detent.handler.sync_context import SyncContext
from detent.observability.settings import Settings, load_settings
from detent.ports.ids import Ids
from detent.ports.listing import Declaration
from detent.ports.store import Store

from .connect import configured_contracts, default_url, engine_from, redis_url, store_from, when_available
from .dead_letters import DeadLetters
from .handles import Handle
from .job import Declare, JobDefinition
from .jobs import Jobs
from .operations import Queues, read_events
from .options import EngineOptions, HandlerOptions, Limited, check_known, checked_options
from .schedules import Schedules, Scheduling
from .sync import SyncClient
from .tenants import TenantApp

if TYPE_CHECKING:
    from detent.worker.worker import Worker

P = ParamSpec("P")
R = TypeVar("R")
log = logging.getLogger("detent.client.app")


class Detent(Scheduling, Limited, Hooked):
    """An application: one database, the jobs your code declares, and the calls to enqueue and run them.

        app = Detent("sqlite:///jobs.db")

        @app.job("greet")
        async def greet(name: str) -> str:
            return f"hello {name}"

        async with app:
            handle = await greet.enqueue(name="world")

    `async with app` opens the database and closes it at the end; without it the first call opens it, once per event
    loop and process. Without an event loop use `app.sync`. Workers: `detent worker FILE`, or `await app.run_worker()`.

    `jobs`, `queues`, `schedules` and `dead_letters` have the operations on those, `events()` is the log of all jobs.
    """

    jobs: Jobs
    """The declared jobs by name; lists, cancels and requeues jobs."""
    queues: Queues
    """Lists, pauses and resumes queues."""
    schedules: Schedules
    """Adds, edits, pauses, removes, previews and backfills schedules."""
    dead_letters: DeadLetters
    """Lists, requeues and discards dead letters."""
    sync: SyncClient
    """The same application for callers without an event loop."""

    def __init__(
        self,
        url: str | None = None,
        *,
        contracts: Sequence[Contract] = (),
        park_seconds: float = PARK_SECONDS,
        strict_steps: bool = False,
        hand_back_seconds: float = HAND_BACK_SECONDS,
        tracer: Tracer | None = None,
        config: Settings | None = None,
        approval_policy: ApprovalPolicy | None = None,
        max_payload: int = MAX_PAYLOAD,
        **options: Unpack[EngineOptions],
    ) -> None:
        """Declare an application; the database is opened later, on first use.

        url: `sqlite:///file.db`, `sqlite:///:memory:` or `postgresql://user@host/database`. Default: $DETENT_URL, else
            `sqlite:///detent.db`. An empty SQLite file is set up on first use, Postgres by `detent migrate`.
        contracts: contracts of your own, besides the built-in ones; jobs name them with `contract=`.
        park_seconds: a wait that may last longer than this many seconds is parked. Default 60; see `job`.
        strict_steps, hand_back_seconds: the defaults of these options for all jobs; see `job`.
        tracer: records spans; `detent.integrations.otel.instrument(app)` sets it.
        config: alert rules, alert sinks, retention and options of contracts. Default: the file of
            `detent worker --config`, $DETENT_CONFIG or `detent.toml`.
        approval_policy: rules that hold jobs for approval before they start. Default: the file in $DETENT_GUARD.
        max_payload: the largest payload of a job in bytes. Default 1 MiB.
        options: `ids` and `jitter`, for tests: where job ids and the jitter of retries come from.

        An unknown option raises InvalidInput (OPTION_UNKNOWN); an invalid url URL_INVALID, when the database is opened.
        """
        check_known("Detent", options, EngineOptions.__annotations__, inspect.signature(Detent).parameters)
        self.url = url or default_url()
        self.contracts = {contract.name: contract for contract in contracts}
        self.jobs = Jobs(self)
        self.queues = Queues(self)
        self.schedules = Schedules(self)
        self.dead_letters = DeadLetters(self)
        self.sync = SyncClient(self)
        self.companions: list[Callable[[], Awaitable[None]]] = []
        self.tracer = tracer
        self.config = config
        self._engine_options = {"approval_policy": approval_policy, "max_payload": max_payload, **options}
        self._job_defaults = Options(
            park_seconds=park_seconds, strict_steps=strict_steps, hand_back_seconds=hand_back_seconds
        )
        self._engines: dict[asyncio.AbstractEventLoop, Engine] = {}
        self._opening: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()
        self._pid = os.getpid()
        self._test_engine: Engine | None = None

    @overload
    def job(self, name: str | None = None, *, run_in: str = "auto", **options: Unpack[HandlerOptions]) -> Declare: ...
    @overload
    def job(self, name: Callable[Concatenate[Context, P], Awaitable[R]], /) -> JobDefinition[P, R]: ...
    @overload
    def job(self, name: Callable[Concatenate[SyncContext, P], R], /) -> JobDefinition[P, R]: ...
    @overload
    def job(self, name: Callable[Concatenate[Context, P], R], /) -> JobDefinition[P, R]: ...
    @overload
    def job(self, name: Callable[P, Awaitable[R]], /) -> JobDefinition[P, R]: ...
    @overload
    def job(self, name: Callable[P, R], /) -> JobDefinition[P, R]: ...
    def job(
        self,
        name: str | Callable[..., Any] | None = None,
        *,
        run_in: str = "auto",
        **options: Unpack[HandlerOptions],
    ) -> Declare | JobDefinition[Any, Any]:
        """Declare a function as the handler of the jobs called `name`. The decorated function is a JobDefinition.

            @app.job("charge", queue="billing", max_retries=3, timeout=30)
            async def charge(ctx: Context, order_id: int, amount: int) -> dict: ...

        name: stored with each job. Without it (also `@app.job` without parentheses) it is the name of the function,
            which you then cannot rename while jobs wait.

        A first parameter annotated with Context or SyncContext, or named `ctx`, gets the context. The other arguments
        and the result are checked against their annotations, when a job is enqueued and when it runs.

        queue: the queue of its jobs; workers can be limited to some queues. Default "default".
        contract: the name of the contract: the table of statuses and moves its jobs follow. Default "standard".
        max_retries: how often a failed execution is repeated, 0 to 1000. Default: the contract's (standard: 3).
        timeout: how long an execution may take, in seconds, as a timedelta, or as text like "5m"; then it fails, and is
            retried if the contract allows. Default: none.
        soft_timeout: after this time SoftTimeout is raised in the handler, so that it can clean up; in a plain handler
            by its next call of the context. Shorter than timeout. Default: none.
        priority: -100 to 100; higher is claimed first. Default 0.
        backoff: seconds before each retry, `[60, 300, 900]` (the last one repeats), `Fixed(5)` or `Exponential(base=1,
            factor=2, cap=60, jitter=0.1)`. Default: the contract's. A contract with frozen retries refuses it.
        give_up_on: an exception class, or a tuple of them, that fails the job without a retry. Default: none.
        retry_on: an exception class, or a tuple of them, that is retried although the contract treats its error code as
            permanent. Other exceptions are retried as the contract says. Default: none.
        capture_logs: True stores the last log lines of each execution with its job, at most 200 and 32 KiB. Default
            False.
        park_seconds: a wait that may last longer than this many seconds is parked: a status of its own, for display,
            where the contract has one. Default: that of the app, 60.
        strict_steps: True fails the job (STEP_ORPHANED) if it has a recorded step that the code no longer calls; False
            only notes it. Default: that of the app, False.
        hand_back_seconds: how long a job whose payload does not fit these parameters is handed back to other workers,
            which may run newer code, before it fails (PAYLOAD_INVALID). Default: that of the app, 900; 0 fails it at
            once, as contracts without RELEASE always do. See docs/operate/deploys.md.
        run_in: where a plain `def` handler runs: "thread" (also "auto", the default) or "process", which needs a
            function at module level; its process is killed when its time is over. An async handler always runs on the
            event loop.

        Raises InvalidInput: OPTION_UNKNOWN for an unknown option; HANDLER_INVALID if the name is declared twice or the
        function cannot be a handler; TIMEOUT_INVALID, MAX_RETRIES_INVALID, BACKOFF_INVALID, ... for a value. Whether
        the contract allows them is checked when a job is enqueued.
        """
        if callable(name):
            return self.job()(name)
        settings = checked_options(name, self._job_defaults, options)

        def declare(function: Callable[..., Any]) -> JobDefinition[Any, Any]:
            return self._declare(
                getattr(function, "__name__", "") if name is None else name, function, settings, run_in
            )

        return declare

    def _declare(
        self, name: str, function: Callable[..., Any], settings: Options, run_in: str
    ) -> JobDefinition[Any, Any]:
        if name in ("", "<lambda>"):
            raise InvalidInput("a function without a name needs app.job(NAME)", code="HANDLER_INVALID")
        if name in self.jobs:
            raise InvalidInput(f"job {name!r} is declared twice; use another name", code="HANDLER_INVALID")
        handler = inspect_handler(name, function, settings, run_in)
        handler.hooks = self.hooks
        definition: JobDefinition[Any, Any] = JobDefinition(self, handler)
        check_names_and_numbers(definition.submission({}))
        self.jobs[name] = definition
        return definition

    def companion(self, function: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """Declare a coroutine function that `detent up` runs next to the worker, for example a producer of jobs.

        @app.companion
        async def produce() -> None: ...
        """
        self.companions.append(function)
        return function

    def for_tenant(self, tenant: str) -> TenantApp:
        """The application limited to one tenant: it enqueues for this tenant and sees only its jobs.

        Another tenant's job does not exist for it (NotFound).

            acme = app.for_tenant("acme")
            await acme.job(charge).enqueue(order_id=7)
        """
        return TenantApp(self, tenant)

    async def __aenter__(self) -> "Detent":
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Open the database for this event loop; `async with app` does it. Does nothing if it is open.

        Raises SchemaMismatch if the database was set up by another version or not at all, StoreUnavailable if it cannot
        be reached, InvalidInput (URL_INVALID).
        """
        await self.ready()

    async def ready(self) -> Engine:
        """The engine of this event loop, opened on first use: every operation that exists, without handlers.

        Raises what `open` raises.
        """
        if self._test_engine is not None:
            return self._test_engine
        if self._pid != os.getpid():
            self._keep_engines_of_parent_process()
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
                await engine.limits.declare(self.limits)
                if redis_url():
                    from .stream_app import relay  # here, as in `worker`: importing it takes long

                    engine.relay = relay(self, engine)
                self._engines[loop] = engine
        return engine

    def _keep_engines_of_parent_process(self) -> None:
        """After a fork the connections belong to the parent; closing or freeing them here would touch its files."""
        _INHERITED_ENGINES.append(self._engines)
        self._engines = {}
        self._opening = weakref.WeakKeyDictionary()
        self._pid = os.getpid()

    async def _close_engines_of_closed_loops(self) -> None:
        """A loop that ended without `close` leaves an engine with its threads and connections behind."""
        for loop in [loop for loop in self._engines if loop.is_closed()]:
            engine = self._engines.pop(loop)
            with suppress(Exception):  # Postgres connections cannot be closed cleanly without their loop
                await engine.close()

    def make_engine(self, store: Store | None = None, ids: Ids | None = None, **store_options: Any) -> Engine:
        """A new engine on this application's database, not opened yet. For tools; applications use `ready`.

        store: used instead of that of the URL. store_options: `may_migrate=True` sets up or upgrades the schema when it
        is opened.
        """
        from detent.worker.reporting import ExecutionReporter  # not needed to declare jobs

        contracts = configured_contracts(self.contracts, (self.config or load_settings()).contracts)
        store = store or store_from(self.url, **store_options)
        engine = engine_from(store, contracts, **self._engine_options | ({"ids": ids} if ids is not None else {}))
        engine.tracer = self.tracer
        engine.observer = ExecutionReporter(self.hooks)
        engine.declarations.own = self.declaration_of
        return engine

    def declaration_of(self, job_type: str) -> Declaration | None:
        """A declared job as workers publish it: options, and the JSON schema of the payload. None: not declared."""
        definition = self.jobs.get(job_type)
        return definition.handler.declaration() if definition else None

    @property
    def engine(self) -> Engine:
        """The engine of the running event loop. Raises InvalidInput (APP_CLOSED) if the app is not open there."""
        engine = self._test_engine or self._engines.get(asyncio.get_running_loop())
        if engine is None:
            raise InvalidInput("the app is not open on this event loop; use `async with app` first", code="APP_CLOSED")
        return engine

    @contextmanager
    def test_engine(self, engine: Engine) -> Iterator[None]:
        """Use this open engine for every call of the block, on any event loop. For tests: `detent.testing`."""
        before, self._test_engine = self._test_engine, engine
        try:
            yield
        finally:
            self._test_engine = before

    @property
    def is_under_test(self) -> bool:
        """True inside `test_engine`: a test runs the jobs, and every call uses its database in memory."""
        return self._test_engine is not None

    async def close(self) -> None:
        """Close the database connections of this event loop; the next call opens them again."""
        engine = self._engines.pop(asyncio.get_running_loop(), None)
        if engine is not None:
            await engine.close()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """A transaction for your own tables in the database of the jobs: `async with app.connection() as connection`.

        Commits when the block ends, rolls back when it raises. On Postgres it is an asyncpg connection. On SQLite it
        has `execute`, `executemany`, `fetch`, `fetchrow` and `fetchval` and holds the file's only writer, for at most
        5 s; it is the way to use the file in a process that has Detent open, because a second SQLite library would
        release Detent's locks (`SqliteFileInUse`).
        """
        transaction = await (await self.ready()).store.begin()
        try:
            yield transaction.connection
        except BaseException:
            await transaction.rollback()
            raise
        await transaction.commit(_no_more_writes)

    async def handle(self, job_id: str) -> Handle[Any]:
        """The handle of a job by its id, however it was enqueued. Raises NotFound (JOB_NOT_FOUND).

        status = await (await app.handle(job_id)).status()
        """
        job = await (await self.ready()).jobs.get(job_id)
        definition = self.jobs.get(job.job_type)
        return Handle(self, job.id, definition.handler if definition else None)

    def events(
        self,
        *,
        after: str | None = None,
        follow: bool = True,
        job_type: str | None = None,
        contract: str | None = None,
        queue: str | None = None,
        tenant: str | None = None,
        job_id: str | None = None,
    ) -> AsyncIterator[dict[str, Any]]:
        """The events of all jobs in the order of their commits, none missing; by default from now on, without end.

        Each has the fields of `handle.events()`, `position`, `job_id`, `job_type`, `contract`, `queue`, `tenant_id`.

        after: the `position` of the last event that was processed. follow: False reads what is there, from the first
        event on, and ends. The others select events.

            async for event in app.events(job_type="charge"):
                print(event["job_id"], event["target"])

        Raises InvalidInput (POSITION_INVALID).
        """
        filters = {"job_type": job_type, "contract": contract, "queue": queue, "tenant_id": tenant, "job_id": job_id}
        return read_events(self, after, follow, filters)

    async def approvals(
        self,
        *,
        tenant: str | None = None,
        roles: Sequence[str] | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> list[dict[str, Any]]:
        """Jobs that wait for an approval, oldest first, each with job_id, summary, about, digest, missing, deadline.

        tenant: only those of this tenant. roles: only those that a person with one of these roles may decide.
        after: the last job_id of the previous page. limit: how many.
        """
        engine = await self.ready()
        rows = await engine.scoped(tenant=tenant).approvals.waiting(roles=roles, after=after, limit=limit)
        return [row.as_dict() for row in rows]

    async def worker(self, *, transport: str = "database", **options: Any) -> "Worker":
        """A worker for all declared jobs; start it with `await worker.run()`. `run_worker` does both.

        transport: "database", or "redis" for tasks from Redis Streams; the server is $DETENT_REDIS_URL, or `settings=`.
        options: `queues`, `slots`, `lease_seconds`, `until_idle` as in `run_worker`; `grace_seconds` (25) for running
            jobs when it stops; `cancel_grace_seconds` (30) for a handler after a cancel; for handlers with
            run_in="process" `handler_processes`, `max_jobs_per_process` and `max_memory_mb`; `sweep=False` to leave
            expired leases and schedules to other workers; `block_warning_seconds` (1): warn of a handler that blocks
            the event loop for this long, 0: never; `config`, `metrics_port`, `metrics_host`.
        """
        from detent.worker.worker import Worker

        from .stream_app import stream_worker

        self._check_process_handlers()
        options.setdefault("url", self.url)
        engine = await self.ready()
        await self.schedules.declare()
        await engine.declarations.publish([job.handler.declaration() for job in self.jobs.values()])
        options = {"config": self.config or load_settings(), "hooks": self.hooks, **options}
        await self._warn_about_queues(engine, options.get("queues"))
        make_worker: Callable[..., Worker] = stream_worker if transport == "redis" else Worker
        return make_worker(engine, {name: definition.handler for name, definition in self.jobs.items()}, **options)

    async def _warn_about_queues(self, engine: Engine, queues: Iterable[str] | None) -> None:
        """Log what is probably a mistake: no jobs, or queues that no declared job, stored job, limit or pause names."""
        if not self.jobs:
            log.warning("this application declares no jobs, so its worker has nothing to run; use @app.job")
        if queues is None:
            return
        stats = await engine.stats.queues()
        known = {definition.submission({}).queue for definition in self.jobs.values()}
        known |= {row.queue for row in stats.backlog} | {limit.queue for limit in stats.limits if limit.queue}
        known |= {pause.name for pause in stats.pauses if pause.kind == "queue"}
        if unknown := sorted(set(queues) - known):
            names = ", ".join(sorted(known)) or "none"
            log.warning("no job, limit or pause has the queue %s; known queues: %s", ", ".join(unknown), names)

    def _check_process_handlers(self) -> None:
        handlers = [definition.handler for definition in self.jobs.values()]
        names = [handler.name for handler in handlers if handler.mode == "process" and handler.takes_context]
        if names and self.url.endswith("/:memory:"):
            message = f"{', '.join(names)}: another process cannot open a database in memory, which its context needs"
            raise InvalidInput(f"{message}; use a file, or leave out the context", code="HANDLER_INVALID")

    async def run_worker(
        self,
        *,
        queues: Sequence[str] | None = None,
        slots: int = 64,
        lease_seconds: float | None = None,
        until_idle: bool = False,
        **options: Any,
    ) -> int:
        """Run a worker in this process until SIGTERM or SIGINT, then close the app. Returns 0 after a clean stop.

        If the database server does not answer, it waits until it does, and logs each attempt.

        queues: only these; None: all. slots: how many jobs run at once, 64 by default. lease_seconds: after how long
        without a heartbeat others may take its jobs; None: the contract's, 30. until_idle: return when no job runs, can
        be claimed, or is due within 5 seconds. options: as in `worker`.
        """
        queue_names = None if queues is None else frozenset(queues)
        options |= {"queues": queue_names, "slots": slots, "lease_seconds": lease_seconds, "until_idle": until_idle}
        worker = await when_available(lambda: self.worker(**options))
        try:
            return await worker.run()
        finally:
            await self.close()


_INHERITED_ENGINES: list[Any] = []
"""Engines that a forked child inherited: referenced for ever, so that the child never closes them."""


async def _no_more_writes(_transaction: object) -> None: ...
