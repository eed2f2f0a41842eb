"""The steps of one execution: names each call, returns results of earlier executions, records new results, and calls
a function again as its options `retries`, `timeout` and `backoff` say."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from detent.core import retry
from detent.core.errors import (
    DetentError,
    InvalidInput,
    OnceUnfinished,
    StaleLease,
    StepMismatch,
    StepOrphaned,
    check_number,
)
from detent.core.job import Micros, Step
from detent.core.options.backoff import Exponential, backoff_text, parse_backoff
from detent.core.options.spans import seconds_of
from detent.engine.execution import steps as acts
from detent.engine.execution.settle import MAX_RESULT
from detent.system.retry import OUTAGE

from .argument_digest import digest_of
from .base_context import EngineContext, Numbers
from .json_values import JSON_ERRORS, Adapter, first_line, from_json, return_adapter, to_json
from .outcomes import Cancel, Fail, Retry, Snooze
from .transaction import Scope

log = logging.getLogger("detent.handler.steps")
MAX_ERROR = 500
NOT_RECORDED = object()
"""What `recorded_result` returns for a step without a record."""
_NAMES = frozenset({"retries", "timeout", "backoff"})
_CODE = "STEP_OPTION_INVALID"
_OUTCOMES = (Retry, Fail, Snooze, Cancel)
"""They end the execution; the step that raises one of them is not repeated."""


@dataclass(frozen=True, slots=True)
class StepRetries:
    """Without options: one call, without a limit of time."""

    retries: int = 0
    timeout: float | None = None
    backoff: retry.Backoff | None = None

    def delay(self, key: str, attempt: int, error: Exception, jitter: retry.Jitter) -> float | None:
        """Seconds until the next call after this error of call number `attempt`; None: the error is final."""
        permanent = isinstance(error, DetentError) and not error.retryable
        if attempt > self.retries or permanent or isinstance(error, _OUTCOMES) or self.backoff is None:
            return None
        return self.backoff.delay_ms(key, attempt, jitter) / 1_000

    async def wait_for(self, awaitable: Awaitable[Any], step: str) -> Any:
        """The awaited value; raises TimeoutError if it takes too long."""
        if self.timeout is None:
            return await awaitable
        limit = asyncio.timeout(self.timeout)
        try:
            async with limit:
                return await awaitable
        except TimeoutError:
            if limit.expired():
                raise TimeoutError(f"step {step!r} took longer than its timeout of {self.timeout:g} s") from None
            raise

    def check_plain(self, step: str) -> None:
        """Refuse a timeout for a function that is not async: it has returned, and could not have been interrupted."""
        if self.timeout is not None:
            message = f"step {step!r}: a timeout needs an async function, a plain one cannot be interrupted"
            raise InvalidInput(f"{message}; pass a timeout to what it calls, or limit the job: timeout=", code=_CODE)


NO_RETRIES = StepRetries()


@dataclass(frozen=True, slots=True)
class StepCall:
    """One call of a step in this execution."""

    name: str
    digest: str
    adapter: Adapter | None
    function: Callable[[], Any]
    """The user's function with its arguments; plain or async."""
    policy: StepRetries = NO_RETRIES
    started_at: Micros | None = None


