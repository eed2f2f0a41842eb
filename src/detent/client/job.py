"""A declared job: its handler, its options, and the ways to enqueue it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

from detent.core.errors import InvalidInput
from detent.engine import Submission
from detent.handler.context import Context, SyncContext
from detent.handler.handler import Handler

from .external_transaction import submit_on, submit_on_sync
from .handles import Handle
from .options import Using, UsingOptions
from .sync import SyncHandle

if TYPE_CHECKING:
    from .app import Detent

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
        made = await engine.submit_uniform(self.submission({}), payloads)
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
