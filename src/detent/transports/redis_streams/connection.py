"""One connection to a Redis server: pipelined commands, replies in order, one exception for an unreachable server."""

import asyncio
import ssl
from collections.abc import Sequence
from typing import Any

import hiredis
from redis.connection import parse_url

from detent.core.errors import InvalidInput
from detent.ports.stream import StreamUnavailable

REPLY_TIMEOUT = 10.0
_CONNECT_TIMEOUT = 5.0
_READ_BYTES = 1 << 18
_NOT_WRITABLE = (
    "READONLY",
    "LOADING",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "NOREPLICAS",
    "OOM",
    "MISCONF",
    "TRYAGAIN",
    "BUSY ",
)
"""Error replies of a server that does not accept writes now, or is no longer the primary."""
_INCOMPLETE = object()

Command = Sequence[Any]


class CommandError(Exception):
    """The server's error reply to one command."""


class RedisConnection:
    """Connects on first use, and drops the connection when a reply does not arrive in time.

    Uses asyncio streams and hiredis directly: redis-py's asyncio client may swallow a cancellation while it connects.
    """

    def __init__(self, url: str) -> None:
        try:
            self._address: dict[str, Any] = dict(parse_url(url))  # type: ignore[no-untyped-call]
        except ValueError as error:
            raise InvalidInput(
                f"cannot read the Redis URL: {error}; write redis://host:6379/0", code="REDIS_URL_INVALID"
            ) from None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._replies = _parser()
        self._lock = asyncio.Lock()

    async def execute(self, *command: Any, timeout: float = REPLY_TIMEOUT) -> Any:
        """Run one command; raises its error reply."""
        reply = (await self.pipeline([command], timeout=timeout))[0]
        if isinstance(reply, CommandError):
            raise reply
        return reply

    async def execute_many(self, commands: Sequence[Command]) -> list[Any]:
        """Run the commands in one round trip; raises the first error reply."""
        replies = await self.pipeline(commands)
        for reply in replies:
            if isinstance(reply, CommandError):
                raise reply
        return replies

    async def transaction(self, commands: Sequence[Command]) -> list[Any]:
        """Run the commands atomically (MULTI, EXEC); raises the first error reply."""
        replies = await self.execute_many([("MULTI",), *commands, ("EXEC",)])
        results: list[Any] = replies[-1]
        for reply in results:
            if isinstance(reply, CommandError):
                raise reply
        return results

    async def pipeline(self, commands: Sequence[Command], *, timeout: float = REPLY_TIMEOUT) -> list[Any]:
        """Run the commands in one round trip; error replies are returned among the replies."""
        if not commands:
            return []
        async with self._lock:
            try:
                async with asyncio.timeout(timeout):
                    if self._writer is None:
                        await self._connect()
                    replies = await self._call(commands)
            except BaseException as error:  # replies still on their way must not be read as those of later commands
                self._drop()
                if isinstance(error, OSError | TimeoutError | EOFError | hiredis.ProtocolError):
                    raise StreamUnavailable(f"Redis does not answer: {type(error).__name__}: {error}") from error
                raise
            for reply in replies:
                if isinstance(reply, CommandError) and str(reply).startswith(_NOT_WRITABLE):
                    self._drop()
                    raise StreamUnavailable(f"Redis does not accept writes: {reply}") from reply
        return replies

    async def _call(self, commands: Sequence[Command]) -> list[Any]:
        assert self._writer is not None and self._reader is not None
        self._writer.write(b"".join([hiredis.pack_command(tuple(command)) for command in commands]))
        replies: list[Any] = []
        while len(replies) < len(commands):
            reply = self._replies.gets()
            if reply is not _INCOMPLETE:
                replies.append(reply)
                continue
            data = await self._reader.read(_READ_BYTES)
            if not data:
                raise EOFError("the server closed the connection")
            self._replies.feed(data)
        return replies

    async def _connect(self) -> None:
        address = self._address
        async with asyncio.timeout(_CONNECT_TIMEOUT):
            if "path" in address:
                self._reader, self._writer = await asyncio.open_unix_connection(address["path"])
            else:
                host, port = address.get("host", "localhost"), address.get("port", 6379)
                self._reader, self._writer = await asyncio.open_connection(host, port, ssl=_tls_context(address))
            self._replies = _parser()
            commands: list[Command] = []
            if address.get("password"):
                commands.append(("AUTH", *filter(None, (address.get("username"), address["password"]))))
            if address.get("db"):
                commands.append(("SELECT", address["db"]))
            for reply in await self._call(commands):
                if isinstance(reply, CommandError):
                    raise OSError(f"the server refused the connection: {reply}")

    def _drop(self) -> None:
        writer, self._writer, self._reader = self._writer, None, None
        if writer is not None:
            writer.transport.abort()

    async def close(self) -> None:
        self._drop()


def _parser() -> Any:
    return hiredis.Reader(replyError=CommandError, notEnoughData=_INCOMPLETE)


def _tls_context(address: dict[str, Any]) -> ssl.SSLContext | None:
    if "SSL" not in getattr(address.get("connection_class"), "__name__", ""):
        return None
    context = ssl.create_default_context(cafile=address.get("ssl_ca_certs"))
    if str(address.get("ssl_cert_reqs", "required")).lower() == "none":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
