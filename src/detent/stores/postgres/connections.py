"""What every connection of ours has in common."""

import asyncio
from typing import Any

import asyncpg

from .tx import Connection


async def prepare(connection: Any) -> None:
    """Ids are text on our side of the wire."""
    await connection.set_type_codec("uuid", schema="pg_catalog", encoder=str, decoder=str, format="text")


async def nothing_to_reset(_connection: Any) -> None:
    """Acts leave no session state behind, so there is nothing to ask the server for."""


def drop(connection: Any) -> None:
    if connection is not None and not connection.is_closed():
        connection.terminate()


HOST_SECONDS = 3.0
"""How long one of several hosts may keep us waiting: a lost machine refuses nobody, it is silent."""
_NEXT = (OSError, TimeoutError, asyncpg.CannotConnectNowError, asyncpg.TargetServerAttributeNotMatched)


class Hosts:
    """Begins with the host that let us in last, and goes on to the next when one is away, silent or no primary."""

    def __init__(self, url: str) -> None:
        self._urls = one_each(url)
        self._first = 0

    async def connect(self, _url: str | None = None, *, timeout: float, **options: Any) -> Connection:
        """What asyncpg.connect does, which gives all hosts together one time limit."""
        if len(self._urls) > 1:
            timeout = min(timeout, HOST_SECONDS)
        error: BaseException = OSError("no host")
        first = self._first
        for turn in range(len(self._urls)):
            at = (first + turn) % len(self._urls)
            try:
                connection = await asyncpg.connect(self._urls[at], timeout=timeout, **options)
            except _NEXT as refusal:
                error = refusal
            except asyncio.CancelledError:
                self._first = at + 1  # whoever waits for us lost patience with this one
                raise
            else:
                self._first = at
                return connection
        raise error


def one_each(url: str) -> list[str]:
    """postgresql://me@a:1,b:2/jobs -> one URL per host; only the primary will do, unless the URL says else."""
    scheme, mark, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    access, at, hosts = place.rpartition("@")
    if "," not in hosts:
        return [url]
    if "target_session_attrs=" not in path:
        path += ("&" if "?" in path else "?") + "target_session_attrs=primary"
    return [f"{scheme}{mark}{access}{at}{host}{slash or '/'}{path}" for host in hosts.split(",")]
