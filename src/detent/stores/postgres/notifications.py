"""Word of new work: NOTIFY after the commit, coalesced; LISTEN that tests itself and comes back from silence."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import asyncpg

from .tx import Connection

log = logging.getLogger("detent.postgres")
T = TypeVar("T")
CHANNEL = "detent"
_TEST_SECONDS = 15.0
_SILENCE_SECONDS = 5.0
_RING_SECONDS = 0.005
_RING = f"NOTIFY {CHANNEL}"
_TROUBLE = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, TimeoutError)


class SideConnection:
    """One connection for what must not wait for, or be undone with, the act that asks for it; nor wait for the disk:
    whatever is committed later and relies on it takes it along."""

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
            except _TROUBLE:
                await self.close()
                raise

    async def close(self) -> None:
        await _closed(self._connection)
        self._connection = None


class Notifier:
    """Rings other processes. Rings that come while one is under way, or soon after it, become one."""

    def __init__(self, aside: SideConnection) -> None:
        self._aside = aside
        self._rung = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def ring(self) -> None:
        self._rung.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while self._rung.is_set():
            self._rung.clear()
            with suppress(*_TROUBLE):  # a lost notification costs one poll
                await self._aside.run(lambda connection: connection.execute(_RING))
            await asyncio.sleep(_RING_SECONDS)

    async def close(self) -> None:
        """A ring that was asked for is rung: the worker it is for would sleep until its next poll."""
        if self._task is not None and not self._task.done():
            _, late = await asyncio.wait([self._task], timeout=_SILENCE_SECONDS / 10)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)


class Listener:
    """Hears the bell. Each test it sends itself must come back, else the connection is deaf and is replaced."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], heard: Callable[[], None]) -> None:
        self._connect = connect
        self._heard = heard
        self._echo = asyncio.Event()
        self._task = asyncio.create_task(self._run())
        self.connections = 0

    async def _run(self) -> None:
        pause = 0.1
        while True:
            connection: Connection | None = None
            try:
                connection = await self._connect()
                await connection.add_listener(CHANNEL, self._hear)
                self.connections += 1
                if self.connections > 1:
                    log.info("listening again after a lost connection")
                self._heard()
                pause = 0.1
                await self._keep_testing(connection)
            except _TROUBLE as error:
                log.warning("not listening, polling meanwhile: %s", error)
            finally:
                await _closed(connection)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 5.0)

    async def _keep_testing(self, connection: Connection) -> None:
        gone = asyncio.Event()
        connection.add_termination_listener(lambda _: gone.set())
        while not gone.is_set():
            self._echo.clear()
            async with asyncio.timeout(_SILENCE_SECONDS):
                await connection.execute("SELECT pg_notify($1, 'test')", CHANNEL)
                await self._echo.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(_TEST_SECONDS):
                    await gone.wait()
        raise OSError("the listening connection was closed")

    def _hear(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        if payload == "test":
            self._echo.set()
        else:
            self._heard()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class Waiters:
    """Those of this process who wait for a commit. The version moves with each one told of."""

    def __init__(self) -> None:
        self._version = 0
        self._waiting: set[asyncio.Future[None]] = set()

    def tell(self) -> None:
        self._version += 1
        for sleeper in self._waiting:
            _wake(sleeper)

    async def told(self, seen: int, timeout: float) -> int:
        """Wait until the version has moved, at most this long; the version now."""
        if self._version == seen and timeout > 0:
            loop = asyncio.get_running_loop()
            sleeper: asyncio.Future[None] = loop.create_future()
            self._waiting.add(sleeper)
            alarm = loop.call_later(timeout, _wake, sleeper)
            try:
                await sleeper
            finally:
                alarm.cancel()
                self._waiting.discard(sleeper)
        return self._version


def _wake(sleeper: "asyncio.Future[None]") -> None:
    if not sleeper.done():
        sleeper.set_result(None)


class ServerWatch:
    """Hears of commits of this process at once, of others by notification; whoever waits polls as a floor."""

    def __init__(self, told: Callable[[int, float], Awaitable[int]]) -> None:
        self._told = told
        self._seen = -1

    async def changed(self, timeout: float) -> bool:
        if self._seen < 0:
            self._seen = await self._told(self._seen, 0)
            return True
        before, self._seen = self._seen, await self._told(self._seen, timeout)
        return before != self._seen


async def _closed(connection: Connection | None) -> None:
    if connection is not None and not connection.is_closed():
        with suppress(*_TROUBLE):
            await connection.close(timeout=1)
