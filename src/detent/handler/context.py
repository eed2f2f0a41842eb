"""What a handler is given: who it is, its effect keys, remembered steps, and the ways to wait and to be stopped."""

import asyncio
import inspect
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from detent.core.contract.model import Move
from detent.core.errors import InvalidInput, StaleLease
from detent.core.job import Note, Signal, Wait
from detent.core.outcome import Outcome, Succeeded, Waits
from detent.core.times import SECOND, from_datetime, from_iso
from detent.engine.execution.settle import Settlement, lacks, settle_last
from detent.engine.execution.steps import has_none_yet
from detent.engine.submit.submission import check_name
from detent.engine.tracing import step_span
from detent.ports.claims import Claimed
from detent.ports.store import OpenTransaction
from detent.ports.tx import Tx

from .outcomes import Suspend, WaitTimeout
from .relations import ChildAndApprovalCalls, SyncChildAndApprovalCalls
from .steps import NEW, Numbers, Sleep, StepCall, Steps, called
from .transaction import InStep, Scope, SyncTransaction, Transaction, check_closed, scope_of

if TYPE_CHECKING:
    from detent.engine import Engine

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
WAIT_KINDS = ("signal", "webhook", "human", "timer")
TIMER = "timer"
MAX_WAIT_SECONDS = 1e9
PARK_SECONDS = 60.0
_PROGRESS_SECONDS = 1.0


class BaseContext:
    """Facts about this execution; nothing here touches the store."""

    def __init__(self, claimed: Claimed) -> None:
        self._claimed = claimed
        self._reasons: list[str | None] = []
        """Why it should stop, by whoever said so; empty while nobody has."""

    @cached_property
    def log(self) -> "logging.LoggerAdapter[logging.Logger]":
        """A logger whose every line names the job."""
        claimed = self._claimed
        about = {"job_id": claimed.id, "execution_no": claimed.execution_no, "trace_id": claimed.trace_id}
        return logging.LoggerAdapter(logging.getLogger(f"detent.job.{claimed.job_type}"), about)

    @property
    def job_id(self) -> str:
        return self._claimed.id

    @property
    def job_type(self) -> str:
        return self._claimed.job_type

    @property
    def tenant_id(self) -> str:
        return self._claimed.tenant_id

    @property
    def execution_no(self) -> int:
        return self._claimed.execution_no

    @property
    def retries(self) -> int:
        return self._claimed.retries

    @property
    def trace_id(self) -> str | None:
        return self._claimed.trace_id

    @property
    def traceparent(self) -> str | None:
        """The W3C trace context the job was submitted in, to be passed on."""
        return self._claimed.traceparent

    @property
    def idempotency_key(self) -> str | None:
        return self._claimed.idempotency_key

    @property
    def execution_key(self) -> str:
        """Changes with each try: the job's id and its retry count."""
        return f"{self._claimed.id}+{self._claimed.retries}"

    def effect_key(self, name: str) -> str:
        """Stable over retries and over a requeue: give it to whoever must not do the same thing twice."""
        return f"{self._claimed.effect_root}:{name}"

    @property
    def cancelled(self) -> bool:
        """True once someone asked this job to stop, or its lease was lost; end soon."""
        return bool(self._reasons)

    @property
    def cancel_reason(self) -> str | None:
        """Why it should stop, as far as anyone said."""
        return self._reasons[-1] if self._reasons else None

    def ask_to_stop(self, reason: str | None) -> None:
        self._reasons.append(reason)


