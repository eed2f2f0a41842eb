"""One connection to the server: commands go out together, answers come back in order, trouble has one name."""

import asyncio
import ssl
from collections.abc import Sequence
from typing import Any

import hiredis
from redis.connection import parse_url

from detent.core.errors import InvalidInput
from detent.ports.stream import StreamUnavailable

SECONDS = 10.0
_CONNECT_SECONDS = 5.0
_PIECE = 1 << 18
_ELSEWHERE = ("READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "NOREPLICAS", "OOM", "MISCONF", "TRYAGAIN", "BUSY ")
"""Answers of a server that cannot be written now, or is no longer the one to write to."""
_NOT_YET = object()

Command = Sequence[Any]


class Refusal(Exception):
    """The server's own error answer to one command."""


class RedisConnection:
    """A connection that is made when it is needed and dropped when an answer stays out.

    Spoken by hand, because the asyncio client of redis-py may swallow a cancellation while it connects.
    """

    def __init__(self, url: str) -> None:
        try:
            self._place: dict[str, Any] = dict(parse_url(url))  # type: ignore[no-untyped-call]
        except ValueError as error:
            raise InvalidInput(
                f"cannot read the Redis URL: {error}; write redis://host:6379/0", code="REDIS_URL_INVALID"
            ) from None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._answers = _parser()
        self._lock = asyncio.Lock()

    async def one(self, *command: Any, seconds: float = SECONDS) -> Any:
        """One command; an error it answers is raised."""
        answer = (await self.all([command], seconds=seconds))[0]
        if isinstance(answer, Refusal):
            raise answer
        return answer

    async def every(self, commands: Sequence[Command]) -> list[Any]:
        """Many commands; the first error among the answers is raised."""
        answers = await self.all(commands)
        for answer in answers:
            if isinstance(answer, Refusal):
                raise answer
        return answers

    async def together(self, commands: Sequence[Command]) -> list[Any]:
        """Many commands as one: nobody else's comes between, and all of them happen or none."""
        answers = await self.every([("MULTI",), *commands, ("EXEC",)])
        results: list[Any] = answers[-1]
        for answer in results:
            if isinstance(answer, Refusal):
                raise answer
        return results

    async def all(self, commands: Sequence[Command], *, seconds: float = SECONDS) -> list[Any]:
        """Many commands in one round trip; errors stand among the answers."""
        if not commands:
            return []
        async with self._lock:
            try:
                async with asyncio.timeout(seconds):
                    if self._writer is None:
                        await self._connect()
                    answers = await self._call(commands)
            except BaseException as error:  # answers that are still on their way belong to nobody
                self._drop()
                if isinstance(error, OSError | TimeoutError | EOFError | hiredis.ProtocolError):
                    raise StreamUnavailable(f"Redis does not answer: {type(error).__name__}: {error}") from error
                raise
            for answer in answers:
                if isinstance(answer, Refusal) and str(answer).startswith(_ELSEWHERE):
                    self._drop()
                    raise StreamUnavailable(f"Redis cannot be written: {answer}") from answer
        return answers

    async def _call(self, commands: Sequence[Command]) -> list[Any]:
        assert self._writer is not None and self._reader is not None
        self._writer.write(b"".join([hiredis.pack_command(tuple(command)) for command in commands]))
        answers: list[Any] = []
        while len(answers) < len(commands):
            answer = self._answers.gets()
            if answer is not _NOT_YET:
                answers.append(answer)
                continue
            data = await self._reader.read(_PIECE)
            if not data:
                raise EOFError("the server closed the connection")
            self._answers.feed(data)
        return answers

    async def _connect(self) -> None:
        place = self._place
        async with asyncio.timeout(_CONNECT_SECONDS):
            if "path" in place:
                self._reader, self._writer = await asyncio.open_unix_connection(place["path"])
            else:
                where = place.get("host", "localhost"), place.get("port", 6379)
                self._reader, self._writer = await asyncio.open_connection(*where, ssl=_secured(place))
            self._answers = _parser()
            hello: list[Command] = []
            if place.get("password"):
                hello.append(("AUTH", *filter(None, (place.get("username"), place["password"]))))
            if place.get("db"):
                hello.append(("SELECT", place["db"]))
            for answer in await self._call(hello):
                if isinstance(answer, Refusal):
                    raise OSError(f"the server does not let us in: {answer}")

    def _drop(self) -> None:
        writer, self._writer, self._reader = self._writer, None, None
        if writer is not None:
            writer.transport.abort()

    async def close(self) -> None:
        self._drop()


def _parser() -> Any:
    return hiredis.Reader(replyError=Refusal, notEnoughData=_NOT_YET)


def _secured(place: dict[str, Any]) -> ssl.SSLContext | None:
    if "SSL" not in getattr(place.get("connection_class"), "__name__", ""):
        return None
    context = ssl.create_default_context(cafile=place.get("ssl_ca_certs"))
    if str(place.get("ssl_cert_reqs", "required")).lower() == "none":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
