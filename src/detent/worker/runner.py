"""Runs one handler and turns its result or exception into an outcome."""

import asyncio
import os
import traceback
from collections.abc import Mapping
from concurrent.futures import Executor
from contextlib import nullcontext
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from detent.core.contract.model import Contract
from detent.core.errors import DetentError
from detent.core.job import Failure, LogLine, Micros
from detent.core.outcome import Cancelled, Failed, NotBound, Outcome, Snoozed, Stopped, Succeeded, Waits
from detent.core.retry import Origin
from detent.core.times import SECOND
from detent.engine import Engine
from detent.handler.base_context import BaseContext
from detent.handler.blocking import Run
from detent.handler.context import Context
from detent.handler.handler import Handler, PayloadNotBound
from detent.handler.lease import Lease, LeaseClock, Reading
from detent.handler.outcomes import Cancel, CancelRequested, Fail, Interrupted, Retry, Snooze, SoftTimeout, Suspend
from detent.handler.stop_requests import Interruptible, StopRequests
from detent.handler.sync_context import SyncContext
from detent.observability.job_logs import capturing, current_job, merge_captured, storing_logs
from detent.observability.settings import WorkerSettings
from detent.ports.claims import Claimed
from detent.system.clock import SystemClock
from detent.system.retry import OUTAGE

from .executors import DaemonThreads, HandlerProcessDied, HandlerProcesses

MAX_MESSAGE = 2_000
MAX_TRACEBACK = 8_000
MAX_CODE = 200
_SUCCEEDED_WITHOUT_RESULT = Succeeded(None)
Codes = Mapping[str, str | None]


class Runner:
    """Calls handlers on the event loop, in a thread or in another process, as their mode requires."""

    def __init__(self, slots: int, settings: WorkerSettings | None = None, url: str | None = None) -> None:
        """url: the database, for handlers that run in another process and open it there."""
        self._slots = slots
        self._settings = settings or WorkerSettings()
        self._url = url
        self._threads: Executor | None = None
        self._pool: HandlerProcesses | None = None

    async def run(self, handler: Handler, contract: Contract, claimed: Claimed, context: Context) -> Outcome:
        """Raises nothing but CancelledError. Log records and spans inside carry the job and its trace."""
        current_job.set(claimed)
        if context._engine.tracer is None and not handler.options.capture_logs:
            return await self._run(handler, contract, claimed, context)
        if not handler.options.capture_logs:
            return await self._traced(handler, contract, claimed, context)
        async with storing_logs(context._engine, claimed):
            return await self._traced(handler, contract, claimed, context)

    async def _traced(self, handler: Handler, contract: Contract, claimed: Claimed, context: Context) -> Outcome:
        tracer = context._engine.tracer
        if tracer is None:
            return await self._run(handler, contract, claimed, context)
        with tracer.execution_span(claimed) as ended:
            outcome = await self._run(handler, contract, claimed, context)
            ended(outcome)
            return outcome

    async def _run(self, handler: Handler, contract: Contract, claimed: Claimed, context: Context) -> Outcome:
        try:
            if handler.mode == "process":
                return await self._in_process(handler, contract, context)
            else:
                arguments = handler.call_arguments(claimed.payload)
                if handler.mode != "loop":
                    call = partial(self._in_thread, handler, context, arguments)
                else:
                    first = (context,) if handler.takes_context else ()
                    call = partial(handler.function, *first, **arguments)
                running: Any = handler.hooks.around(context, call)()
                soft = handler.mode == "loop" and handler.options.soft_timeout is not None
                outcome = succeeded(handler, await (Interruptible(running, context._requests) if soft else running))
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and not isinstance(error, SoftTimeout):
                await context.close()
                raise
            if error.__traceback__ is not None:  # this frame would keep the exception alive, and it with all frames
                error.__traceback__ = error.__traceback__.tb_next
            outcome = outcome_of(error, handler, contract.codes)
        try:
            return await context.finish(outcome)
        except Exception as error:
            return outcome_of(error, handler, contract.codes)

    async def _in_thread(self, handler: Handler, context: Context, arguments: dict[str, Any]) -> Any:
        loop = asyncio.get_running_loop()
        if self._threads is None:
            self._threads = DaemonThreads()
        sync_context = SyncContext(context, loop) if handler.takes_context or handler.hooks.plain_middleware else None
        run = copy_context().run  # with the job of log records and the current span
        return await loop.run_in_executor(self._threads, lambda: run(call_plain, handler, sync_context, arguments))

    async def _in_process(self, handler: Handler, contract: Contract, context: Context) -> Outcome:
        if self._pool is None:
            settings = self._settings
            size = min(self._slots, settings.handler_processes or os.cpu_count() or 1)
            memory = None if settings.max_memory_mb is None else settings.max_memory_mb * 2**20
            self._pool = HandlerProcesses(size, settings.max_jobs_per_process, memory)
        call = _ProcessCall(
            handler.function.__module__,
            handler.function.__qualname__,
            self._url,
            dict(contract.codes),
            tuple(context._claimed),
            context._deadline_at,
            None if context._lease.clock is None else context._lease.clock.lease_seconds,
            context._lease.confirmed,
            context._lease.ends,
        )
        try:
            outcome, lines = await self._pool.run(context._requests, _run_in_process, call)
        except HandlerProcessDied as error:
            # A contract with a closed list of retryable codes has one for a failed execution, and none for this.
            code = error.code if contract.retry.only_codes is None else contract.code("execution_failed")
            return Failed(Failure(code, error.message, type(error).__name__))
        except Exception as error:
            return outcome_of(error, handler, contract.codes)
        merge_captured(lines)
        return outcome

    def close(self) -> None:
        """Threads cannot be interrupted: those that still run are left, with a stale token."""
        if self._threads is not None:
            self._threads.shutdown(wait=False)
        if self._pool is not None:
            self._pool.close()


