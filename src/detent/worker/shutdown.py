"""Shutdown of a worker's process: stop signals, and tasks that ignore their cancellation."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any

from detent.ports.clock import Clock

_BLOCKED_LOOP_SECONDS = 1.0
SUPERVISOR_FD = "DETENT_SUPERVISOR_FD"
"""The environment variable with the number of the socket to the supervisor of this process."""


class StopSignals:
    """Each SIGTERM or SIGINT calls `stop` on the loop. If the loop is blocked, the second one ends the process.

    A supervisor gets the grace when this process is ready, and sends how often it was told to stop. So a signal that
    both receive counts once, and a supervisor that dies stops its workers.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, stop: Callable[[], None], clock: Clock, grace_seconds: float
    ) -> None:
        self._loop = loop
        self._stop = stop
        self._clock = clock
        self._pending_since: float | None = None
        self._previous_handlers: dict[int, Any] = {}
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                self._previous_handlers[number] = signal.signal(number, self._on_signal)
            except ValueError:  # not the main thread: the owner calls stop()
                break
        self._calls = 0
        self._supervisor: socket.socket | None = None
        if (number_of_socket := os.environ.pop(SUPERVISOR_FD, None)) is not None:
            self._supervisor = socket.socket(fileno=int(number_of_socket))
            self._supervisor.setblocking(False)
            self._supervisor.send(str(grace_seconds).encode())
            loop.add_reader(self._supervisor, self._on_supervisor)

    def _on_supervisor(self) -> None:
        assert self._supervisor is not None, "called for a socket only"
        try:
            message = self._supervisor.recv(16)
        except OSError:
            message = b""
        if not message:
            self._close_supervisor()
        for _ in range(max([1, *message]) - self._calls):
            self._call_stop()

    def _close_supervisor(self) -> None:
        if self._supervisor is not None:
            self._loop.remove_reader(self._supervisor)
            self._supervisor.close()
            self._supervisor = None

    def restore(self) -> None:
        self._close_supervisor()
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        now = self._clock.monotonic()
        if self._pending_since is not None and now - self._pending_since > _BLOCKED_LOOP_SECONDS:
            signal.signal(number, signal.SIG_DFL)  # a handler blocks the loop: its jobs are left to their leases
            os.kill(os.getpid(), number)
            return
        if self._pending_since is None:
            self._pending_since = now
        self._loop.call_soon_threadsafe(self._call_stop)

    def _call_stop(self) -> None:
        self._pending_since = None
        self._calls += 1
        self._stop()


def abandon_task(task: "asyncio.Task[Any]") -> None:
    """Unregister a task that ignores its cancellation: asyncio.run would wait for it without end."""
    asyncio._unregister_task(task)
    task._log_destroy_pending = False  # type: ignore[attr-defined]
