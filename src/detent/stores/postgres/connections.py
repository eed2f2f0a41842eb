"""Opening connections: session settings, type codecs, keepalive, and several hosts in one URL."""

import asyncio
import socket
from contextlib import suppress
from typing import Any

import asyncpg

from detent.core.errors import InvalidInput

Connection = Any
"""An asyncpg connection, pooled or not; asyncpg's stubs have no common type for the two."""
STATEMENT_SECONDS = 4.0
"""Time limit of a statement, well below a lease. A connection that does not answer for so long counts as lost."""
LONG_SECONDS = 60.0
"""Time limit of statements that read many rows. They follow a BEGIN, so that a lost connection is noticed sooner."""
CONNECT_SECONDS = 4.0
LOST = (
    TimeoutError,
    OSError,
    asyncio.CancelledError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
"""Errors after which a connection is not used again: it may still be waiting for the answer to its last statement."""
READ_COMMITTED = {"default_transaction_isolation": "read committed"}
"""For statements outside a transaction. Engine acts lock a row and then read what others committed meanwhile; with the
older snapshot of another isolation level they would miss it."""


def read_committed(connection: Any) -> Any:
    """A transaction in READ COMMITTED, whatever the default of the server, the role or the connection is."""
    return connection.transaction(isolation="read_committed")


async def prepare(connection: Any) -> None:
    """Read and write uuid columns as text."""
    await connection.set_type_codec("uuid", schema="pg_catalog", encoder=str, decoder=str, format="text")


_KEEPALIVE = {"TCP_KEEPIDLE": 4, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 2, "TCP_USER_TIMEOUT": 8_000}


def keep_alive(connection: Any) -> None:
    """Let the kernel close the connection within 8 s if the other host no longer acknowledges packets."""
    own_socket = connection._transport.get_extra_info("socket")
    if own_socket is None or own_socket.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with suppress(OSError):
        own_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):  # not on every operating system
                own_socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def terminate_idle(pool: Any) -> None:
    """Close the idle connections of a pool without a word to the server: it may not answer any more."""
    for holder in pool._holders:
        if holder.is_idle():
            holder.terminate()


async def skip_reset(_connection: Any) -> None:
    """The pool's reset hook: transactions leave no session state, so the round trip of a reset is saved."""


def terminate(connection: Any) -> None:
    if connection is not None and not connection.is_closed():
        connection.terminate()


HOST_SECONDS = 3.0
"""Connect timeout per host if there are several: a machine that is down does not refuse, it does not answer."""
_TRY_NEXT_HOST = (OSError, TimeoutError, asyncpg.CannotConnectNowError, asyncpg.TargetServerAttributeNotMatched)


class Hosts:
    """Connects to the host that worked last; tries the next one if a host is down, silent or not the primary."""

    def __init__(self, url: str) -> None:
        self._urls = url_per_host(url)
        self._first = 0

    async def connect(self, _url: str | None = None, *, timeout: float, **options: Any) -> Connection:
        """As asyncpg.connect, but with a timeout per host; asyncpg's timeout covers all hosts together."""
        if len(self._urls) > 1:
            timeout = min(timeout, HOST_SECONDS)
        error: BaseException = OSError("no host")
        first = self._first
        for offset in range(len(self._urls)):
            at = (first + offset) % len(self._urls)
            try:
                connection = await asyncpg.connect(self._urls[at], timeout=timeout, **options)
                keep_alive(connection)
            except _TRY_NEXT_HOST as connect_error:
                error = connect_error
            except (ValueError, asyncpg.UndefinedObjectError) as refusal:
                raise _invalid_url(refusal) from None
            except asyncio.CancelledError:
                self._first = at + 1  # the caller's timeout is over: begin with another host next time
                raise
            else:
                self._first = at
                return connection
        raise error


def _invalid_url(error: Exception) -> InvalidInput:
    """asyncpg's own errors name the faulty option; another ValueError is a port that is no number, and may contain a
    part of the password."""
    own = isinstance(error, asyncpg.InterfaceError | asyncpg.PostgresError)
    return InvalidInput(
        f"invalid Postgres URL: {error if own else 'the port is not a number'}; write"
        " postgresql://user:password@host:5432/database, special characters of the password percent-encoded"
        " (%40 for @, %2F for /)",
        code="URL_INVALID",
    )


def url_per_host(url: str) -> list[str]:
    """postgresql://me@a:1,b:2/jobs -> one URL per host, with target_session_attrs=primary unless the URL sets it."""
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    user, at, hosts = authority.rpartition("@")
    if "," not in hosts:
        return [url]
    if "target_session_attrs=" not in path:
        path += ("&" if "?" in path else "?") + "target_session_attrs=primary"
    return [f"{scheme}{separator}{user}{at}{host}{slash or '/'}{path}" for host in hosts.split(",")]
