"""Reports the ends of executions after their commit: log lines for failures, and calls of the application's hooks."""

import asyncio
import contextvars
import inspect
import logging
from collections.abc import Sequence
from typing import Any

from detent.core.contract.model import Move, Phase
from detent.core.job import Change, Job
from detent.core.times import SECOND
from detent.handler.hooks import EndedExecution, ExecutionHook, Hooks, LifecycleHook, is_async
from detent.ports.claims import Claimed

from .executors import DaemonThreads

log = logging.getLogger("detent.executions")
_MAX_PENDING = 1_000
"""From this many calls of hooks on, a worker waits before it claims more jobs."""
_LONGEST_WAIT_SECONDS = 1.0
_MAX_MESSAGE = 500
_RAISED = (Exception, SystemExit, asyncio.CancelledError)
"""What a hook may raise without an effect on the worker."""


class ExecutionReporter:
    """The observer of an engine. One for each event loop; `engine.close` waits for its hooks."""

    def __init__(self, hooks: Hooks | None = None) -> None:
        self._hooks = hooks or Hooks()
        self._pending: list[tuple[list[ExecutionHook], list[EndedExecution]]] = []
        self._unfinished = 0
        self._task: asyncio.Task[None] | None = None
        self._threads = DaemonThreads()

    @property
    def wants_successes(self) -> bool:
        return bool(self._hooks.success)

    def on_successes(self, successes: Sequence[tuple[Claimed, str | None]]) -> None:
        self._call(self._hooks.success, [_ended(claimed, result) for claimed, result in successes])

    def on_changes(self, changes: Sequence[Change]) -> None:
        for change in changes:
            before = change.before
            if before is None:
                continue
            if before.phase is Phase.LEASED and change.ended is Move.SUCCEED:
                if self._hooks.success:
                    self._call(self._hooks.success, [_ended(before, change.after.result)])
            elif change.failure is not None or change.lease_lost:
                self._report_failure(change, before)

    def _report_failure(self, change: Change, before: Job) -> None:
        """One WARNING for the execution, and one ERROR for the dead letter, each with the traceback."""
        ended = _failed(change, before)
        if before.phase is Phase.LEASED or not change.events:  # without events: repeated after an unknown commit
            what = f"the lease of worker {before.worker} expired" if change.lease_lost else f"failed: {_cause(ended)}"
            event = "lease_lost" if change.lease_lost else "execution_failed"
            log_execution(logging.WARNING, event, f"{what}; {_next_step(change, ended)}", ended)
            self._call(self._hooks.failure, [ended])
        if ended.dlq_id is not None:
            log_execution(logging.ERROR, "dead_letter", f"is dead letter {ended.dlq_id}: {_cause(ended)}", ended)
            self._call(self._hooks.dead_letter, [ended])

    def _call(self, hooks: list[ExecutionHook], ends: list[EndedExecution]) -> None:
        if not hooks:
            return
        self._pending.append((hooks, ends))
        self._unfinished += len(ends)
        if self._task is None or self._task.done():  # an empty context: the hooks belong to no execution
            self._task = asyncio.create_task(self._call_pending(), context=contextvars.Context())

    async def _call_pending(self) -> None:
        """Call each hook for all waiting ends: a plain one in one thread, because a thread for each call is slow."""
        while self._pending:
            pending, self._pending = self._pending, []
            calls: dict[int, tuple[ExecutionHook, list[EndedExecution]]] = {}
            for hooks, ends in pending:
                for hook in hooks:
                    calls.setdefault(id(hook), (hook, []))[1].extend(ends)
            try:
                for hook, ends in calls.values():
                    await self._call_hook(hook, ends)
            finally:
                self._unfinished -= sum(len(ends) for _, ends in pending)

    async def _call_hook(self, hook: ExecutionHook, ends: list[EndedExecution]) -> None:
        if not is_async(hook):
            await asyncio.get_running_loop().run_in_executor(self._threads, _call_each, hook, ends)
            return
        for ended in ends:
            try:
                await hook(ended)
            except _RAISED as error:
                _raise_if_cancelled(error)
                _log_hook_error(hook, ended)

    async def wait_for_hooks(self, most: int = _MAX_PENDING, seconds: float = _LONGEST_WAIT_SECONDS) -> None:
        """Wait until at most so many calls are unfinished, and no longer than `seconds`."""
        if self._unfinished > most and self._task is not None:
            _, waiting = await asyncio.wait([self._task], timeout=seconds)
            if waiting and not most:
                log.warning(
                    "%d calls of hooks have not finished after %g s and are given up", self._unfinished, seconds
                )

    def close(self) -> None:
        """End the threads of plain hooks."""
        self._threads.shutdown()
        self._threads = DaemonThreads()


