"""SyncContext: the context of a plain `def` handler, with the methods of Context as blocking calls."""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, ParamSpec, TypeVar, overload

from .approvals import SyncApprovalCalls
from .children import SyncChildCalls
from .steps import NOT_RECORDED, StepCall
from .transaction import StepScope, SyncTransaction, Transaction, current_scope

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class SyncContext(SyncChildCalls, SyncApprovalCalls):
    """The context of a plain `def` handler: its first parameter, if annotated with SyncContext or named `ctx`.

    It has the methods of Context without `await`. The handler runs in a thread; each call blocks this thread, not the
    worker's event loop. A thread cannot be interrupted: check `ctx.cancelled` in long handlers.

        @app.job("charge")
        def charge(ctx: SyncContext, order_id: int) -> dict:
            return {"receipt": ctx.step("pay", pay, order_id)}
    """

    @overload
    def step(self, name: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    def step(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call `fn(*args, **kwargs)` and record its result; later executions get it without a call.

        `fn` runs in this thread; if it is a coroutine function, on the worker's event loop. Results, repeated names and
        errors are as in `Context.step`: StepMismatch for other arguments, StaleLease if the lease was lost.

            receipt = ctx.step("charge", pay, order_id, amount)
        """
        call = self._context._begin_step(name, fn, args, kwargs)
        result = self._run(lambda: self._context._steps.recorded_result(call))
        return result if result is not NOT_RECORDED else self._run_step(call, fn, args, kwargs)

    @overload
    def once(self, name: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    def once(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    def once(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Like `step`, but `fn` is called at most once in the job's life, even if the process dies during the call.

        Raises OnceUnfinished if an earlier call was begun and its end was not recorded, or if it raised.

            ctx.once("transfer", bank.transfer, amount)
        """
        steps = self._context._steps
        call = self._context._begin_step(name, fn, args, kwargs)
        result = self._run(lambda: steps.recorded_result(call))
        if result is not NOT_RECORDED:
            return result
        self._check_lease(f"step {call.name!r}")
        self._run(lambda: steps.record_start(call))
        try:
            return self._run_step(call, fn, args, kwargs)
        except Exception as error:
            raised = error
            self._run(lambda: steps.record_error(call, raised))
            raise

    def _run_step(
        self, call: StepCall, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        with self._context._engine.step_span(call.name), StepScope(self._context) as scope:
            try:
                self._check_lease(f"step {call.name!r}")  # in this thread: nothing may come between this and the call
                value = self._call_function(fn, args, kwargs)
                return self._run(lambda: self._context._steps.record_result(call, value, scope))
            finally:
                self._run(scope.rollback)

    def _call_function(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call fn in this thread; an awaitable result is awaited on the loop."""
        value = fn(*args, **kwargs)
        return self._run(lambda: _await(value)) if inspect.isawaitable(value) else value

    def transaction(self) -> SyncTransaction:
        """A transaction on the database the jobs are in, for your own writes: `with ctx.transaction() as conn`.

        Opened inside a step's function it commits with the record of the step; elsewhere with the job's success, after
        the handler returned. Otherwise it is rolled back. The connection has `execute`, `executemany`, `fetch`,
        `fetchrow` and `fetchval`, which block. See `Context.transaction` for its limits.

            with ctx.transaction() as conn:
                conn.execute("INSERT INTO bookings (order_id) VALUES ($1)", order_id)
        """
        return SyncTransaction(Transaction(self._context, current_scope(self._context)), self._run)

    def wait_for(self, name: str, timeout: float | None = None, *, kind: str = "signal") -> Any:
        """Wait for the signal `name` and return its data; the job leaves its worker meanwhile.

        The handler ends here and starts again from its first line when the signal came. Raises WaitTimeout after
        `timeout` seconds, and what `Context.wait_for` raises.

            answer = ctx.wait_for("confirmed", timeout=3600)
        """
        return self._run(lambda: self._context.wait_for(name, timeout, kind=kind))

    def sleep(self, seconds: float, *, name: str = "sleep") -> None:
        """Leave the worker for `seconds` (0 to 1e9); no slot and no thread is held meanwhile.

        Repeated names of one execution are numbered, so a loop sleeps each time.
        """
        self._run(lambda: self._context.sleep(seconds, name=name))

    def wait_until(self, moment: datetime | str, *, name: str = "until") -> None:
        """Leave the worker until `moment`: a datetime with a time zone, or ISO-8601 text. A past one does not wait."""
        self._run(lambda: self._context.wait_until(moment, name=name))

    def progress(self, share: float, message: str = "") -> None:
        """Report how far the job is: `share` from 0 to 1, and a message; written at most once a second."""
        self._run(lambda: self._context.progress(share, message))


async def _await(value: Awaitable[T]) -> T:
    return await value