class _ProcessCall(NamedTuple):
    """What another process needs to run a job."""

    module: str
    qualname: str
    url: str | None
    codes: dict[str, str | None]
    claimed: tuple[Any, ...]
    deadline_at: Micros | None
    lease_seconds: float | None
    lease_confirmed: Reading | None
    lease_ends: float | None


def _run_in_process(requests: StopRequests, call: _ProcessCall) -> tuple[Outcome, list[LogLine]]:
    """In the other process: import the job definition by its qualified name and call its function. Returns the outcome
    and the captured log lines."""
    definition: Any = import_module(call.module)
    for part in call.qualname.split("."):
        definition = getattr(definition, part)
    handler: Handler = definition.handler
    claimed = Claimed(*call.claimed)
    current_job.set(claimed)
    with capturing(claimed.execution_no) if handler.options.capture_logs else nullcontext() as capture:
        try:
            if handler.takes_context:
                outcome = _with_context(definition.app, handler, claimed, requests, call)
            else:
                context, arguments = BaseContext(claimed, requests), handler.call_arguments(claimed.payload)
                context._deadline_at = call.deadline_at
                outcome = succeeded(handler, call_plain(handler, context, arguments))
        except BaseException as error:
            outcome = outcome_of(error, handler, call.codes)
    return _without_exception(outcome), [] if capture is None else list(capture.lines)


def _with_context(app: Any, handler: Handler, claimed: Claimed, requests: StopRequests, call: _ProcessCall) -> Outcome:
    """Run a handler whose context uses a connection of this process. The app keeps it open for the next job."""
    app.url = call.url or app.url
    run: Run = app.sync.run
    clock = None if call.lease_seconds is None else LeaseClock(SystemClock(), call.lease_seconds)

    async def open_context() -> tuple[Context, asyncio.AbstractEventLoop]:
        engine = await OUTAGE.run(app.ready)
        lease = Lease(clock=clock, confirmed=call.lease_confirmed)
        lease.ends = call.lease_ends
        return execution_context(handler, claimed, engine, lease, requests), asyncio.get_running_loop()

    context, loop = run(open_context())
    context._deadline_at = call.deadline_at
    try:
        arguments = handler.call_arguments(claimed.payload)
        outcome = succeeded(handler, call_plain(handler, SyncContext(context, loop), arguments))
    except BaseException as error:
        outcome = outcome_of(error, handler, call.codes)
    return run(context.finish(outcome))


