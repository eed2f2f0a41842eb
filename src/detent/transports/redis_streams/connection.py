"""One connection to a Redis server: pipelined commands, replies in order, one exception for an unreachable server."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import hiredis
from redis.asyncio.connection import ConnectionPool
from redis.asyncio.sentinel import MasterNotFoundError
from redis.exceptions import (
    ClusterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)

from detent.ports.stream import StreamUnavailable

from .address import new_connection

REPLY_TIMEOUT = 10.0
_NOT_WRITABLE = (ReadOnlyError, OutOfMemoryError, ClusterDownError, TryAgainError)
"""Error replies of a server that does not accept writes now, or is no longer the primary; see also the codes below."""
_NOT_WRITABLE_CODES = ("NOREPLICAS", "MISCONF", "BUSY ", "UNBLOCKED")

Command = Sequence[Any]


class RedisConnection:
    """Connects on first use, and drops the connection when a reply does not arrive in time.

    redis-py finds the server, connects, authenticates and parses; commands are packed here, one write per pipeline.
    """

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool  # connections of a Sentinel pool refer to it weakly
        self._connection = new_connection(pool)
        self._lock = asyncio.Lock()
        self.run_id = ""
        """The server process that answered last. It is another one after a restart or a failover."""
        self._version: tuple[int, int] = (0, 0)

    async def execute(self, *command: Any, timeout: float = REPLY_TIMEOUT) -> Any:
        """Run one command; raises its error reply."""
        return (await self.execute_many([command], timeout=timeout))[0]

    async def execute_many(self, commands: Sequence[Command], *, timeout: float = REPLY_TIMEOUT) -> list[Any]:
        """Run the commands in one round trip; raises the first error reply."""
        return _raise_first(await self.pipeline(commands, timeout=timeout))

    async def transaction(self, commands: Sequence[Command]) -> list[Any]:
        """Run the commands atomically (MULTI, EXEC); raises the first error reply."""
        return _raise_first((await self.execute_many([("MULTI",), *commands, ("EXEC",)]))[-1])

    async def pipeline(self, commands: Sequence[Command], *, timeout: float = REPLY_TIMEOUT) -> list[Any]:
        """Run the commands in one round trip; error replies are returned among the replies."""
        if not commands:
            return []
        async with self._lock:
            try:
                async with asyncio.timeout(timeout):
                    if not self._connection.is_connected:
                        await self._connect()
                    replies = await self._call(commands)
            except BaseException as error:  # replies still on their way must not be read as those of later commands
                await self.close(nowait=True)
                if isinstance(error, OSError | TimeoutError | RedisError):
                    raise StreamUnavailable(f"Redis does not answer: {_describe(error)}") from error
                raise
            for reply in replies:
                if isinstance(reply, ResponseError) and (problem := _refusal(reply)):
                    await self.close(nowait=True)
                    raise StreamUnavailable(problem) from reply
        return replies

    async def _call(self, commands: Sequence[Command]) -> list[Any]:
        packed = b"".join([hiredis.pack_command(tuple(command)) for command in commands])
        await self._connection.send_packed_command(packed, check_health=False)
        return [await self._reply() for _ in commands]

    async def _reply(self) -> Any:
        try:
            return await self._connection.read_response()
        except ResponseError as error:
            return error

    async def _connect(self) -> None:
        task = asyncio.current_task()
        requests = task.cancelling() if task else 0
        try:
            await self._connection.connect()  # type: ignore[no-untyped-call]
        finally:
            if task and task.cancelling() > requests:
                # asyncio.wait_for of Python 3.11, by which redis-py asks sentinels, may swallow a cancellation
                raise asyncio.CancelledError
        (info,) = await self._call([("INFO", "server")])
        if isinstance(info, ResponseError):
            raise StreamUnavailable(_refusal(info) or f"Redis refuses INFO: {info}") from info
        server = _parse_info(info)
        self.run_id = server.get("run_id", "")
        major, minor, *_ = [*server.get("redis_version", "0").split("."), "0"]
        self._version = int(major), int(minor)

    async def has_commands_of_6_2(self) -> bool:
        """XAUTOCLAIM, XTRIM MINID and XPENDING IDLE. Read anew with each connection: a failover may change it."""
        if not self._connection.is_connected:
            await self.execute("INFO", "server")
        return self._version >= (6, 2)

    async def close(self, *, nowait: bool = False) -> None:
        with suppress(RedisError, OSError):
            await self._connection.disconnect(nowait=nowait)


def _raise_first(replies: list[Any]) -> list[Any]:
    """The replies, if none of them is an error."""
    for reply in replies:
        if isinstance(reply, ResponseError):
            raise reply
    return replies


def _describe(error: Exception) -> str:
    if isinstance(error, MasterNotFoundError):  # its text also has the settings of each sentinel's client
        return f"{str(error).partition(' : ')[0]}, according to every sentinel that answers"
    return f"{type(error).__name__}: {error}"


def _refusal(error: ResponseError) -> str | None:
    """Why the server is of no use now; None for an error that concerns the command alone."""
    if isinstance(error, NoPermissionError):
        return f"Redis refuses a command to this user: {error}; grant it by ACL SETUSER"
    if isinstance(error, _NOT_WRITABLE) or str(error).startswith(_NOT_WRITABLE_CODES):
        return f"Redis does not accept writes: {_describe(error)}"
    return None


def _parse_info(text: bytes) -> dict[str, str]:
    """The reply of INFO as a dictionary."""
    lines = (line.partition(":") for line in text.decode("utf-8", "replace").splitlines())
    return {name: value.strip() for name, colon, value in lines if colon}
