"""One connection to the server: commands go out together, answers come back in order, trouble has one name."""

import asyncio
from collections.abc import Sequence
from typing import Any

from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.exceptions import RedisError, ResponseError

from ...core.errors import InvalidInput
from ...wire import WireUnavailable

SECONDS = 10.0
_CONNECT_SECONDS = 5.0
_ELSEWHERE = ("READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "NOREPLICAS", "OOM", "MISCONF", "TRYAGAIN", "BUSY ")
"""Answers of a server that cannot be written now, or is no longer the one to write to."""

Command = Sequence[Any]


class Link:
    """A connection that is made when it is needed and dropped when an answer stays out."""

    def __init__(self, url: str) -> None:
        try:
            self._pool = ConnectionPool.from_url(url, protocol=2, socket_connect_timeout=_CONNECT_SECONDS)
        except ValueError as error:
            raise InvalidInput(
                f"cannot read the Redis URL: {error}; write redis://host:6379/0", code="REDIS_URL_INVALID"
            ) from None
        self._connection: AbstractConnection | None = None
        self._lock = asyncio.Lock()

    async def one(self, *command: Any, seconds: float = SECONDS) -> Any:
        """One command; an error it answers is raised."""
        answer = (await self.all([command], seconds=seconds))[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def every(self, commands: Sequence[Command]) -> list[Any]:
        """Many commands; the first error among the answers is raised."""
        answers = await self.all(commands)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    async def together(self, commands: Sequence[Command]) -> list[Any]:
        """Many commands as one: nobody else's comes between, and all of them happen or none."""
        answers = await self.every([("MULTI",), *commands, ("EXEC",)])
        results: list[Any] = answers[-1]
        for answer in results:
            if isinstance(answer, Exception):
                raise answer
        return results

    async def all(self, commands: Sequence[Command], *, seconds: float = SECONDS) -> list[Any]:
        """Many commands in one round trip; errors stand among the answers."""
        if not commands:
            return []
        async with self._lock:
            try:
                async with asyncio.timeout(seconds):
                    connection = await self._connected()
                    await connection.send_packed_command(connection.pack_commands(commands))
                    answers = [await _answer(connection) for _ in commands]
            except BaseException as error:  # answers that are still on their way belong to nobody
                await self._drop()
                if isinstance(error, RedisError | OSError | TimeoutError):
                    raise WireUnavailable(f"Redis does not answer: {type(error).__name__}: {error}") from error
                raise
            for answer in answers:
                if isinstance(answer, ResponseError) and str(answer).startswith(_ELSEWHERE):
                    await self._drop()
                    raise WireUnavailable(f"Redis cannot be written: {answer}") from answer
        return answers

    async def _connected(self) -> AbstractConnection:
        if self._connection is None:
            connection: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]
            await connection.connect()  # type: ignore[no-untyped-call]
            self._connection = connection
        return self._connection

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.disconnect(nowait=True)

    async def close(self) -> None:
        await self._drop()


async def _answer(connection: AbstractConnection) -> Any:
    try:
        return await connection.read_response(disconnect_on_error=False)
    except ResponseError as error:
        return error
