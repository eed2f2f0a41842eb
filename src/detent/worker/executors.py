"""Executors for handlers that do not run on the event loop: threads and processes that never delay a shutdown."""

import asyncio
import math
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from detent.core.errors import DetentError
from detent.handler.stop_requests import StopKind, StopRequests
from detent.observability.job_logs import configure_logging, configured_formats

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

T = TypeVar("T")
_CHECK_SECONDS = 0.1
"""How often a process that runs a handler is checked: whether it lives, and its memory."""
_END_SECONDS = 5.0
_TAKEN = "taken"
"""What a process sends before it runs a call: from then on its death is charged to the call."""
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
    """Runs functions in other processes, one call at a time in each. A process that dies takes only its own call along.

    max_calls: a process is replaced after so many calls. max_memory: bytes of resident memory; a process above it is
    killed. Processes are spawned on demand, up to `size`, because forking a process with threads is unsafe.
    """

    def __init__(self, size: int, max_calls: int | None = None, max_memory: int | None = None) -> None:
        self._free = asyncio.Semaphore(size)
        self._max_calls = max_calls
        self._max_memory = max_memory
        self._threads = DaemonThreads()
        self._processes: set[_HandlerProcess] = set()
        self._idle: list[_HandlerProcess] = []

    async def run(self, requests: StopRequests, function: Callable[..., T], *args: Any) -> T:
        """`function(requests, *args)` in another process, which is killed if this call is cancelled.

        Raises HandlerProcessDied or HandlerMemoryExceeded. Requests of the worker are passed on to the process.
        """
        async with self._free:
            while True:
                process = self._take_idle() or _HandlerProcess(self._max_memory)
                with suppress(_DiedIdle):
                    return await self._call(process, requests, function, args)

    async def _call(
        self, process: "_HandlerProcess", requests: StopRequests, function: Callable[..., T], args: tuple[Any, ...]
    ) -> T:
        self._processes.add(process)
        call = asyncio.get_running_loop().run_in_executor(self._threads, process.call, requests, function, args)
        reusable = False
        try:
            result: T = await call
            reusable = (self._max_calls is None or process.calls < self._max_calls) and not process.memory_exceeded
            return result
        finally:
            if reusable:
                self._idle.append(process)
            else:
                self._end(process)

    def _take_idle(self) -> "_HandlerProcess | None":
        """An idle process that lives; the kernel, for example, kills idle ones when memory is short."""
        while self._idle:
            process = self._idle.pop()
            if process.is_alive():
                return process
            self._end(process)
        return None

    def _end(self, process: "_HandlerProcess") -> None:
        self._processes.discard(process)
        process.kill()
        self._threads.submit(process.wait)

    def close(self) -> None:
        """Kill the processes: their jobs were handed back, or their tokens are stale."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        self._threads.shutdown()


class HandlerProcessDied(DetentError, code="HANDLER_PROCESS_DIED", retryable=True):
    """The process that ran a handler ended before the handler did: a crash, os._exit, or a kill from outside."""


class HandlerMemoryExceeded(HandlerProcessDied, code="HANDLER_MEMORY_EXCEEDED"):
    """The process that ran a handler used more memory than `max_memory_mb` and was killed."""


class _DiedIdle(Exception):
    """A process that had run other calls died before it took this one."""


class _HandlerProcess:
    """One process and the pipe to it, as its parent sees them. `call` and `wait` block."""

    def __init__(self, max_memory: int | None) -> None:
        self.calls = 0
        self._max_memory = max_memory
        self.memory_exceeded = False
        """True: a job left so much memory in use that the next one would be killed for it."""
        self._lock = threading.Lock()
        """Held for a moment only: the event loop waits for it to kill the process."""
        self._sending = threading.Lock()
        """Held while a message is sent, which waits until the process reads it."""
        self._killed = False
        self._process: SpawnProcess | None = None

    def call(self, requests: StopRequests, function: Callable[..., T], args: tuple[Any, ...]) -> T:
        process = self._process or self._start()
        self.calls += 1
        taken = False
        try:
            self._send((function, args))
            requests.listen(self._forward)
            taken = self._receive(process) == _TAKEN
            answer: tuple[T, str | None] = self._receive(process)
        except (EOFError, OSError):
            self.kill()
            self.wait()
            if not taken and self.calls > 1:  # a new process may have died of the call itself
                raise _DiedIdle from None
            raise HandlerProcessDied(f"the process of the handler {_end_of(process)}") from None
        finally:
            requests.listen(None)
        self.memory_exceeded = self._used_memory(process) > (self._max_memory or math.inf)
        result, problem = answer
        if problem is not None:
            raise RuntimeError(f"the process of the handler could not run it: {problem}")
        return result

    def _start(self) -> "SpawnProcess":
        spawn = multiprocessing.get_context("spawn")
        self._pipe, other_end = spawn.Pipe()
        process = spawn.Process(target=_serve_calls, args=(other_end, list(configured_formats)))
        with self._lock:
            if not self._killed:
                process.start()
            self._process = process
        other_end.close()
        return process

    def _receive(self, process: "SpawnProcess") -> Any:
        while not self._pipe.poll(_CHECK_SECONDS):
            self._check_memory(process)
            if not process.is_alive():  # its own children may hold its end of the pipe open
                raise EOFError
        return self._pipe.recv()

    def _send(self, message: tuple[Any, Any]) -> None:
        with self._sending:
            self._pipe.send(message)

    def _forward(self, kind: StopKind, reason: str | None) -> bool:
        with suppress(OSError):
            self._send((kind, reason))
        return True

    def is_alive(self) -> bool:
        return self._process is not None and self._process.is_alive()

    def _used_memory(self, process: "SpawnProcess") -> int:
        """Bytes; 0 if there is no limit or the process has ended."""
        if self._max_memory is None:
            return 0
        try:
            pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
        except (OSError, IndexError):
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE")

    def _check_memory(self, process: "SpawnProcess") -> None:
        used = self._used_memory(process)
        if self._max_memory is not None and used > self._max_memory:
            self.kill()
            self.wait()
            limit = f"{self._max_memory / 2**20:.0f} MB"
            raise HandlerMemoryExceeded(f"the process of the handler used {used / 2**20:.0f} MB, the limit is {limit}")

    def kill(self) -> None:
        """Kill the process with everything it has started, also while it starts."""
        with self._lock:
            self._killed = True
            if self._process is None or self._process.pid is None or self._process.exitcode is not None:
                return
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()

    def wait(self) -> None:
        """Wait for the end of a killed process."""
        if self._process is not None and self._process.pid is not None:
            self._process.join(_END_SECONDS)


def _end_of(process: "SpawnProcess") -> str:
    code = process.exitcode if process.pid is not None else -signal.SIGKILL
    if code is None or code >= 0:
        return f"ended with exit code {code}"
    return f"was killed by signal {-code} ({signal.Signals(-code).name})"


def _serve_calls(pipe: "Connection[Any, Any]", log_formats: list[tuple[str, str]]) -> None:
    """In the process: run one call after the other; end with the parent.

    SIGTERM and SIGINT are left to the parent, which ends this process after its grace. Handled, not ignored,
    because programs that the handler starts would ignore them, too. The parent kills the whole process group.
    """
    os.setpgrp()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    for log_format in log_formats:
        configure_logging(*log_format)
    calls: queue.SimpleQueue[tuple[StopRequests, Callable[..., Any], tuple[Any, ...]]] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(pipe, calls), daemon=True).start()
    while True:
        requests, function, args = calls.get()
        answer: tuple[Any, str | None]
        try:
            answer = function(requests, *args), None
        except BaseException as error:
            answer = None, f"{type(error).__name__}: {error}"
        pipe.send(answer)
        del requests, function, args, answer


def _receive(pipe: "Connection[Any, Any]", calls: "queue.SimpleQueue[Any]") -> None:
    """In the process: take calls, and the requests to the one that runs."""
    requests = StopRequests()
    with suppress(EOFError, OSError):
        while True:
            first, second = pipe.recv()
            if isinstance(first, StopKind):
                requests.add(first, second)
            else:
                requests = StopRequests()
                pipe.send(_TAKEN)
                calls.put((requests, first, second))
    os.killpg(0, signal.SIGKILL)
