"""Limits on connections that uvicorn does not have: their number, headers that do not arrive, data that is not read."""

import asyncio
import importlib
import importlib.util
import resource
import socket
import struct
from contextlib import suppress
from typing import Any

from .settings import Settings

_OTHER_FILES = 200
"""Open files that are not connections of clients: the database, sockets to servers, logs."""


def http_protocol(settings: Settings) -> type[asyncio.Protocol]:
    """uvicorn's HTTP protocol (httptools if installed, else h11) with the timeouts of these settings."""
    fast = importlib.util.find_spec("httptools") is not None
    module, name = ("httptools_impl", "HttpToolsProtocol") if fast else ("h11_impl", "H11Protocol")
    return with_timeouts(getattr(importlib.import_module(f"uvicorn.protocols.http.{module}"), name), settings)


def with_timeouts(protocol: type[Any], settings: Settings) -> type[asyncio.Protocol]:
    """A subclass of a uvicorn protocol with the limits of `LimitedConnection`."""
    most = min(settings.max_connections, open_files_limit(settings) - _OTHER_FILES)
    limits = {"settings": settings, "max_connections": most, "idle": {}}
    return type(f"Limited{protocol.__name__}", (LimitedConnection, protocol), limits)


class LimitedConnection(asyncio.Protocol):
    """Limits connections, and closes those whose client is too slow; to be mixed into a uvicorn protocol.

    Number: beyond `max_connections`, the connection that has waited longest for a request is closed, so that idle
    connections cannot keep others out.

    Headers: the timer starts when the connection opens or with the first byte after a response; further bytes do not
    restart it. Between requests the keep-alive timeout applies, during a request the limits on bodies and requests.

    Reading: a client that reads nothing for `send_seconds` while data waits for it is disconnected, and the data is
    dropped. The timer covers data in the transport's buffer, TCP_USER_TIMEOUT data in the kernel's buffer.
    """

    settings: Settings
    max_connections: int
    idle: dict["LimitedConnection", None]
    """Connections without a request, of all connections of a server; the one that waits longest first."""
    connections: set[Any]
    transport: asyncio.Transport
    cycle: Any
    loop: asyncio.AbstractEventLoop
    _header_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.idle[self] = None
        if len(self.connections) > self.max_connections:
            longest_idle = next(iter(self.idle))
            del self.idle[longest_idle]
            reset_connection(longest_idle.transport)
        limit_unread_time(transport.get_extra_info("socket"), self.settings.send_seconds)
        self._start_header_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._start_header_timer()
        else:
            self.idle.pop(self, None)
            self._stop_timer("_header_timer")

    def on_response_complete(self) -> None:
        if self.cycle.response_complete:
            self.cycle.body.clear()  # what arrived of a body that nobody has read
        super().on_response_complete()  # type: ignore[misc]
        if self.cycle.response_complete:  # no pipelined request has been started
            self.idle[self] = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(self.settings.send_seconds, reset_connection, self.transport)

    def resume_writing(self) -> None:
        self._stop_timer("_write_timer")
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.idle.pop(self, None)
        self._stop_timer("_header_timer")
        self._stop_timer("_write_timer")
        super().connection_lost(exc)

    def _start_header_timer(self) -> None:
        if self._header_timer is None:
            self._header_timer = self.loop.call_later(self.settings.head_seconds, self.transport.close)

    def _stop_timer(self, name: str) -> None:
        timer = getattr(self, name)
        if timer is not None:
            timer.cancel()
            setattr(self, name, None)


def open_files_limit(settings: Settings) -> int:
    """How many files this process may open, after raising the limit for `max_connections` as far as allowed."""
    wanted = settings.max_connections + _OTHER_FILES
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if now == resource.RLIM_INFINITY or now >= wanted:
        return wanted
    if most != resource.RLIM_INFINITY:
        wanted = min(wanted, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    return wanted


def reset_connection(transport: asyncio.Transport) -> None:
    """Close at once. Without a linger time of 0 the kernel would keep its unread buffer for minutes."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def limit_unread_time(connection: Any, seconds: float) -> None:
    """Let the kernel close a connection whose peer acknowledges nothing, or does not read, for this long."""
    option = getattr(socket, "TCP_USER_TIMEOUT", None)
    if option is not None and connection is not None:
        with suppress(OSError):  # not a TCP connection
            connection.setsockopt(socket.IPPROTO_TCP, option, max(1, round(seconds * 1_000)))
