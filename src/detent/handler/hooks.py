"""Hooks and middleware of an application: functions called after the end of executions, and around them."""

import inspect
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeVar, cast

from detent.core.errors import InvalidInput
from detent.core.job import Failure

from .context import Context
from .sync_context import SyncContext


@dataclass(slots=True)
class EndedExecution:
    """The end of one execution, after its commit: what `on_success`, `on_failure` and `on_dead_letter` receive.

    Not `frozen`, which would take four times as long to create; treat it as immutable.
    """

    job_id: str
    job_type: str
    queue: str
    tenant_id: str
    contract: str
    execution_no: int
    trace_id: str | None
    payload_text: str
    """The payload as JSON."""
    result_text: str | None = None
    """The result as JSON; None after a failure, and for a result that is None."""
    failure: Failure | None = None
    """None after a success, and for a lost lease that the contract does not count as a failure."""
    retry_in: float | None = None
    """Seconds until the next execution; None if there is none, or if another worker has already taken the job over."""
    dlq_id: str | None = None
    """The id of the dead letter that this end created."""
    lease_lost: bool = False
    """True: the worker sent no heartbeats, so the job was taken back from it."""

    @property
    def payload(self) -> Any:
        """The arguments of the job, as JSON values."""
        return json.loads(self.payload_text)

    @property
    def result(self) -> Any:
        """The result as a JSON value; None after a failure."""
        return None if self.result_text is None else json.loads(self.result_text)

    @property
    def error_code(self) -> str | None:
        """The stored error code, for example JOB_EXECUTION_FAILED."""
        return self.failure.code if self.failure else None

    @property
    def error_message(self) -> str | None:
        """The stored message of the error."""
        return self.failure.message if self.failure else None

    @property
    def traceback(self) -> str | None:
        """The stored traceback: its last 8,000 characters. None if the engine ended the execution."""
        return self.failure.traceback if self.failure else None

    @property
    def exception(self) -> BaseException | None:
        """What the handler raised; None if it ran in another process, or if the engine ended the execution."""
        return self.failure.exception if self.failure else None


Middleware = Callable[[Context, Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""(ctx, call_next) -> the result."""
PlainMiddleware = Callable[[SyncContext, Callable[[], Any]], Any]
ExecutionHook = Callable[[EndedExecution], Any]
LifecycleHook = Callable[[], Any]
F = TypeVar("F")
E = TypeVar("E", bound=ExecutionHook)
L = TypeVar("L", bound=LifecycleHook)
M = TypeVar("M", bound=Middleware | PlainMiddleware)


@dataclass(slots=True)
class Hooks:
    """The hooks and the middleware of one application, each in the order of their declaration."""

    success: list[ExecutionHook] = field(default_factory=list)
    failure: list[ExecutionHook] = field(default_factory=list)
    dead_letter: list[ExecutionHook] = field(default_factory=list)
    worker_start: list[LifecycleHook] = field(default_factory=list)
    worker_stop: list[LifecycleHook] = field(default_factory=list)
    middleware: list[Middleware] = field(default_factory=list)
    plain_middleware: list[PlainMiddleware] = field(default_factory=list)

    def around(self, context: Any, call: Callable[[], Any], *, plain: bool = False) -> Callable[[], Any]:
        """The call inside the middleware; the first declared one is the outermost. plain: inside the plain one."""
        declared: list[Any] = self.plain_middleware if plain else self.middleware
        for middleware in reversed(declared):
            call = partial(middleware, context, call)
        return call


class Hooked:
    """The part of an application that declares hooks and middleware."""

    @cached_property
    def hooks(self) -> Hooks:
        """The declared hooks."""
        return Hooks()

    def on_success(self, function: E) -> E:
        """Declare a function that is called after an execution succeeded and its result is committed.

            @app.on_success
            async def count(ended: EndedExecution) -> None: ...

        It runs in the worker that ran the job; async on its event loop, a plain function in a thread. Hooks are called
        one after another; one that is slow delays the next ones and, with 1,000 calls waiting, the claims of its
        worker. What it raises is logged. A crash of the process after the commit can lose a call. Raises InvalidInput
        (HOOK_INVALID) if it cannot be called with one argument.
        """
        return _declare(self.hooks.success, function, 1)

    def on_failure(self, function: E) -> E:
        """Declare a function that is called after every failed execution, also if the job is retried; see `on_success`.

        Executions whose lease was lost count as well: the hook then runs in the process that took the job back.
        """
        return _declare(self.hooks.failure, function, 1)

    def on_dead_letter(self, function: E) -> E:
        """Declare a function that is called after a job failed for good and became a dead letter; see `on_success`."""
        return _declare(self.hooks.dead_letter, function, 1)

    def on_worker_start(self, function: L) -> L:
        """Declare a function without arguments that is called before a worker of this process claims its first job.

        Async or plain; both run on the worker's event loop. What it raises is logged, and the worker starts.
        """
        return _declare(self.hooks.worker_start, function, 0)

    def on_worker_stop(self, function: L) -> L:
        """Declare a function without arguments that is called when a worker has settled or handed back all its jobs.

        Like `on_worker_start`. An async function may take 3 seconds.
        """
        return _declare(self.hooks.worker_stop, function, 0)

    def middleware(self, function: M) -> M:
        """Declare a function that is called around every execution: before the handler, with the handler as call_next.

            @app.middleware
            async def with_session(ctx: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
                async with Session() as session:
                    ctx.state["session"] = session
                    return await call_next()

        Async middleware surrounds async handlers and those in threads, on the event loop. Plain middleware surrounds
        plain handlers only, in their thread or their process, inside of the async middleware. The first declared one is
        the outermost. What it returns is the result of the job, what it raises the outcome of the execution, as if the
        handler did. Raises InvalidInput (HOOK_INVALID) if it cannot be called with two arguments.
        """
        hooks: list[Any] = self.hooks.middleware if is_async(function) else self.hooks.plain_middleware
        return _declare(hooks, function, 2)


def is_async(function: Callable[..., Any]) -> bool:
    """True for a coroutine function, and for an object whose `__call__` is one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _declare(hooks: list[Any], function: F, arguments: int) -> F:
    name = getattr(function, "__qualname__", repr(function))
    try:
        inspect.signature(cast(Callable[..., Any], function)).bind(*range(arguments))
    except TypeError as error:
        message = f"{name} is called with {arguments} arguments: {error}; write the decorator without parentheses"
        raise InvalidInput(message, code="HOOK_INVALID") from None
    hooks.append(function)
    return function
