"""Context: what an async handler can do. Steps, waits, transactions, progress; children and approvals are inherited."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from itertools import count
from typing import Any, ParamSpec, TypeVar, overload

from detent.core.errors import DetentError, InvalidInput, StaleLease
from detent.core.job import Signal
from detent.core.options.backoff import Backoff
from detent.core.options.job_options import Seconds
from detent.core.options.spans import seconds_of
from detent.core.outcome import Outcome, Succeeded, Waits
from detent.core.times import SECOND, from_datetime, from_iso
from detent.engine.execution.settle import Settlement, settle_or_raise
from detent.engine.execution.steps import has_no_recorded_steps, record_progress
from detent.engine.reads.why import TIMER
from detent.engine.submit.submission import check_name
from detent.ports.store import OpenTransaction

from .approvals import ApprovalCalls
from .base_context import Numbers
from .children import ChildCalls
from .json_values import JSON_ERRORS, adapter_of, first_line, from_json
from .outcomes import WaitTimeout
from .steps import NO_RETRIES, NOT_RECORDED, StepCall, StepRetries, Steps, split_options
from .transaction import Scope, Transaction, check_no_transaction, step_scope

P = ParamSpec("P")
R = TypeVar("R")
WAIT_KINDS = ("signal", "webhook", "human", TIMER)
_PROGRESS_SECONDS = 1.0
_RETRY_PAUSE_SECONDS = 0.25


class Context(ChildCalls, ApprovalCalls):
    """The context of an `async def` handler: its first parameter, if annotated with Context or named `ctx`.

    After a crash, a retry or a wait the handler starts again from its first line. Steps and waits that have happened
    are not repeated; they return what was recorded. Code outside steps runs again.

        @app.job("charge")
        async def charge(ctx: Context, order_id: int) -> dict:
            receipt = await ctx.step("pay", pay, order_id, idempotency_key=ctx.effect_key("pay"))
            answer = await ctx.wait_for("confirmed", timeout=3600)
            return {"receipt": receipt, "by": answer["user"]}
    """

    _progress_at = float("-inf")
    _last_report: tuple[float, str] | None = None
    """A report of progress that waits for its second to be over."""
    _report_later: asyncio.Task[None] | None = None

    @cached_property
    def _steps(self) -> Steps:
        return Steps(self)

    @cached_property
    def _sleep_names(self) -> Numbers:
        return Numbers()

    @overload
    async def step(
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
    async def step(
        self, name: str, fn: Callable[..., Awaitable[R]], /, *args: Any, timeout: Seconds, **kwargs: Any
    ) -> R: ...

    @overload
    async def step(
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
    async def step(self, name: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    async def step(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    async def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call `fn(*args, **kwargs)` and record its result; later executions get it without a call.

        `fn` may be plain or async. The result must be JSON, or become JSON through fn's return annotation, at most
        1 MiB. An exception is not recorded: a retry calls fn again. If the process dies after fn and before the record,
        fn runs again as well; use `effect_key` or `once` against that. Repeated names of one execution are numbered.

        retries: how often fn is called again in this execution after an exception. Default 0.
        timeout: seconds that one call of an async fn may take; then TimeoutError. Default: no limit.
        backoff: the delays before these retries, as in `@app.job`. Default: Exponential(), 1, 2, 4, ... up to 60 s.
        If fn has a parameter with one of these three names, or **kwargs, then fn gets the argument.

        Raises StepMismatch if the step was recorded with other arguments, StaleLease if the lease was lost,
        CancelRequested, InvalidInput (STEP_RESULT_INVALID, STEP_RESULT_TOO_LARGE, STEP_OPTION_INVALID,
        TRANSACTION_OPEN).

            receipt = await ctx.step("charge", pay, order_id, amount, retries=3, timeout=30, backoff=[1, 5, 15])
        """
        policy, arguments = split_options(fn, kwargs) if kwargs else (NO_RETRIES, kwargs)
        call = self._begin_step(name, fn, args, arguments, policy)
        result = await self._steps.recorded_result(call)
        return result if result is not NOT_RECORDED else await self._run_step(call)

    @overload
    async def once(self, name: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    async def once(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    async def once(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Like `step`, but `fn` is called at most once in the job's life, even if the process dies during the call.

        It commits before the call and after it. If an earlier execution began the call and did not record its end, or
        if fn raised, fn is not called again: OnceUnfinished is raised, because it is unknown whether the effect
        happened. Check it, then continue or use another name. Raises what `step` raises, too.

            await ctx.once("transfer", bank.transfer, amount)
        """
        call = self._begin_step(name, fn, args, kwargs)
        result = await self._steps.recorded_result(call)
        if result is not NOT_RECORDED:
            return result
        await self._check_lease(f"step {call.name!r}")
        await self._steps.record_start(call)
        try:
            return await self._run_step(call)
        except Exception as error:
            await self._steps.record_error(call, error)
            raise

    def _begin_step(
        self,
        name: str,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        policy: StepRetries = NO_RETRIES,
    ) -> StepCall:
        self._lease.raise_if_lost(self.job_id, f"step {name!r}")
        self._requests.raise_pending()
        check_no_transaction(self.scopes, f"step {name!r}")
        return self._steps.begin_call(name, fn, args, kwargs, policy)

    async def _run_step(self, call: StepCall) -> Any:
        """Call fn and record its result, in one commit with what fn wrote through ctx.transaction()."""
        for attempt in count(1):
            with self._engine.step_span(call.name), step_scope(self) as scope:
                try:
                    await self._check_lease(f"step {call.name!r}")  # nothing may come between this and the call
                    try:
                        value = call.function()
                        if inspect.isawaitable(value):
                            value = await call.policy.wait_for(value, call.name)
                        else:
                            call.policy.check_plain(call.name)
                    except Exception as error:
                        pause = self._steps.seconds_before_retry(call, attempt, error)
                        if pause is None:
                            raise
                    else:
                        return await self._steps.record_result(call, value, scope)
                finally:
                    await scope.rollback()
            await self._wait_before_retry(pause)

    async def _wait_before_retry(self, seconds: float) -> None:
        """Wait in short pauses, so that a request of the worker does not wait for the end of a long one."""
        while seconds > 0:
            self._requests.raise_pending()
            await self._pause(min(seconds, _RETRY_PAUSE_SECONDS))
            seconds -= _RETRY_PAUSE_SECONDS
        self._requests.raise_pending()

    def transaction(self) -> Transaction:
        """A transaction on the database the jobs are in, for your own writes: `async with ctx.transaction() as conn`.

        Opened inside a step's function it commits with the record of the step; elsewhere with the job's success, after
        the handler returned. Otherwise, also if the lease was lost, it is rolled back. The connection has `execute`,
        `executemany`, `fetch`, `fetchrow` and `fetchval`; on Postgres it is asyncpg's. On SQLite, which has one writer,
        it may stay open for 5 seconds (TransactionTooLong). Steps, waits and children are refused (TRANSACTION_OPEN)
        while it is open.

            async with ctx.transaction() as conn:
                await conn.execute("INSERT INTO bookings (order_id) VALUES ($1)", order_id)
        """
        return Transaction(self)

    async def begin_transaction(self) -> OpenTransaction:
        """Begin the transaction behind `transaction()`. Internal; handlers use `transaction()`."""
        await self._steps.load()
        await self._begin_call("a transaction")
        return await self._engine.store.begin()

    @overload
    async def wait_for(self, name: str, timeout: Seconds | None = None, *, kind: str = "signal") -> Any: ...

    @overload
    async def wait_for(
        self, name: str, timeout: Seconds | None = None, *, kind: str = "signal", type: type[R]
    ) -> R: ...

    async def wait_for(
        self, name: str, timeout: Seconds | None = None, *, kind: str = "signal", type: Any = Any
    ) -> Any:
        """Wait for the signal `name` and return its data; the job leaves its worker meanwhile.

        Signals are sent with `handle.signal(name, data)`, REST or `detent jobs signal`; one that came early is kept.
        A name is one wait for the job's life: later executions get the same data, or the same WaitTimeout. In a loop
        put a counter into the name.

        timeout: seconds, at most 1e9, a timedelta, or text like "5m"; None waits without end.
        kind: "signal", "webhook", "human" or "timer"; shown to people, no other effect.
        type: the type of the data, for example a pydantic model. Default: plain JSON.

        Raises WaitTimeout, InvalidInput (SIGNAL_INVALID if the data is not of this type; WAIT_INVALID,
        WAIT_KIND_UNKNOWN, TRANSACTION_OPEN), and NotSupported (CONTRACT_LACKS_MOVE) if the contract has no waiting
        status. Do not catch BaseException around a wait.

            answer = await ctx.wait_for("confirmed", timeout=3600, type=Answer)
        """
        check_name(name, "wait name")
        if kind not in WAIT_KINDS:
            raise InvalidInput(f"kind must be one of {', '.join(WAIT_KINDS)}, got {kind!r}", code="WAIT_KIND_UNKNOWN")
        signal = await self._recorded_signal(name, kind, timeout)
        if signal.timed_out:
            raise WaitTimeout(f"signal {name!r} was not sent to job {self.job_id} before the timeout")
        try:
            return from_json(adapter_of(type), signal.data)
        except JSON_ERRORS as error:
            message = f"the data of signal {name!r} is not what the handler expects: {first_line(error)}"
            raise InvalidInput(f"{message}; job {self.job_id} keeps the first one", code="SIGNAL_INVALID") from None

    async def sleep(self, seconds: Seconds, *, name: str = "sleep") -> None:
        """Leave the worker for `seconds` (0 to 1e9); no slot is held meanwhile.

        Repeated names of one execution are numbered, so a loop sleeps each time. Raises what `wait_for` raises, but
        for WaitTimeout.
        """
        await self._recorded_signal(self._sleep_names.check_and_number(name, "sleep name"), TIMER, seconds)

    async def wait_until(self, moment: datetime | str, *, name: str = "until") -> None:
        """Leave the worker until `moment`: a datetime with a time zone, or ISO-8601 text. A past moment does not wait.

        Raises InvalidInput (TIME_INVALID) for a moment without a zone, and what `sleep` raises.
        """
        at = from_datetime(moment) if isinstance(moment, datetime) else from_iso(moment, field="moment")
        numbered = self._sleep_names.check_and_number(name, "wait name")
        remaining = at - self._engine.store.now()
        if remaining > 0:
            await self._recorded_signal(numbered, TIMER, remaining / SECOND)

    async def _recorded_signal(self, name: str, kind: str, timeout: Seconds | None) -> Signal:
        """The signal or timeout that ended this wait; raises Suspend if it has not ended yet."""
        await self._begin_call(f"a wait for {name!r}")
        self._check_can_wait("a wait")
        check_no_transaction(self.scopes, f"a wait for {name!r}")
        limit = None if timeout is None else seconds_of(timeout, "a wait", code="WAIT_INVALID")
        signal: Signal | None = await self._engine.store.read(lambda tx: tx.signals.signal(self.job_id, name))
        if signal is None:
            raise self._suspend(name, kind, limit)
        return signal

    async def finish(self, outcome: Outcome) -> Outcome:
        """Commit the open transaction with a success, and note recorded steps that were not called.

        Called by the worker when the handler has returned or raised. With strict_steps such a step raises StepOrphaned.
        """
        self._drop_report()
        used = self.__dict__
        if "scopes" not in used and "_steps" not in used and has_no_recorded_steps(self._claimed):
            return outcome
        scope = self.scopes[0]
        if scope.transaction is None:
            if isinstance(outcome, Succeeded | Waits):
                await self._steps.note_orphans()
            return outcome
        try:
            if isinstance(outcome, Succeeded):
                await self._settle_with(scope, outcome)
            return outcome
        finally:
            await scope.rollback()

    async def _settle_with(self, scope: Scope, outcome: Succeeded) -> None:
        """Commit the success and the user's writes together. The worker then settles again, which changes nothing."""
        orphans = self._steps.orphans()
        settlement = Settlement(self.job_id, self._claimed.token, self._claimed.contract, outcome)
        with suppress(StaleLease):  # the worker settles again, without the writes; that is refused and noted
            await scope.commit(lambda tx: settle_or_raise(self._engine, tx, settlement, orphans))

    async def close(self) -> None:
        """Roll back open transactions. Called by the worker when it has interrupted the handler."""
        self._drop_report()
        for scope in self.scopes:
            await scope.rollback()

    async def progress(self, share: float, message: str = "") -> None:
        """Report how far the job is: `share` from 0 to 1, and a message of at most 500 characters.

        Written at most once a second, over the report before: of several calls within a second the first is written at
        once and the last when the second is over. Calls while a transaction is open do nothing. Shown by `detent jobs
        why`, in the job's log as one entry, and as a bar on the dashboard.

            await ctx.progress(0.4, "4,000 of 10,000 rows")

        Raises StaleLease if the lease was lost.
        """
        self._lease.raise_if_lost(self.job_id, "progress")
        self._requests.raise_pending()
        wait = self._progress_at + _PROGRESS_SECONDS - asyncio.get_running_loop().time()
        if wait <= 0:
            await self._report(share, message)
            self._lease.raise_if_lost(self.job_id, "progress")
            return
        if self._last_report is None:
            self._report_later = asyncio.create_task(self._report_after(wait))
        self._last_report = share, message

    async def _report(self, share: float, message: str) -> None:
        if any(scope.transaction is not None for scope in self.scopes):
            return  # SQLite has one writer, and this handler holds it
        self._progress_at = asyncio.get_running_loop().time()
        if not await record_progress(self._engine, self._claimed, share, message):
            self._lease.lost = "lease lost"

    async def _report_after(self, seconds: float) -> None:
        """Write the last report. An outage loses it: the handler, which would get the error, did not wait for it."""
        await asyncio.sleep(seconds)
        report, self._last_report = self._last_report, None
        if report is not None:
            with suppress(DetentError):
                await self._report(*report)

    def _drop_report(self) -> None:
        """The execution has ended, and its progress is not shown any more."""
        if self._last_report is not None and self._report_later is not None:
            self._last_report = None
            self._report_later.cancel()