def _raise_if_cancelled(error: BaseException) -> None:
    """Raise the CancelledError of a task that is being cancelled; others come from the hook itself."""
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        raise error


def _call_each(hook: ExecutionHook, ends: Sequence[EndedExecution]) -> None:
    for ended in ends:
        try:
            hook(ended)
        except _RAISED:
            _log_hook_error(hook, ended)


def _log_hook_error(hook: ExecutionHook, ended: EndedExecution) -> None:
    log.exception("the hook %s failed for job %s", hook_name(hook), ended.job_id, extra=_fields(ended))


def hook_name(hook: Any) -> str:
    return str(getattr(hook, "__qualname__", hook))


async def call_lifecycle_hooks(hooks: Sequence[LifecycleHook], seconds: float | None = None) -> None:
    """Call hooks of a worker's start or stop, in order; what they raise is logged."""
    for hook in hooks:
        try:
            async with asyncio.timeout(seconds):
                result = hook()
                if inspect.isawaitable(result):
                    await result
        except _RAISED as error:
            _raise_if_cancelled(error)
            log.exception("the hook %s failed", hook_name(hook))


def log_execution(level: int, event: str, what: str, ended: EndedExecution) -> None:
    """One line about an execution, with its traceback as it is stored: bounded, and also from another process."""
    if not log.isEnabledFor(level):
        return
    error = ended.exception
    info = None if error is None else (type(error), error, error.__traceback__)
    message = f"job {ended.job_id} ({ended.job_type}) {what}"
    fields = {**_fields(ended), "event": event, "error_code": ended.error_code, "dlq_id": ended.dlq_id}
    fields["retry_in_seconds"] = ended.retry_in
    record = log.makeRecord(log.name, level, __file__, 0, message, (), info, extra=fields)
    record.exc_text = ended.traceback
    log.handle(record)


def _fields(ended: EndedExecution) -> dict[str, Any]:
    names = ("job_id", "job_type", "queue", "tenant_id", "execution_no", "trace_id")
    return {name: getattr(ended, name) for name in names}


def _ended(job: Claimed | Job, result: str | None = None) -> EndedExecution:
    return EndedExecution(
        job.id,
        job.job_type,
        job.queue,
        job.tenant_id,
        job.contract,
        job.execution_no,
        job.trace_id,
        job.payload,
        result,
    )


def _failed(change: Change, before: Job) -> EndedExecution:
    after, ended = change.after, _ended(before)
    ended.failure, ended.lease_lost = change.failure, change.lease_lost
    is_over = after.phase is Phase.FINAL
    if not is_over and after.phase is not Phase.LEASED and after.due_at is not None:
        ended.retry_in = max(0, after.due_at - after.updated_at) / SECOND
    if change.dead_letter is not None or not change.events:
        ended.dlq_id = after.dlq_id if is_over else None
    return ended


def _cause(ended: EndedExecution) -> str:
    return " ".join(f"{ended.error_code}: {ended.error_message}".split())[:_MAX_MESSAGE]


def _next_step(change: Change, ended: EndedExecution) -> str:
    before, after = change.before, change.after
    if after.phase is Phase.LEASED:
        return f"worker {after.worker} takes it over"
    if ended.retry_in is None:
        return f"no further execution, it is {after.status}"
    used = f"retry {after.retries} of {after.max_retries}" if before and after.retries > before.retries else "again"
    return f"{used} in {ended.retry_in:g} s"
