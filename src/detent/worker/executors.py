"""Where handlers run that are not on the loop: threads and processes that never keep a worker from ending."""

import asyncio
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from multiprocessing.process import BaseProcess
from typing import Any

from detent.core.outcome import Outcome
from detent.handler.context import BaseContext
from detent.handler.handler import Handler
from detent.observability.job_logs import bound, chosen, set_up
from detent.ports.claims import Claimed

_Call = tuple[Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class Threads(Executor):
    """As many daemon threads as there are calls at once; the standard pool waits at exit for those that hang."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._spare = 0
        """Threads that wait for a call nobody has made yet."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._calls.put((future, fn, args, kwargs))
        with self._lock:
            if self._spare:
                self._spare -= 1
                return future
            self._threads += 1
            name = f"detent-handler-{self._threads}"
        threading.Thread(target=self._serve, name=name, daemon=True).start()
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:
        for _ in range(self._threads):
            self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function, args, kwargs = call
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function(*args, **kwargs))
                except BaseException as error:
                    future.set_exception(error)
            del call, future, function, args, kwargs
            with self._lock:
                self._spare += 1


class Processes:
    """A pool of processes, made again when one of them dies. What comes back is an outcome, never an exception."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._pool: ProcessPoolExecutor | None = None

    async def run(self, handler: Handler, codes: Mapping[str, str | None], claimed: Claimed) -> Outcome:
        if self._pool is None:  # not forked: this process has threads
            fresh = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._size, mp_context=fresh, initializer=_begin, initargs=(list(chosen),))
        pool = self._pool
        name = (handler.function.__module__, handler.function.__qualname__)
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(pool, _run, *name, dict(codes), tuple(claimed))
        except BrokenProcessPool:
            if self._pool is pool:
                self._pool = None
            raise

    def close(self) -> None:
        """Whoever still computes is killed: its job was handed back or is fenced."""
        if self._pool is None:
            return
        children = list((getattr(self._pool, "_processes", None) or {}).values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        for child in children:
            child.kill()


def _begin(log_forms: list[str]) -> None:
    """In a child: signals are its parent's to judge, and without a parent there is nothing to do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for form in log_forms:
        set_up(form)
    parent = multiprocessing.parent_process()
    assert parent is not None, "a child of the pool has a parent"
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


def _run(module: str, qualname: str, codes: dict[str, str | None], claimed: tuple[Any, ...]) -> Outcome:
    """In the child: find the job definition by name and call its function."""
    from .runner import outcome_of, succeeded

    found: Any = import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    handler: Handler = found.handler
    its = Claimed(*claimed)
    bound.set(its)
    try:
        first = (BaseContext(its),) if handler.takes_context else ()
        return succeeded(handler, handler.function(*first, **handler.call_arguments(its.payload)))
    except BaseException as error:
        return outcome_of(error, handler, codes)
