"""A small HTTP server for Prometheus in a worker process: GET /metrics and GET /healthz."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

log = logging.getLogger("detent.metrics")
_READ_SECONDS = 10.0
_MAX_HEAD = 8_192
Page = Callable[[], Awaitable[tuple[bytes, str]]]
"""Returns the body of /metrics and its content type."""
Health = Callable[[], Awaitable[tuple[bool, str]]]
"""Returns whether the process is healthy, and a sentence."""
UNIX = "unix:"
"""A host that begins with this is the path of a Unix socket."""


class MetricsServer:
    """Answers one request per connection; a request that is no HTTP, too long or too slow is dropped."""

    def __init__(self, page: Page, host: str = "127.0.0.1", port: int = 0, health: Health | None = None) -> None:
        self._page = page
        self._health = health
        self._host = host
        self.port = port
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        if self._host.startswith(UNIX):
            self._server = await asyncio.start_unix_server(self._serve, self._host.removeprefix(UNIX), limit=_MAX_HEAD)
            return
        self._server = await asyncio.start_server(self._serve, self._host, self.port, limit=_MAX_HEAD)
        self.port = self._server.sockets[0].getsockname()[1]
        log.info("metrics at http://%s:%d/metrics", self._host, self.port)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_READ_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            status, body, content_type = await self._response(head)
            start = (
                f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
                "Connection: close\r\n\r\n"
            )
            writer.write(start.encode() + body)
            async with asyncio.timeout(_READ_SECONDS):
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _response(self, head: bytes) -> tuple[str, bytes, str]:
        plain = "text/plain; charset=utf-8"
        parts = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(parts) != 3:
            return "400 Bad Request", b"not HTTP\n", plain
        path = parts[1].partition("?")[0]
        if parts[0] not in ("GET", "HEAD"):
            return "405 Method Not Allowed", b"only GET\n", plain
        if path == "/healthz":
            healthy, text = await self._health() if self._health is not None else (True, "ok")
            return "200 OK" if healthy else "503 Service Unavailable", f"{text}\n".encode(), plain
        if path != "/metrics":
            return "404 Not Found", b"see /metrics\n", plain
        try:
            body, content_type = await self._page()
            return "200 OK", body, content_type
        except Exception as error:
            log.warning("cannot serve /metrics: %s", error)
            return "503 Service Unavailable", f"{error}\n".encode(), plain
