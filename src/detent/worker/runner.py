"""Runs one handler and turns its result or exception into an outcome."""

import asyncio
import logging
import os
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import copy_context
from typing import Any

from detent.core.contract.model import Contract
from detent.core.errors import DetentError
from detent.core.outcome import Outcome
from detent.engine import Engine
from detent.handler.context import Context
from detent.handler.handler import Handler
from detent.handler.sync_context import SyncContext
from detent.observability.job_logs import Capture, capturing, current_job, store_lines
from detent.ports.claims import Claimed

from .executors import DaemonThreads, HandlerProcesses
from .outcomes import Codes, outcome_of, succeeded

log = logging.getLogger("detent.worker.runner")


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
        if handler.options.capture_logs:
            with capturing() as capture:
                try:
                    return await self._traced(handler, contract, claimed, context)
                finally:
                    await _store_logs(context._engine, claimed, capture)
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
            self._threads = DaemonThreads()
        first = (SyncContext(context, loop),) if handler.takes_context else ()
        context_copy = copy_context()  # the job of log records, the current span

        def call() -> Any:
            return context_copy.run(_call, handler.function, first, arguments)

        return await loop.run_in_executor(self._threads, call)

    async def _in_process(self, handler: Handler, codes: Codes, claimed: Claimed) -> Outcome:
        if self._pool is None:
            self._pool = HandlerProcesses(self._processes)
        return await self._pool.run(handler, codes, claimed)

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


def _call(function: Callable[..., Any], first: tuple[Any, ...], arguments: dict[str, Any]) -> Any:
    return function(*first, **arguments)
