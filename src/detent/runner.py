"""Running one handler: arguments in, outcome out, whatever the function does."""

import asyncio
import traceback
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from importlib import import_module
from typing import Any

from .context import BaseContext, Context, SyncContext
from .core.contract import Contract
from .core.errors import DetentError
from .core.job import Failure
from .core.outcome import Cancelled, Failed, Outcome, Snoozed, Succeeded, Waits
from .core.times import SECOND
from .handlers import Handler
from .outcomes import Cancel, Fail, Retry, Snooze, Suspend
from .ports import Claimed

MAX_MESSAGE = 2_000
MAX_TRACEBACK = 8_000
_NOTHING = Succeeded(None)


class Runner:
    """Calls handlers where they belong: on the loop, in a thread, in another process."""

    def __init__(self, slots: int, processes: int | None = None) -> None:
        self._slots = slots
        self._processes = processes
        self._threads: ThreadPoolExecutor | None = None
        self._pool: ProcessPoolExecutor | None = None

    async def run(self, handler: Handler, contract: Contract, claimed: Claimed, context: Context) -> Outcome:
        """Never raises but for the cancellation of its own task."""
        try:
            arguments = handler.call_arguments(claimed.payload)
            if handler.mode == "loop":
                first = (context,) if handler.takes_context else ()
                value = await handler.function(*first, **arguments)
            else:
                value = await self._elsewhere(handler, claimed, context, arguments)
            if value is None:
                return _NOTHING
            return Succeeded(handler.result_text(value))
        except asyncio.CancelledError:
            raise
        except Suspend as suspended:
            return Waits(suspended.wait)
        except Snooze as snooze:
            return Snoozed(int(snooze.seconds * SECOND))
        except Cancel as cancel:
            return Cancelled(cancel.reason)
        except BaseException as error:
            return Failed(failure_of(error, handler, contract))

    async def _elsewhere(self, handler: Handler, claimed: Claimed, context: Context, arguments: dict[str, Any]) -> Any:
        loop = asyncio.get_running_loop()
        if handler.mode == "process":
            name = (handler.function.__module__, handler.function.__qualname__)
            return await loop.run_in_executor(self._process_pool(), _call_in_process, *name, claimed)
        first = (SyncContext(context, loop),) if handler.takes_context else ()
        return await loop.run_in_executor(self._thread_pool(), _call, handler.function, first, arguments)

    def _thread_pool(self) -> Executor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._slots, thread_name_prefix="detent-handler")
        return self._threads

    def _process_pool(self) -> Executor:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(self._processes)
        return self._pool

    def close(self) -> None:
        """Threads cannot be interrupted: those that still run are left behind, fenced."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def _call(function: Callable[..., Any], first: tuple[BaseContext, ...], arguments: dict[str, Any]) -> Any:
    return function(*first, **arguments)


def _call_in_process(module: str, qualname: str, claimed: Claimed) -> Any:
    """In the child: find the job definition by name and call its function."""
    found: Any = import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    handler: Handler = found.handler
    first = (BaseContext(Claimed(*claimed)),) if handler.takes_context else ()
    return handler.function(*first, **handler.call_arguments(claimed.payload))


def failure_of(error: BaseException, handler: Handler, contract: Contract) -> Failure:
    """An exception as the failure that is logged: its code, whether it may be retried, the bounded traceback."""
    name = type(error).__name__
    message = (str(error) or name)[:MAX_MESSAGE]
    if isinstance(error, Fail):
        return Failure(error.code, message, name, error.retryable)
    if isinstance(error, Retry):
        after = None if error.after is None else int(error.after * SECOND)
        return Failure(contract.code("execution_failed"), message, name, True, after=after)
    if isinstance(error, DetentError):
        code = contract.code("payload_invalid") if error.code == "PAYLOAD_INVALID" else error.code
        return Failure(code, message, name, False)
    code = contract.code("execution_failed")
    retryable = None
    if isinstance(error, handler.options.permanent_errors):
        retryable = False
    elif isinstance(error, handler.options.retryable_errors):
        retryable = True
    text = "".join(traceback.format_exception(error))[-MAX_TRACEBACK:]
    return Failure(code, f"{name}: {message}" if message != name else name, name, retryable, text)