class Steps:
    """Looks up and records the steps of one execution of one job."""

    def __init__(self, context: EngineContext) -> None:
        self._claimed = context._claimed
        self._engine = context._engine
        self._strict = context._strict_steps
        self._pause = context._pause
        self._give_up_on = context._give_up_on
        self._names = Numbers()
        self._called: set[str] = set()
        self._recorded: dict[str, Step] | None = None

    def begin_call(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        policy: StepRetries = NO_RETRIES,
    ) -> StepCall:
        numbered = self._names.check_and_number(name, "step name")
        self._called.add(numbered)
        bound = partial(function, *args, **kwargs)
        started_at = self._engine.store.now()
        return StepCall(numbered, digest_of(args, kwargs), return_adapter(function), bound, policy, started_at)

    def seconds_before_retry(self, call: StepCall, attempt: int, error: Exception) -> float | None:
        """The pause before the function of a step is called again after this error; None: the error is final."""
        key = f"{self._claimed.id}/{call.name}"
        seconds = call.policy.delay(key, attempt, error, self._engine.jitter)
        if seconds is None or isinstance(error, self._give_up_on):
            return None
        text = "step %r failed, call %d of %d, calling it again in %.3g s: %s: %s"
        number, most = attempt, call.policy.retries + 1
        log.warning(text, call.name, number, most, seconds, type(error).__name__, first_line(error))
        return seconds

    async def recorded_result(self, call: StepCall) -> Any:
        """The recorded result of this step, or NOT_RECORDED."""
        step = (await self.load()).get(call.name)
        if step is None:
            self.orphans()
            return NOT_RECORDED
        if step.digest != call.digest:
            raise StepMismatch(
                f"step {call.name!r} of job {step.job_id} was recorded with other arguments; keep the arguments of a "
                "recorded step, or give the changed step another name",
                step=call.name,
            )
        if not step.finished:
            raise _unfinished(step)
        try:
            return from_json(call.adapter, step.result or "null")
        except JSON_ERRORS as error:
            message = f"the recorded result of step {call.name!r} does not fit its return annotation"
            raise InvalidInput(f"{message}: {first_line(error)}", code="STEP_RESULT_INVALID", step=call.name) from None

    async def record_start(self, call: StepCall) -> None:
        """The first of the two commits of `once`: from here on its function is never called again."""
        await self._record(call, None, finished=False)

    async def record_error(self, call: StepCall, error: BaseException) -> None:
        """A `once` that raised stays unfinished; its error is kept for the message of OnceUnfinished."""
        text = to_json(None, f"{type(error).__name__}: {first_line(error)}"[:MAX_ERROR])
        await self._record(call, text, finished=False)

    async def record_result(self, call: StepCall, value: Any, scope: Scope) -> Any:
        """Record the result, and return it as every later execution will get it: converted to JSON and back."""
        text = self._result_text(call, value)
        if scope.transaction is None:
            await self._record(call, text, finished=True)
        else:
            await self._commit_with(scope, call, text)
        return from_json(call.adapter, text)

    async def _commit_with(self, scope: Scope, call: StepCall, text: str) -> None:
        step, token = self._step(call, text, finished=True), self._claimed.token
        try:
            await scope.commit(lambda tx: acts.record_step_or_raise(tx.steps, step, token))
        except StaleLease as error:
            await acts.note_refusal(self._engine, step, error)
            raise

    def _result_text(self, call: StepCall, value: Any) -> str:
        try:
            text = to_json(call.adapter, value)
            size = len(text.encode())
        except JSON_ERRORS as error:
            message = f"the result of step {call.name!r} does not fit its return annotation, or is not JSON"
            raise InvalidInput(f"{message}: {first_line(error)}", code="STEP_RESULT_INVALID", step=call.name) from None
        if size > MAX_RESULT:
            raise InvalidInput(
                f"the result of step {call.name!r} has {size} bytes, the limit is {MAX_RESULT}; store the data "
                "elsewhere and return a reference",
                code="STEP_RESULT_TOO_LARGE",
                size=size,
                limit=MAX_RESULT,
            )
        return text

    async def note_orphans(self) -> None:
        """At the end of an execution or before a wait: note recorded steps that the code did not call."""
        if self._recorded is None and acts.has_no_recorded_steps(self._claimed):
            return
        await self.load()
        orphans = self.orphans()
        if orphans:
            await OUTAGE.run(lambda: acts.note_orphaned_steps(self._engine, self._claimed, orphans), self._pause)

    def orphans(self) -> list[str]:
        """Recorded steps that were not called. With strict_steps: raises StepOrphaned, before any new step runs."""
        names = [name for name in self._recorded or () if name not in self._called]
        if names and self._strict:
            problem = f"has recorded steps that the code no longer calls: {', '.join(map(repr, names))}"
            advice = "call them again, or requeue the job to run the new code from the start"
            raise StepOrphaned(f"job {self._claimed.id} {problem}; {advice}", steps=names)
        return names

    async def load(self) -> dict[str, Step]:
        """All recorded steps of the job, read once per execution."""
        if self._recorded is None:
            rows = await OUTAGE.run(lambda: acts.recorded_steps(self._engine, self._claimed), self._pause)
            if self._recorded is None:  # a concurrent step may have loaded them meanwhile
                self._recorded = {step.name: step for step in rows}
        return self._recorded

    async def _record(self, call: StepCall, text: str | None, *, finished: bool) -> None:
        step = self._step(call, text, finished=finished)
        await OUTAGE.run(lambda: acts.record_step(self._engine, step, self._claimed.token), self._pause)

    def _step(self, call: StepCall, text: str | None, *, finished: bool) -> Step:
        claimed, now = self._claimed, self._engine.store.now()
        return Step(claimed.id, call.name, call.digest, text, finished, claimed.execution_no, now, call.started_at)


def _unfinished(step: Step) -> OnceUnfinished:
    error = f" ({from_json(None, step.result)})" if step.result else ""
    return OnceUnfinished(
        f"{step.name!r} of job {step.job_id} was begun in execution {step.execution_no} and never finished{error}; it "
        "is not run again. Check whether it happened, then continue, or run it under another name",
        step=step.name,
        execution_no=step.execution_no,
    )


def split_options(function: Callable[..., Any], kwargs: Mapping[str, Any]) -> tuple[StepRetries, Mapping[str, Any]]:
    """The options among the keyword arguments of a step, and the arguments of its function.

    An argument that the function itself has a parameter for, or takes with **kwargs, is passed to the function.
    """
    names = _NAMES & kwargs.keys()
    names = names - _parameters(function) if names else names
    if not names:
        return NO_RETRIES, kwargs
    options = {name: kwargs[name] for name in names}
    retries, timeout, backoff = options.get("retries", 0), options.get("timeout"), options.get("backoff")
    check_number(retries, "retries", 0, 1_000, _CODE)
    limit = None if timeout is None else seconds_of(timeout, "timeout", low=0.001, code=_CODE)
    delays = parse_backoff(backoff_text(Exponential() if backoff is None else backoff))
    return StepRetries(retries, limit, delays), {name: kwargs[name] for name in kwargs.keys() - names}


def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a builtin without a signature
        return frozenset()
    return _NAMES if any(p.kind is p.VAR_KEYWORD for p in parameters.values()) else frozenset(parameters)
