"""JobDefinition: a declared job and the ways to enqueue it."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

from detent.core.errors import InvalidInput
from detent.core.options.job_options import UsingOptions
from detent.core.options.option import fields_of_python
from detent.engine import Submission
from detent.handler.context import Context
from detent.handler.handler import Arguments, Handler
from detent.handler.sync_context import SyncContext

from .external_transaction import submit_on, submit_on_sync
from .handles import Handle
from .sync import SyncHandle

if TYPE_CHECKING:
    from .app import Detent

P = ParamSpec("P")
R = TypeVar("R")


class JobDefinition(Generic[P, R]):
    """A declared job, made by `@app.job`. Enqueue it, or call it directly like the function it decorates.

        handle = await charge.enqueue(order_id=7, amount=100)
        handle = await charge.using(delay=60, key="order-8").enqueue(order_id=8, amount=5)

    `name` is the job type, `app` the application, `handler` the function with its options and types.
    """

    def __init__(self, app: "Detent", handler: Handler, using: UsingOptions | None = None) -> None:
        self.app = app
        self.handler = handler
        self.name = handler.name
        self._using: UsingOptions = using or {}
        self.__doc__ = handler.function.__doc__
        self.__wrapped__ = handler.function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.handler.function(*args, **kwargs)

    def using(self, **options: Unpack[UsingOptions]) -> "JobDefinition[P, R]":
        """This job with other options for the next enqueue; the declaration stays as it is.

            await charge.using(delay=60, key="order-8", tenant="acme").enqueue(order_id=8, amount=5)

        delay: seconds until the job is due. Default 0.
        at: when it is due instead: a datetime with a time zone, or ISO-8601 text.
        key: idempotency key. A second enqueue with the same key returns the first job (`handle.hit` is True), or raises
            IdempotencyConflict if its arguments differ.
        scope: keys are unique within their tenant and this scope. Default: one scope for all.
        tenant: the tenant the job belongs to. Default "default".
        priority: -100 to 100; higher is claimed first.
        queue, max_retries, timeout, backoff: instead of what `@app.job` declares; timeout in seconds.
        trace_id: the trace id of the job. Default: made by the contract.
        task_id: the task this job is a run of, for contracts that have tasks (men, p3c).
        hold: True waits for a person's approval before the first execution.
        limit_key: what limits with `key=` or `per="key"` count.
        deadline: seconds from now, a datetime with a time zone or ISO-8601 text; a job that has not started by then is
            cancelled (DEADLINE_EXCEEDED).

        Raises InvalidInput (OPTION_UNKNOWN). Values are checked by the enqueue.
        """
        if unknown := options.keys() - UsingOptions.__annotations__.keys():
            raise InvalidInput(f"using(): unknown options {', '.join(sorted(unknown))}", code="OPTION_UNKNOWN")
        return JobDefinition(self.app, self.handler, {**self._using, **options})

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Enqueue one job with these arguments, which are those of the function without the context.

        When it returns, the job is committed and will not be lost. Raises InvalidInput (PAYLOAD_INVALID,
        PAYLOAD_TOO_LARGE, or the code of a bad option), IdempotencyConflict, QuotaExceeded, StoreUnavailable.

            handle = await charge.enqueue(order_id=7, amount=100)
            await handle.result(timeout=10)
        """
        engine = await self.app.ready()
        submitted = await engine.jobs.submit(self.submission(self.handler.payload(args, kwargs)))
        return Handle(self.app, submitted.job.id, self.handler, submitted.hit)

    def arguments(self, *args: P.args, **kwargs: P.kwargs) -> Arguments[P]:
        """The arguments of one job for `enqueue_many`; type checkers check them like those of `enqueue`.

        await charge.enqueue_many([charge.arguments(8, amount=5), charge.arguments(9, amount=5)])
        """
        return Arguments(self.handler.payload(args, kwargs))

    async def enqueue_many(self, arguments: Sequence[Mapping[str, Any] | Arguments[P]]) -> list[Handle[R]]:
        """Enqueue one job for each item, all in one commit: all of them or none. Handles in order.

        An item is a mapping of arguments, or made by `arguments`, which type checkers check. Raises what `enqueue`
        raises; the error has the `index` of the item.

            await charge.enqueue_many([{"order_id": 8, "amount": 5}, {"order_id": 9, "amount": 5}])
        """
        engine = await self.app.ready()
        payloads = self.handler.payloads(arguments)
        submitted = await engine.jobs.submit_uniform(self.submission({}), payloads)
        return [Handle(self.app, job.id, self.handler, job.hit) for job in submitted]

    async def enqueue_in(self, connection: Any, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Enqueue one job in your own Postgres transaction: it exists if and only if you commit.

        connection: a connection to the same database, inside a transaction: of asyncpg or psycopg, a Connection,
        AsyncConnection, Session or AsyncSession of SQLAlchemy, or a connection of Django. Workers are notified of your
        commit.

        Raises NotSupported: STORE_LACKS_TRANSACTIONS on SQLite, TRANSACTION_REQUIRED outside a transaction,
        CONNECTION_UNKNOWN for another kind of connection; and what `enqueue` raises. With the fixtures for tests, whose
        jobs are in memory, it enqueues at once.

            async with connection.transaction():
                await connection.execute("INSERT INTO orders ...")
                await charge.enqueue_in(connection, order_id=7, amount=100)
        """
        if self.app.is_under_test:
            return await self.enqueue(*args, **kwargs)
        submission = self.submission(self.handler.payload(args, kwargs))
        submitted = await submit_on(await self.app.ready(), connection, submission)
        return Handle(self.app, submitted.job.id, self.handler, submitted.hit)

    def enqueue_in_sync(self, connection: Any, /, *args: P.args, **kwargs: P.kwargs) -> "SyncHandle[R]":
        """Enqueue one job in your own Postgres transaction from a plain function; else like `enqueue_in`.

        connection: a blocking one: of psycopg, a Connection or Session of SQLAlchemy, or a connection of Django.

        with connection.transaction():
            charge.enqueue_in_sync(connection, order_id=7, amount=100)
        """
        if self.app.is_under_test:
            return self.app.sync.enqueue(self, *args, **kwargs)
        submission, client = self.submission(self.handler.payload(args, kwargs)), self.app.sync
        submitted = submit_on_sync(client.run(self.app.ready()), connection, submission, client.loop)
        return SyncHandle(Handle(self.app, submitted.job.id, self.handler, submitted.hit), client.run)

    def submission(self, payload: dict[str, Any]) -> Submission:
        """The request for a new job: this payload with the options of the declaration and of `using`."""
        return Submission(self.name, payload, **self._fields)

    @cached_property
    def _fields(self) -> dict[str, Any]:
        """The options of the declaration and of `using` as fields of a Submission; None keeps what is declared."""
        given = {name: value for name, value in self._using.items() if value is not None}
        return self.handler.declared_fields() | fields_of_python(Submission, given)


class Declare(Protocol):
    """The decorator that `Detent.job` returns. `enqueue` takes the function's parameters without the context."""

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