class Context(ChildAndApprovalCalls, BaseContext):
    """The context of an async handler."""

    _told_progress_at = float("-inf")

    def __init__(
        self,
        claimed: Claimed,
        engine: "Engine",
        park_seconds: float = PARK_SECONDS,
        *,
        strict_steps: bool = False,
        pause: Sleep = asyncio.sleep,
    ) -> None:
        super().__init__(claimed)
        self._engine = engine
        self._park_seconds = park_seconds
        self._strict_steps = strict_steps
        self._pause = pause

    # Made when they are asked for: most handlers do their work and return.

    @cached_property
    def _steps(self) -> Steps:
        return Steps(self._claimed, self._engine, strict=self._strict_steps, pause=self._pause)

    @cached_property
    def _sleeps(self) -> Numbers:
        return Numbers()

    @cached_property
    def scopes(self) -> list[Scope]:
        return [Scope()]

    @overload
    async def step(self, name: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    async def step(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    async def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call fn and record its result under this name; recorded, it is never called again, only remembered."""
        asked = self._ask(name, fn, args, kwargs)
        known = await self._steps.recall(asked)
        return known if known is not NEW else await self._recorded(asked, fn, args, kwargs)

    @overload
    async def once(self, name: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    async def once(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    async def once(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call fn at most once in the job's life; OnceUnfinished if an earlier call never came to its record."""
        asked = self._ask(name, fn, args, kwargs)
        known = await self._steps.recall(asked)
        if known is not NEW:
            return known
        await self._steps.begin(asked)
        try:
            return await self._recorded(asked, fn, args, kwargs)
        except Exception as error:
            await self._steps.broke(asked, error)
            raise

    def _ask(self, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> StepCall:
        check_closed(self, f"step {name!r}")
        return self._steps.ask(name, fn, args, kwargs)

    async def _recorded(
        self, asked: StepCall, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Run it and write it down, together with what it wrote in a transaction of its own."""
        with step_span(self._engine, asked.name), InStep(self) as scope:
            try:
                return await self._steps.finish(asked, await called(fn, args, kwargs), scope)
            finally:
                await scope.undo()

    def transaction(self) -> Transaction:
        """`async with ctx.transaction() as connection`: plain SQL on the jobs' own database.

        Inside a step it commits with the step's record, elsewhere with the job's success; else not at all.
        """
        return Transaction(self)

    async def begin(self) -> OpenTransaction:
        await self._steps.load()
        return await self._engine.store.begin()

    async def wait_for(self, name: str, timeout: float | None = None, *, kind: str = "signal") -> Any:
        """The data of the signal under this name; the job leaves its worker until it comes.

        A name is one wait for the job's life: asked again, it gives the same answer, or the same WaitTimeout.
        """
        check_name(name, "wait name")
        if kind not in WAIT_KINDS:
            raise InvalidInput(f"a wait is of kind {', '.join(WAIT_KINDS)}, not {kind!r}", code="WAIT_KIND_UNKNOWN")
        signal = await self._answer(name, kind, timeout)
        if signal.timed_out:
            raise WaitTimeout(f"nobody sent {name!r} to job {self.job_id} in time")
        return json.loads(signal.data)

    async def sleep(self, seconds: float, *, name: str = "sleep") -> None:
        """Leave the worker for this long. A name used again is numbered, so a loop sleeps each time."""
        await self._answer(self._sleeps.number(name, "sleep name"), TIMER, seconds)

    async def wait_until(self, moment: datetime | str, *, name: str = "until") -> None:
        """Leave the worker until this moment, a datetime with a zone or ISO-8601 text; a past one is no wait."""
        at = from_datetime(moment) if isinstance(moment, datetime) else from_iso(moment, field="moment")
        numbered = self._sleeps.number(name, "wait name")
        left = at - self._engine.store.now()
        if left > 0:
            await self._answer(numbered, TIMER, left / SECOND)

    async def _answer(self, name: str, kind: str, timeout: float | None) -> Signal:
        """What ended this wait, or the suspension that begins it."""
        self._check_can_wait()
        check_closed(self, f"a wait for {name!r}")
        if timeout is not None and not 0 <= timeout <= MAX_WAIT_SECONDS:
            raise InvalidInput(
                f"a wait lasts from 0 to {MAX_WAIT_SECONDS:g} s, got {timeout!r}; leave the timeout out for no end",
                code="WAIT_INVALID",
            )
        signal: Signal | None = await self._engine.store.read(lambda tx: tx.signal(self.job_id, name))
        if signal is None:
            long = timeout is None or timeout > self._park_seconds
            raise Suspend(Wait(name, kind, None if timeout is None else int(timeout * SECOND), park=long))
        return signal

    def check_closed(self, what: str) -> None:
        check_closed(self, what)

    def _check_can_wait(self) -> None:
        contract = self._engine.contract(self._claimed.contract)
        if not any(edge.move is Move.WAIT for edge in contract.edges):
            raise lacks(contract, "a wait")

    async def finish(self, outcome: Outcome) -> Outcome:
        """The last word of an execution: recorded steps it did not ask for are noted, or refused if it is strict."""
        used = self.__dict__
        if "scopes" not in used and "_steps" not in used and has_none_yet(self._claimed):
            return outcome
        scope = self.scopes[0]
        if scope.open is None:
            if isinstance(outcome, Succeeded | Waits):
                await self._steps.account()
            return outcome
        try:
            return await self._settled(scope, outcome) if isinstance(outcome, Succeeded) else outcome
        finally:
            await scope.undo()

    async def _settled(self, scope: Scope, outcome: Succeeded) -> Outcome:
        """Success and the user's writes in one commit; the worker then says it again, which changes nothing."""
        orphans = self._steps.left()
        said = Settlement(self.job_id, self._claimed.token, self._claimed.contract, outcome)
        try:
            await scope.commit(lambda tx: settle_last(self._engine, tx, said, orphans))
        except StaleLease:
            return outcome  # said again without the writes, it is refused and noted
        return outcome

    async def close(self) -> None:
        """The handler was stopped: whatever it had open has not happened."""
        for scope in self.scopes:
            await scope.undo()

    async def progress(self, share: float, message: str = "") -> None:
        """Tell how far the job is, at most once a second; visible beside its log."""
        now = asyncio.get_running_loop().time()
        if now - self._told_progress_at < _PROGRESS_SECONDS:
            return
        if any(scope.open is not None for scope in self.scopes):
            return  # the store may be in this very handler's hands
        self._told_progress_at = now
        data = {"share": max(0.0, min(1.0, share)), "message": message[:500]}
        claimed = self._claimed

        async def act(tx: Tx) -> None:
            row = (await tx.lock([claimed.id])).get(claimed.id)
            if row and row.token == claimed.token and row.worker:
                at = max(tx.now, row.updated_at)
                await tx.add_notes([Note(row.id, row.version, "progress", at, row.worker, row.execution_no, data)])

        await self._engine.store.write(act)


class SyncContext(SyncChildAndApprovalCalls, BaseContext):
    """The same for a plain `def` handler in its thread: each call blocks the thread, not the loop."""

    def __init__(self, context: Context, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(context._claimed)
        self._context = context
        self._loop = loop
        self._reasons = context._reasons

    @overload
    def step(self, name: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    def step(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        asked = self._context._ask(name, fn, args, kwargs)
        known = self._run(lambda: self._context._steps.recall(asked))
        return known if known is not NEW else self._recorded(asked, fn, args, kwargs)

    @overload
    def once(self, name: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    def once(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    def once(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        steps = self._context._steps
        asked = self._context._ask(name, fn, args, kwargs)
        known = self._run(lambda: steps.recall(asked))
        if known is not NEW:
            return known
        self._run(lambda: steps.begin(asked))
        try:
            return self._recorded(asked, fn, args, kwargs)
        except Exception as error:
            broken = error
            self._run(lambda: steps.broke(asked, broken))
            raise

    def _recorded(
        self, asked: StepCall, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        with step_span(self._context._engine, asked.name), InStep(self._context) as scope:
            try:
                value = self._called(fn, args, kwargs)
                return self._run(lambda: self._context._steps.finish(asked, value, scope))
            finally:
                self._run(scope.undo)

    def transaction(self) -> SyncTransaction:
        """`with ctx.transaction() as connection`: as in an async handler, and its calls block."""
        return SyncTransaction(Transaction(self._context, scope_of(self._context)), self._run)

    def _called(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """In this thread; what can be awaited is awaited on the loop."""
        value = fn(*args, **kwargs)
        return self._run(lambda: _awaited(value)) if inspect.isawaitable(value) else value

    def wait_for(self, name: str, timeout: float | None = None, *, kind: str = "signal") -> Any:
        return self._run(lambda: self._context.wait_for(name, timeout, kind=kind))

    def sleep(self, seconds: float, *, name: str = "sleep") -> None:
        self._run(lambda: self._context.sleep(seconds, name=name))

    def wait_until(self, moment: datetime | str, *, name: str = "until") -> None:
        self._run(lambda: self._context.wait_until(moment, name=name))

    def progress(self, share: float, message: str = "") -> None:
        self._run(lambda: self._context.progress(share, message))

    def _run(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run it on the loop; a suspension travels back as a value, because a loop dies of a BaseException."""

        async def kept() -> tuple[T | None, Suspend | None]:
            try:
                return await call(), None
            except Suspend as suspended:
                return None, suspended

        value, suspended = asyncio.run_coroutine_threadsafe(kept(), self._loop).result()
        if suspended is not None:
            raise suspended
        return value  # type: ignore[return-value]


async def _awaited(value: Awaitable[T]) -> T:
    return await value
