"""`Detent`, the application object: declares jobs, opens the database, runs workers."""

import asyncio
import os
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, Unpack

from detent.core.approval_rules import ApprovalPolicy
from detent.core.contract.model import Contract
from detent.core.errors import InvalidInput, JobFailed
from detent.core.options.backoff import backoff_text
from detent.engine import Engine
from detent.engine.submit.submission import MAX_PAYLOAD
from detent.engine.tracing import Tracer
from detent.handler.base_context import PARK_SECONDS
from detent.handler.handler import HAND_BACK_SECONDS, Options, inspect_handler
from detent.observability.settings import Settings, load_settings
from detent.ports.listing import Declaration
from detent.worker.worker import DEFAULT_SLOTS, Worker

from .connect import configured_contracts, default_url, engine_from, store_from
from .dead_letters import DeadLetters
from .handles import Handle
from .job import Declare, JobDefinition
from .jobs import Jobs
from .operations import Queues, read_events
from .options import HandlerOptions, Limited
from .schedules import Schedules, Scheduling
from .stream_app import relay, stream_worker
from .sync import SyncClient, SyncHandle
from .tenants import TenantApp

__all__ = ["Detent", "Handle", "JobDefinition", "JobFailed", "SyncClient", "SyncHandle"]


class Detent(Scheduling, Limited):
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
        **options: Any,
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

        An invalid url raises InvalidInput (URL_INVALID) when the database is opened.
        """
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

    def job(self, name: str, *, run_in: str = "auto", **options: Unpack[HandlerOptions]) -> Declare:
        """Declare a function as the handler of the jobs called `name`. The decorated function is a JobDefinition.

            @app.job("charge", queue="billing", max_retries=3, timeout=30)
            async def charge(ctx: Context, order_id: int, amount: int) -> dict: ...

        A first parameter annotated with Context or SyncContext, or named `ctx`, gets the context. The other arguments
        and the result are checked against their annotations, when a job is enqueued and when it runs.

        queue: the queue of its jobs; workers can be limited to some queues. Default "default".
        contract: the name of the contract: the table of statuses and moves its jobs follow. Default "standard".
        max_retries: how often a failed execution is repeated, 0 to 1000. Default: the contract's (standard: 3).
        timeout: seconds an execution may take; then it fails, and is retried if the contract allows. Default: none.
        priority: -100 to 100; higher is claimed first. Default 0.
        backoff: seconds before each retry, `[60, 300, 900]` (the last one repeats), `Fixed(5)` or `Exponential(base=1,
            factor=2, cap=60, jitter=0.1)`. Default: the contract's. A contract with frozen retries refuses it.
        permanent_errors: a tuple of exception classes that fail the job without a retry. Default: none.
        retryable_errors: a tuple of exception classes that are retried although the contract treats their error code as
            permanent. Default: none.
        capture_logs: True stores the log lines of each execution with its job, at most 200 lines and 32 KiB. Default
            False. Not with run_in="process".
        park_seconds: a wait that may last longer than this many seconds is parked: a status of its own, for display,
            where the contract has one. Default: that of the app, 60.
        strict_steps: True fails the job (STEP_ORPHANED) if it has a recorded step that the code no longer calls; False
            only notes it. Default: that of the app, False.
        hand_back_seconds: how long a job whose payload does not fit these parameters is handed back to other workers,
            which may run newer code, before it fails (PAYLOAD_INVALID). Default: that of the app, 900; 0 fails it at
            once, as contracts without RELEASE always do. See docs/deploys.md.
        run_in: where a plain `def` handler runs: "thread" (also "auto", the default) or "process", which needs a
            function at module level and gives it a context without steps and waits. An async handler always runs on
            the event loop.

        Raises InvalidInput: OPTION_UNKNOWN for an unknown option; HANDLER_INVALID if the name is declared twice or the
        function cannot be a handler; BACKOFF_INVALID. Values such as max_retries and priority, and whether the contract
        allows them, are checked when a job is enqueued.
        """
        try:
            settings = replace(self._job_defaults, **options)
        except TypeError as error:
            raise InvalidInput(f"job {name!r}: {error}", code="OPTION_UNKNOWN") from None
        if settings.backoff is not None:
            backoff_text(settings.backoff)

        def declare(function: Callable[..., Any]) -> JobDefinition[Any, Any]:
            if name in self.jobs:
                raise InvalidInput(f"job {name!r} is declared twice; use another name", code="HANDLER_INVALID")
            handler = inspect_handler(name, function, settings, run_in)
            definition: JobDefinition[Any, Any] = JobDefinition(self, handler)
            self.jobs[name] = definition
            return definition

        return declare

    def companion(self, function: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
        """Declare a coroutine function that `detent up` runs next to the worker, for example a producer of jobs.

        @app.companion
        async def produce() -> None: ...
        """
        self.companions.append(function)
        return function

    def for_tenant(self, tenant: str) -> TenantApp:
        """The application limited to one tenant: it enqueues for this tenant and sees only its jobs.

        Access to another tenant's job raises TenantViolation (TENANT_SCOPE_VIOLATION).

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

    def make_engine(self, **store_options: Any) -> Engine:
        """A new engine on this application's database, not opened yet. For tools; applications use `ready`.

        store_options: `may_migrate=True` sets up or upgrades the schema when it is opened.
        """
        contracts = configured_contracts(self.contracts, (self.config or load_settings()).contracts)
        engine = engine_from(store_from(self.url, **store_options), contracts, **self._engine_options)
        engine.tracer = self.tracer
        engine.declarations.own = self.declaration_of
        return engine

    def declaration_of(self, job_type: str) -> Declaration | None:
        """A declared job as workers publish it: options, and the JSON schema of the payload. None: not declared."""
        definition = self.jobs.get(job_type)
        return definition.handler.declaration() if definition else None

    @property
    def engine(self) -> Engine:
        """The engine of the running event loop. Raises InvalidInput (APP_CLOSED) if the app is not open there."""
        engine = self._engines.get(asyncio.get_running_loop())
        if engine is None:
            raise InvalidInput("the app is not open on this event loop; use `async with app` first", code="APP_CLOSED")
        return engine

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

    async def worker(self, *, transport: str = "database", **options: Any) -> Worker:
        """A worker for all declared jobs; start it with `await worker.run()`. `run_worker` does both.

        transport: "database", or "redis" for tasks from Redis Streams; the server is $DETENT_REDIS_URL, or `settings=`.
        options: `queues`, `slots`, `lease_seconds`, `until_idle` as in `run_worker`; `grace_seconds` (10) for running
            jobs when it stops; `cancel_grace_seconds` (30) for a handler after a cancel; `processes`, the most for
            handlers with run_in="process"; `sweep=False` to leave expired leases and schedules to other workers;
            `config`, `metrics_port`, `metrics_host`.
        """
        engine = await self.ready()
        await self.schedules.declare()
        await engine.declarations.publish([job.handler.declaration() for job in self.jobs.values()])
        options.setdefault("config", self.config or load_settings())
        make_worker: Callable[..., Worker] = stream_worker if transport == "redis" else Worker
        return make_worker(engine, {name: definition.handler for name, definition in self.jobs.items()}, **options)

    async def run_worker(
        self,
        *,
        queues: Sequence[str] | None = None,
        slots: int = DEFAULT_SLOTS,
        lease_seconds: float | None = None,
        until_idle: bool = False,
        **options: Any,
    ) -> int:
        """Run a worker in this process until SIGTERM or SIGINT, then close the app. Returns 0 after a clean stop.

        queues: only these; None: all. slots: how many jobs run at once, 64 by default. lease_seconds: after how long
        without a heartbeat others may take its jobs; None: the contract's, 30. until_idle: return when no job runs, can
        be claimed, or is due within 5 seconds. options: as in `worker`.
        """
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


_INHERITED_ENGINES: list[Any] = []
"""Engines that a forked child inherited: referenced for ever, so that the child never closes them."""


async def _no_more_writes(_transaction: object) -> None: ...
