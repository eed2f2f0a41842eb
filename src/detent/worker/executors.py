"""Executors for handlers that do not run on the event loop: threads and processes that never delay a shutdown."""

import asyncio
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from detent.observability.job_logs import configure_logging, configured_formats

T = TypeVar("T")
_Call = tuple[Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class DaemonThreads(Executor):
    """Starts a daemon thread per concurrent call. ThreadPoolExecutor would wait at exit for threads that hang."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._spare = 0
        """Idle threads."""

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


class HandlerProcesses:
    """A process pool that is created again when a process dies."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._pool: ProcessPoolExecutor | None = None

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        if self._pool is None:  # spawned, because forking a process with threads is unsafe
            spawn = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(
                self._size, mp_context=spawn, initializer=_init_child, initargs=(list(configured_formats),)
            )
        pool = self._pool
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, function, *args)
        except BrokenProcessPool:
            if self._pool is pool:
                self._pool = None
            raise

    def close(self) -> None:
        """Kill the children: their jobs were handed back, or their tokens are stale."""
        if self._pool is None:
            return
        children = list((getattr(self._pool, "_processes", None) or {}).values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        for child in children:
            child.kill()


def _init_child(log_formats: list[tuple[str, str]]) -> None:
    """In the child: leave SIGINT to the parent, set up logging, and exit when the parent dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for log_format in log_formats:
        configure_logging(*log_format)
    parent = multiprocessing.parent_process()
    assert parent is not None, "a process of the pool has a parent"
    threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()


def _exit_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)
