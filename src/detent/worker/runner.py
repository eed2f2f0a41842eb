"""Running one handler: arguments in, outcome out, whatever the function does."""

import asyncio
import logging
import os
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextvars import copy_context
from typing import Any

from detent.core.contract.model import Contract
from detent.core.errors import DetentError
from detent.core.job import Failure
from detent.core.outcome import Cancelled, Failed, Outcome, Snoozed, Succeeded, Waits
from detent.core.times import SECOND
from detent.engine import Engine
from detent.handler.context import Context, SyncContext
from detent.handler.handler import Handler
from detent.handler.outcomes import Cancel, Fail, Retry, Snooze, Suspend
from detent.observability.job_logs import Capture, bound, capturing, keep
from detent.ports.claims import Claimed

from .executors import Processes, Threads

log = logging.getLogger("detent.worker")
MAX_MESSAGE = 2_000
MAX_TRACEBACK = 8_000
MAX_CODE = 200
_NOTHING = Succeeded(None)
Codes = Mapping[str, str | None]


class Runner:
    """Calls handlers where they belong: on the loop, in a thread, in another process."""

    def __init__(self, slots: int, processes: int | None = None) -> None:
        self._processes = min(slots, processes or os.cpu_count() or 1)
        self._threads: Executor | None = None
        self._pool: Processes | None = None

    async def run(self, handler: Handler, contract: Contract, claimed: Claimed, context: Context) -> Outcome:
        """Never raises but for a cancellation. Every line logged inside knows the job, every span its trace."""
        bound.set(claimed)
        if context._engine.tracer is None and not handler.options.capture_logs:
            return await self._run(handler, contract, claimed, context)
        if handler.options.capture_logs:
            with capturing() as capture:
                try:
                    return await self._traced(handler, contract, claimed, context)
                finally:
                    await _kept(context._engine, claimed, capture)
        return await self._traced(handler, contract, claimed, context)

    async def _traced(self, handler: Handler, contract: Contract, claimed: Claimed, context: Context) -> Outcome:
        tracer = context._engine.tracer
        if tracer is None:
            return await self._run(handler, contract, claimed, context)
        with tracer.executing(claimed) as ended:
            outcome = await self._run(handler, contract, claimed, context)
            ended(outcome)
            return outcome

    async def _run(self, handler: Handler, contract: Contract, claimed: Claimed, context: Context) -> Outcome:
        try:
            if handler.mode == "process":
                outcome = await self._in_process(handler, contract.codes, claimed)
            else:
                outcome = succeeded(
                    handler, await self._value(handler, context, handler.call_arguments(claimed.payload))
                )
        except asyncio.CancelledError:
            await context.close()
            raise
        except BaseException as error:
            outcome = outcome_of(error, handler, contract.codes)
        try:
            return await context.finish(outcome)
        except Exception as error:
            return outcome_of(error, handler, contract.codes)

    async def _value(self, handler: Handler, context: Context, arguments: dict[str, Any]) -> Any:
        if handler.mode == "loop":
            first = (context,) if handler.takes_context else ()
            return await handler.function(*first, **arguments)
        return await self._in_thread(handler, context, arguments)

    async def _in_thread(self, handler: Handler, context: Context, arguments: dict[str, Any]) -> Any:
        loop = asyncio.get_running_loop()
        if self._threads is None:
            self._threads = Threads()
        first = (SyncContext(context, loop),) if handler.takes_context else ()
        carried = copy_context()  # the job a line belongs to, the span it runs in
        return await loop.run_in_executor(self._threads, carried.run, _call, handler.function, first, arguments)

    async def _in_process(self, handler: Handler, codes: Codes, claimed: Claimed) -> Outcome:
        if self._pool is None:
            self._pool = Processes(self._processes)
        return await self._pool.run(handler, codes, claimed)

    def close(self) -> None:
        """Threads cannot be interrupted: those that still run are left behind, fenced."""
        if self._threads is not None:
            self._threads.shutdown(wait=False)
        if self._pool is not None:
            self._pool.close()


async def _kept(engine: Engine, claimed: Claimed, capture: Capture) -> None:
    """Lines that cannot be kept are no reason to lose a result."""
    if capture.lines:
        try:
            await keep(engine, claimed, capture)
        except DetentError as error:
            log.warning("what was logged could not be kept: %s", error)


def _call(function: Callable[..., Any], first: tuple[Any, ...], arguments: dict[str, Any]) -> Any:
    return function(*first, **arguments)


def succeeded(handler: Handler, value: Any) -> Outcome:
    if value is None and handler.result is None:
        return _NOTHING
    return Succeeded(handler.result_text(value))


def outcome_of(error: BaseException, handler: Handler, codes: Codes) -> Outcome:
    """What an exception says about the execution it ended; exceptions that cannot be read are failures too."""
    try:
        if isinstance(error, Suspend):
            return Waits(error.wait)
        if isinstance(error, Snooze):
            return Snoozed(int(error.seconds * SECOND))
        if isinstance(error, Cancel):
            return Cancelled(str(error.reason))
        return Failed(failure_of(error, handler, codes))
    except Exception as unreadable:
        name = type(error).__name__
        message = f"{name}, which cannot be read: {type(unreadable).__name__}: {unreadable}"
        return Failed(Failure(codes["execution_failed"] or "", message[:MAX_MESSAGE], name, False))


def failure_of(error: BaseException, handler: Handler, codes: Codes) -> Failure:
    """An exception as the failure that is logged: its code, whether it may be retried, the bounded traceback."""
    name = type(error).__name__
    message = (str(error) or name)[:MAX_MESSAGE]
    failed = codes["execution_failed"] or ""
    if isinstance(error, Fail):
        return Failure(str(error.code)[:MAX_CODE], message, name, error.retryable)
    if isinstance(error, Retry):
        after = None if error.after is None else int(error.after * SECOND)
        return Failure(failed, message, name, True, after=after)
    if isinstance(error, DetentError) and not error.retryable:
        code = (codes["payload_invalid"] if error.code == "PAYLOAD_INVALID" else error.code) or failed
        said = error.message[:MAX_MESSAGE] if code == error.code else message  # the code is not said twice
        return Failure(code, said, name, False)
    retryable = None
    if isinstance(error, handler.options.permanent_errors):
        retryable = False
    elif isinstance(error, handler.options.retryable_errors):
        retryable = True
    text = "".join(traceback.format_exception(error))[-MAX_TRACEBACK:]
    return Failure(failed, f"{name}: {message}" if message != name else name, name, retryable, text)
