"""Runs one handler and turns its result or exception into an outcome."""

import asyncio
import logging
import os
import traceback
from collections.abc import Mapping
from concurrent.futures import Executor
from contextvars import copy_context
from functools import partial
from importlib import import_module
from typing import Any

from detent.core.contract.model import Contract
from detent.core.errors import DetentError
from detent.core.job import Failure
from detent.core.outcome import Cancelled, Failed, NotBound, Outcome, Snoozed, Stopped, Succeeded, Waits
from detent.core.retry import Origin
from detent.core.times import SECOND
from detent.engine import Engine
from detent.handler.base_context import BaseContext
from detent.handler.context import Context
from detent.handler.handler import Handler, PayloadNotBound
from detent.handler.outcomes import Cancel, Fail, Interrupted, Retry, Snooze, Suspend
from detent.handler.sync_context import SyncContext
from detent.observability.job_logs import Capture, capturing, current_job, store_lines
from detent.ports.claims import Claimed

from .executors import DaemonThreads, HandlerProcesses

log = logging.getLogger("detent.worker.runner")
MAX_MESSAGE = 2_000
MAX_TRACEBACK = 8_000
MAX_CODE = 200
_SUCCEEDED_WITHOUT_RESULT = Succeeded(None)
Codes = Mapping[str, str | None]


class Runner:
    """Calls handlers on the event loop, in a thread or in another process, as their mode requires."""

    def __init__(self, slots: int, processes: int | None = None) -> None:
        self._processes = min(slots, processes or os.cpu_count() or 1)
        self._threads: Executor | None = None
        self._pool: HandlerProcesses | None = None

    async def run(self, handler: Handler, contract: Contract, claimed: Claimed, context: Context) -> Outcome:
        """Raises nothing but CancelledError. Log records and spans inside carry the job and its trace."""
        current_job.set(claimed)
        if context._engine.tracer is None and not handler.options.capture_logs:
            return await self._run(handler, contract, claimed, context)
        if not handler.options.capture_logs:
            return await self._traced(handler, contract, claimed, context)
        with capturing() as capture:
            try:
                return await self._traced(handler, contract, claimed, context)
            finally:
                await _store_logs(context._engine, claimed, capture)

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
                outcome = await self._in_process(handler, contract.codes, claimed)
            else:
                arguments = handler.call_arguments(claimed.payload)
                if handler.mode != "loop":
                    value = await self._in_thread(handler, context, arguments)
                elif handler.takes_context:
                    value = await handler.function(context, **arguments)
                else:
                    value = await handler.function(**arguments)
                outcome = succeeded(handler, value)
        except asyncio.CancelledError:
            await context.close()
            raise
        except BaseException as error:
            outcome = outcome_of(error, handler, contract.codes)
        try:
            return await context.finish(outcome)
        except Exception as error:
            return outcome_of(error, handler, contract.codes)

    async def _in_thread(self, handler: Handler, context: Context, arguments: dict[str, Any]) -> Any:
        loop = asyncio.get_running_loop()
        if self._threads is None:
            self._threads = DaemonThreads()
        first = (SyncContext(context, loop),) if handler.takes_context else ()
        run = copy_context().run  # with the job of log records and the current span
        return await loop.run_in_executor(self._threads, partial(run, handler.function, *first, **arguments))

    async def _in_process(self, handler: Handler, codes: Codes, claimed: Claimed) -> Outcome:
        if self._pool is None:
            self._pool = HandlerProcesses(self._processes)
        name = (handler.function.__module__, handler.function.__qualname__)
        return await self._pool.run(_run_in_process, *name, dict(codes), tuple(claimed))

    def close(self) -> None:
        """Threads cannot be interrupted: those that still run are left, with a stale token."""
        if self._threads is not None:
            self._threads.shutdown(wait=False)
        if self._pool is not None:
            self._pool.close()


async def _store_logs(engine: Engine, claimed: Claimed, capture: Capture) -> None:
    """Store captured log lines; a failure is logged only, so that it does not cost the result."""
    if capture.lines:
        try:
            await store_lines(engine, claimed, capture)
        except DetentError as error:
            log.warning("captured log lines could not be stored: %s", error)


def _run_in_process(module: str, qualname: str, codes: Codes, values: tuple[Any, ...]) -> Outcome:
    """In the child process: import the job definition by its qualified name and call its function."""
    definition: Any = import_module(module)
    for part in qualname.split("."):
        definition = getattr(definition, part)
    handler: Handler = definition.handler
    job = Claimed(*values)
    current_job.set(job)
    try:
        first = (BaseContext(job),) if handler.takes_context else ()
        return succeeded(handler, handler.function(*first, **handler.call_arguments(job.payload)))
    except BaseException as error:
        return outcome_of(error, handler, codes)


def succeeded(handler: Handler, value: Any) -> Outcome:
    if value is None and handler.result is None:
        return _SUCCEEDED_WITHOUT_RESULT
    return Succeeded(handler.result_text(value))


def outcome_of(error: BaseException, handler: Handler, codes: Codes) -> Outcome:
    """The outcome of an execution that ended with this exception. An exception whose str() raises is a failure too."""
    try:
        if isinstance(error, Suspend):
            return Waits(error.wait)
        if isinstance(error, Snooze):
            return Snoozed(int(error.seconds * SECOND))
        if isinstance(error, Cancel):
            return Cancelled(str(error.reason))
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
    if isinstance(error, Fail):
        code = "" if error.code is None else str(error.code)[:MAX_CODE]
        return Failure(code, message, name, error.retryable, origin=Origin.FAIL)
    if isinstance(error, Retry):
        after = None if error.after is None else int(error.after * SECOND)
        return Failure(failed, message, name, True, after=after)
    if isinstance(error, DetentError) and not error.retryable:
        code = (codes["payload_invalid"] if error.code == "PAYLOAD_INVALID" else error.code) or failed
        text = error.message[:MAX_MESSAGE] if code == error.code else message  # str(error) begins with the code
        return Failure(code, text, name, False)
    retryable = None
    if isinstance(error, handler.options.permanent_errors):
        retryable = False
    elif isinstance(error, handler.options.retryable_errors):
        retryable = True
    text = "".join(traceback.format_exception(error))[-MAX_TRACEBACK:]
    sentence = f"{name}: {message}" if message != name else name
    return Failure(failed, sentence, name, retryable, text, origin=Origin.EXCEPTION)
