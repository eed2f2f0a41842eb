"""NOTIFY after commits, at most one per 5 ms; LISTEN on a connection that is tested and replaced when it fails."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import asyncpg

from detent.system.backoff import Backoff
from detent.system.tasks import cancel_and_wait, complete, wait_for_event, wait_for_future

from .connections import Connection, terminate

log = logging.getLogger("detent.postgres")
T = TypeVar("T")
_TEST_INTERVAL_SECONDS = 15.0
_TEST_TIMEOUT_SECONDS = 5.0
_NOTIFY_INTERVAL_SECONDS = 0.005
_ENDS_INTERVAL_SECONDS = 0.04
_AWAITED_INTERVAL_SECONDS = 5.0
_POLL_SECONDS_WITHOUT_LISTEN = 0.1
_NOTIFY = "SELECT pg_notify($1, $2)"
READY, TEST, ENDED, AWAITED, LISTENING = "", "test", "ended", "awaited", "listening"
"""Payloads of notifications: jobs became claimable; a test of the listener; jobs ended; a process awaits ends of jobs;
a process has begun to listen and does not know yet whether ends are awaited."""
_CONNECTION_ERRORS = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, TimeoutError)


class SideConnection:
    """A connection for small transactions that must commit apart from the caller's transaction.

    Its commits do not wait for the disk (synchronous_commit = off): a later commit that depends on them flushes them.
    """

    def __init__(self, connect: Callable[[], Awaitable[Connection]]) -> None:
        self._connect = connect
        self._connection: Connection | None = None
        self._lock = asyncio.Lock()

    async def run(self, act: Callable[[Connection], Awaitable[T]]) -> T:
        async with self._lock:
            if self._connection is None or self._connection.is_closed():
                self._connection = await self._connect()
            try:
                return await act(self._connection)
            except (*_CONNECTION_ERRORS, asyncio.CancelledError):
                terminate(self._connection)
                raise

    def terminate_idle(self) -> None:
        if not self._lock.locked():
            terminate(self._connection)

    async def close(self) -> None:
        await _close(self._connection)
        self._connection = None


class Notifier:
    """Sends NOTIFY to other processes. Requests that arrive while one is sent, or within an interval, become one."""

    def __init__(
        self,
        side_connection: SideConnection,
        channel: str,
        payload: str = READY,
        interval_seconds: float = _NOTIFY_INTERVAL_SECONDS,
    ) -> None:
        self._side_connection = side_connection
        self._values = (channel, payload)
        self._interval_seconds = interval_seconds
        self._requested = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def notify(self) -> None:
        self._requested.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while self._requested.is_set():
            self._requested.clear()
            with suppress(*_CONNECTION_ERRORS):  # a lost notification costs one poll
                await self._side_connection.run(lambda connection: connection.execute(_NOTIFY, *self._values))
            await asyncio.sleep(self._interval_seconds)

    async def close(self) -> None:
        """Waits for a requested NOTIFY to be sent; without it a worker would sleep until its next poll."""
        if self._task is not None and not self._task.done():
            _, late = await asyncio.wait([self._task], timeout=_TEST_TIMEOUT_SECONDS / 10)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


class Listener:
    """LISTENs on a connection of its own. Every 15 s it sends itself a test; if that does not arrive within 5 s, the
    connection is replaced."""

    def __init__(
        self, connect: Callable[[], Awaitable[Connection]], channel: str, on_notification: Callable[[str], None]
    ) -> None:
        self._connect = connect
        self._channel = channel
        self._handle = on_notification
        self._test_received = asyncio.Event()
        self._task = asyncio.create_task(self._run())
        self.connections = 0
        self._connection: Connection | None = None

    def reconnect(self) -> None:
        """Replace the connection, because another one was lost."""
        terminate(self._connection)

    async def _run(self) -> None:
        backoff = Backoff(0.1, 5.0)
        while True:
            connection: Connection | None = None
            try:
                new_connection = await self._connect()
                self._connection = connection = new_connection
                await new_connection.add_listener(self._channel, self._on_notification)
                await new_connection.execute(_NOTIFY, self._channel, LISTENING)
                self.connections += 1
                if self.connections > 1:
                    log.info("listening again on a new connection")
                self._handle(READY)
                self._handle(ENDED)  # notifications of either kind may have been missed
                backoff.reset()
                await self._test_until_closed(connection)
            except _CONNECTION_ERRORS as error:
                log.warning("LISTEN failed, falling back to polling: %s", error)
            finally:
                await _close(connection)
            await backoff.pause()

    async def _test_until_closed(self, connection: Connection) -> None:
        closed = asyncio.Event()
        connection.add_termination_listener(lambda _: closed.set())
        while not closed.is_set():
            self._test_received.clear()
            async with asyncio.timeout(_TEST_TIMEOUT_SECONDS):
                await connection.execute(_NOTIFY, self._channel, TEST)
                await self._test_received.wait()
            await wait_for_event(closed, _TEST_INTERVAL_SECONDS)
        raise OSError("the listening connection was closed")

    def _on_notification(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        if payload == TEST:
            self._test_received.set()
        else:
            self._handle(payload)

    async def close(self) -> None:
        await cancel_and_wait([self._task])


class Waiters:
    """Tasks of this process that wait for a commit. The version grows with every commit notified."""

    def __init__(self) -> None:
        self._version = 0
        self._waiting: set[asyncio.Future[bool]] = set()

    def wake_all(self) -> None:
        self._version += 1
        for waiter in self._waiting:
            complete(waiter)

    async def wait_for_change(self, seen: int, timeout: float) -> int:
        """Wait until the version differs from `seen`, at most this long; returns the current version."""
        if self._version == seen and timeout > 0:
            waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self._waiting.add(waiter)
            try:
                await wait_for_future(waiter, timeout)
            finally:
                self._waiting.discard(waiter)
        return self._version


class Ends:
    """Notifications about ended jobs. A worker sends them only while a process says that it awaits some."""

    def __init__(self, side_connection: SideConnection, channel: str, *, listens: bool) -> None:
        self.waiters = Waiters()
        self._listens = listens
        self._ended = Notifier(side_connection, channel, ENDED, _ENDS_INTERVAL_SECONDS)
        self._awaited = Notifier(side_connection, channel, AWAITED, _ENDS_INTERVAL_SECONDS)
        self._awaited_until = 0.0
        self._awaits_until = 0.0
        self._announced_at = -_AWAITED_INTERVAL_SECONDS

    def notify(self, *, unless_known: bool) -> None:
        """Jobs have ended. unless_known: this process does not listen, so it cannot know whether this is awaited."""
        if self._listens and (unless_known or asyncio.get_running_loop().time() < self._awaited_until):
            self._ended.notify()

    def announce(self) -> None:
        """Tell processes that have begun to listen that this one awaits ends."""
        if asyncio.get_running_loop().time() < self._awaits_until:
            self._awaited.notify()

    def set_awaited(self) -> None:
        """Another process awaits ends, and says so again as long as it does."""
        self._awaited_until = asyncio.get_running_loop().time() + 3 * _AWAITED_INTERVAL_SECONDS

    async def wait_for_change(self, seen: int, timeout: float) -> int:
        if self._listens:
            now = asyncio.get_running_loop().time()
            self._awaits_until = now + timeout + _AWAITED_INTERVAL_SECONDS  # a waiter reads between two waits
            if now - self._announced_at > _AWAITED_INTERVAL_SECONDS:
                self._announced_at = now
                self._awaited.notify()
            return await self.waiters.wait_for_change(seen, timeout)
        return await self.waiters.wait_for_change(seen, min(timeout, _POLL_SECONDS_WITHOUT_LISTEN))

    async def close(self) -> None:
        await self._awaited.close()
        await self._ended.close()


class ServerWatch:
    """Sees commits of this process at once and those of others by notification; callers also poll, as a fallback."""

    def __init__(self, wait_for_change: Callable[[int, float], Awaitable[int]]) -> None:
        self._wait_for_change = wait_for_change
        self._seen = -1

    async def changed(self, timeout: float) -> bool:
        if self._seen < 0:
            self._seen = await self._wait_for_change(self._seen, 0)
            return True
        before, self._seen = self._seen, await self._wait_for_change(self._seen, timeout)
        return before != self._seen


async def _close(connection: Connection | None) -> None:
    if connection is not None and not connection.is_closed():
        with suppress(*_CONNECTION_ERRORS):
            await connection.close(timeout=1)