def call_plain(handler: Handler, context: Any, arguments: dict[str, Any]) -> Any:
    """Call a plain handler inside the plain middleware, in the thread or process in which the handler runs."""
    first = (context,) if handler.takes_context else ()
    return handler.hooks.around(context, partial(handler.function, *first, **arguments), plain=True)()


def _without_exception(outcome: Outcome) -> Outcome:
    """For the parent process: an exception may not be picklable."""
    return Failed(replace(outcome.failure, exception=None)) if isinstance(outcome, Failed) else outcome


def execution_context(
    handler: Handler, claimed: Claimed, engine: Engine, lease: Lease | None = None, requests: StopRequests | None = None
) -> Context:
    """The context of one execution of this handler."""
    options = handler.options
    return Context(
        claimed,
        engine,
        options.park_seconds,
        strict_steps=options.strict_steps,
        lease=lease,
        requests=requests,
        give_up_on=options.give_up_on,
    )


def succeeded(handler: Handler, value: Any) -> Outcome:
    if value is None and handler.result is None:
        return _SUCCEEDED_WITHOUT_RESULT
    return Succeeded(handler.result_text(value))


def outcome_of(error: BaseException, handler: Handler, codes: Codes) -> Outcome:
    """The outcome of an execution that ended with this exception. An exception whose str() raises is a failure too."""
    if isinstance(error, BaseExceptionGroup) and error.split(CancelRequested)[1] is None:  # of a TaskGroup
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
    try:
        if isinstance(error, Suspend):
            return Waits(error.wait)
        if isinstance(error, Snooze):
            return Snoozed(int(error.seconds * SECOND))
        if isinstance(error, Cancel):
            return Cancelled(str(error.reason))
        if isinstance(error, CancelRequested):
            return Cancelled(error.reason)
        if isinstance(error, Interrupted):
            return Stopped()
        if isinstance(error, PayloadNotBound):
            return NotBound(failure_of(error, handler, codes), int(handler.options.hand_back_seconds * SECOND))
        return Failed(failure_of(error, handler, codes))
    except Exception as unreadable:
        name = type(error).__name__
        message = f"{name}, whose message cannot be read: {type(unreadable).__name__}: {unreadable}"
        return Failed(Failure(codes["execution_failed"] or "", message[:MAX_MESSAGE], name, False))


def failure_of(error: BaseException, handler: Handler, codes: Codes) -> Failure:
    """The failure to record for an exception: code, retryable or not, and the traceback, cut to a maximum length."""
    name = type(error).__name__
    message = (str(error) or name)[:MAX_MESSAGE]
    failed = codes["execution_failed"] or ""
    text = "".join(traceback.format_exception(error))[-MAX_TRACEBACK:]
    origin: dict[str, Any] = {"traceback": text, "exception": error}
    if isinstance(error, Fail):
        code = "" if error.code is None else str(error.code)[:MAX_CODE]
        return Failure(code, message, name, error.retryable, origin=Origin.FAIL, **origin)
    if isinstance(error, Retry):
        after = None if error.after is None else int(error.after * SECOND)
        return Failure(failed, message, name, True, after=after, **origin)
    if isinstance(error, DetentError) and not error.retryable:
        code = (codes["payload_invalid"] if error.code == "PAYLOAD_INVALID" else error.code) or failed
        if code == error.code:  # str(error) begins with the code
            message = error.message[:MAX_MESSAGE]
        return Failure(code, message, name, False, **origin)
    if isinstance(error, SoftTimeout):
        sentence = f"the execution took longer than its soft timeout of {handler.options.soft_timeout or 0:g} s"
        return Failure(codes["timeout"] or failed, sentence, name, **origin)
    retryable = None
    if isinstance(error, handler.options.give_up_on):
        retryable = False
    elif isinstance(error, handler.options.retry_on):
        retryable = True
    sentence = f"{name}: {message}" if message != name else name
    return Failure(failed, sentence, name, retryable, origin=Origin.EXCEPTION, **origin)
