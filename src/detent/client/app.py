"""The front door: `Detent`, its jobs and their handles, for async callers and, as `app.sync`, for plain ones."""

import asyncio
import os
import weakref
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack

from detent.core.contract.model import Contract
from detent.core.errors import InvalidInput, JobFailed
from detent.engine import Engine
from detent.engine.tracing import Tracer
from detent.handler.context import PARK_SECONDS
from detent.handler.handler import Options, inspect_handler
from detent.observability.settings import Settings, load_settings
from detent.worker.worker import DEFAULT_SLOTS, Worker

from .connect import default_url, environment_approval_policy, store_from
from .dead_letters import DeadLetters
from .handles import Handle
from .job import Declare, JobDefinition
from .options import JobOptions, Limited
from .schedules import Schedules, Scheduling
from .stream_app import stream_worker
from .sync import SyncClient, SyncHandle

__all__ = ["Detent", "Handle", "JobDefinition", "JobFailed", "SyncClient", "SyncHandle"]

if TYPE_CHECKING:
    from .tenants import TenantApp

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


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
        engine.approval_policy = engine.approval_policy or environment_approval_policy()
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
