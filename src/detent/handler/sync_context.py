"""SyncContext: the context of a plain `def` handler, with the methods of Context as blocking calls."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from itertools import count
from typing import Any, ParamSpec, TypeVar, cast, overload

from detent.core.options.backoff import Backoff
from detent.core.options.job_options import Seconds

from .base_context import BaseContext
from .blocking import Blocking, Run, blocking
from .children import BlockingGather, Child, Enqueueable
from .context import Context
from .outcomes import CancelRequested, SoftTimeout, Suspend
from .steps import NO_RETRIES, NOT_RECORDED, StepCall, split_options
from .transaction import Transaction, current_scope, step_scope

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class SyncContext(BaseContext, Blocking[Context]):
    """The context of a plain `def` handler: its first parameter, if annotated with SyncContext or named `ctx`.

    It has the methods of Context without `await`. The handler runs in a thread; each call blocks this thread, not the
    worker's event loop. A thread cannot be interrupted: check `ctx.cancelled` in long handlers.

        @app.job("charge")
        def charge(ctx: SyncContext, order_id: int) -> dict:
            return {"receipt": ctx.step("pay", pay, order_id)}
    """

    def __init__(self, context: Context, loop: asyncio.AbstractEventLoop) -> None:
        BaseContext.__init__(self, context._claimed, context._requests)
        Blocking.__init__(self, context, _run_on(loop))
        self.state = context.state
        self._deadline_at = context._deadline_at

    sleep = blocking(Context.sleep)
    wait_until = blocking(Context.wait_until)
    progress = blocking(Context.progress)
    approval = blocking(Context.approval)
    enqueue_many = blocking(Context.enqueue_many)
    gather = cast(BlockingGather, blocking(cast(Any, Context.gather)))

    @overload
    def wait_for(self, name: str, timeout: Seconds | None = None, *, kind: str = "signal") -> Any: ...

    @overload
    def wait_for(self, name: str, timeout: Seconds | None = None, *, kind: str = "signal", type: type[T]) -> T: ...

    def wait_for(self, name: str, timeout: Seconds | None = None, *, kind: str = "signal", type: Any = Any) -> Any:
        """Wait for the signal `name` and return its data. Arguments and errors are those of `Context.wait_for`."""
        return self._run(self._original.wait_for(name, timeout, kind=kind, type=type))

    def enqueue(self, job: Enqueueable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Child[R]:
        """Enqueue a child job of this job now, and return it; pass it to `gather` for its result.

        When the handler runs again it gets the same child. Raises what `Context.enqueue` raises.

            sizes = ctx.gather(ctx.enqueue(resize, image=7), ctx.enqueue(resize, image=8))
        """
        child: Child[R] = self._original.enqueue(job, *args, **kwargs)
        self._run(self._original.children.send([child]))
        return child

    @overload
    def step(
        self,
        name: str,
        fn: Callable[..., Awaitable[R]],
        /,
        *args: Any,
        retries: int,
        timeout: Seconds | None = None,
        backoff: Backoff | None = None,
        **kwargs: Any,
    ) -> R: ...

    @overload
    def step(self, name: str, fn: Callable[..., Awaitable[R]], /, *args: Any, timeout: Seconds, **kwargs: Any) -> R: ...

    @overload
    def step(
        self,
        name: str,
        fn: Callable[..., R],
        /,
        *args: Any,
        retries: int,
        backoff: Backoff | None = None,
        **kwargs: Any,
    ) -> R: ...

    @overload
    def step(self, name: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    def step(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call `fn(*args, **kwargs)` and record its result; later executions get it without a call.

        `fn` runs in this thread; if it is a coroutine function, on the worker's event loop. Results, repeated names,
        options and errors are as in `Context.step`. A `timeout` needs a coroutine function: a plain one cannot be
        interrupted.

            receipt = ctx.step("charge", pay, order_id, amount, retries=3)
        """
        policy, arguments = split_options(fn, kwargs) if kwargs else (NO_RETRIES, kwargs)
        call = self._original._begin_step(name, fn, args, arguments, policy)
        result = self._run(self._original._steps.recorded_result(call))
        return result if result is not NOT_RECORDED else self._run_step(call)

    @overload
    def once(self, name: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    def once(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    def once(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Like `step`, but `fn` is called at most once in the job's life, even if the process dies during the call.

        Raises OnceUnfinished if an earlier call was begun and its end was not recorded, or if it raised.

            ctx.once("transfer", bank.transfer, amount)
        """
        steps = self._original._steps
        call = self._original._begin_step(name, fn, args, kwargs)
        result = self._run(steps.recorded_result(call))
        if result is not NOT_RECORDED:
            return result
        self._check_lease(f"step {call.name!r}")
        self._run(steps.record_start(call))
        try:
            return self._run_step(call)
        except Exception as error:
            self._run(steps.record_error(call, error))
            raise

    def _run_step(self, call: StepCall) -> Any:
        steps = self._original._steps
        for attempt in count(1):
            with self._original._engine.step_span(call.name), step_scope(self._original) as scope:
                try:
                    self._check_lease(f"step {call.name!r}")  # in this thread: nothing may come before the call
                    try:
                        value = call.function()
                        if inspect.isawaitable(value):
                            value = self._run(call.policy.wait_for(value, call.name))
                        else:
                            call.policy.check_plain(call.name)
                    except Exception as error:
                        pause = steps.seconds_before_retry(call, attempt, error)
                        if pause is None:
                            raise
                    else:
                        return self._run(steps.record_result(call, value, scope))
                finally:
                    self._run(scope.rollback())
            self._run(self._original._wait_before_retry(pause))

    def _check_lease(self, what: str) -> None:
        """Like `Context._check_lease`; uses the event loop only to ask the store."""
        lease = self._original._lease
        lease.raise_if_lost(self.job_id, what)
        if not lease.is_sure:
            self._run(self._original._check_lease(what))

    def transaction(self) -> "SyncTransaction":
        """A transaction on the database the jobs are in, for your own writes: `with ctx.transaction() as conn`.

        Opened inside a step's function it commits with the record of the step; elsewhere with the job's success, after
        the handler returned. Otherwise it is rolled back. The connection has `execute`, `executemany`, `fetch`,
        `fetchrow` and `fetchval`, which block. See `Context.transaction` for its limits.

            with ctx.transaction() as conn:
                conn.execute("INSERT INTO bookings (order_id) VALUES ($1)", order_id)
        """
        return SyncTransaction(Transaction(self._original, current_scope(self._original)), self._run)


def _run_on(loop: asyncio.AbstractEventLoop) -> Run:
    """Runs coroutines on the worker's event loop; the calling thread waits."""

    async def catch_requests(coroutine: Coroutine[Any, Any, T]) -> T | Suspend | CancelRequested | SoftTimeout:
        """These come back as values: raised in a task of the loop they would end the loop or cancel the task."""
        try:
            return await coroutine
        except (Suspend, CancelRequested, SoftTimeout) as request:
            return request

    def run(coroutine: Coroutine[Any, Any, T], /) -> T:
        result = asyncio.run_coroutine_threadsafe(catch_requests(coroutine), loop).result()
        if isinstance(result, Suspend | CancelRequested | SoftTimeout):
            raise result
        return result

    return run


class SyncTransaction(Blocking[Transaction]):
    """What `ctx.transaction()` returns in a plain `def` handler; used with `with`."""

    __exit__ = blocking(Transaction.__aexit__)

    def __enter__(self) -> "SyncConnection":
        return SyncConnection(self._run(self._original.__aenter__()), self._run)


class SyncConnection(Blocking[Any]):
    """A connection whose calls block the handler's thread; the same five methods on SQLite and Postgres."""

    def execute(self, query: str, *values: Any) -> str:
        """Run one statement; returns the database's status text."""
        status: str = self._run(self._original.execute(query, *values))
        return status

    def executemany(self, query: str, many: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each row of values."""
        self._run(self._original.executemany(query, many))

    def fetch(self, query: str, *values: Any) -> list[Any]:
        """All rows of a query."""
        return self._run(self._original.fetch(query, *values))

    def fetchrow(self, query: str, *values: Any) -> Any:
        """The first row, or None."""
        return self._run(self._original.fetchrow(query, *values))

    def fetchval(self, query: str, *values: Any, column: int = 0) -> Any:
        """One value of the first row, or None."""
        return self._run(self._original.fetchval(query, *values, column=column))
