"""Header timeout: closes a connection whose request headers do not arrive completely in time."""

import asyncio
import importlib
import importlib.util
from typing import Any


def http_protocol(head_seconds: float) -> type[asyncio.Protocol]:
    """uvicorn's HTTP protocol (httptools if installed, else h11) with a header timeout, which uvicorn does not have."""
    fast = importlib.util.find_spec("httptools") is not None
    module, name = ("httptools_impl", "HttpToolsProtocol") if fast else ("h11_impl", "H11Protocol")
    return with_header_timeout(getattr(importlib.import_module(f"uvicorn.protocols.http.{module}"), name), head_seconds)


def with_header_timeout(protocol: type[Any], head_seconds: float) -> type[asyncio.Protocol]:
    """Subclass a uvicorn protocol so that it closes connections whose headers are incomplete after `head_seconds`.

    The timer starts when the connection opens or with the first byte after a response; further bytes do not restart it.
    Between requests the keep-alive timeout applies, during a request the limits on bodies and requests.
    """

    class HeaderTimeoutProtocol(protocol):  # type: ignore[misc]
        _header_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._start_header_timer()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is None or self.cycle.response_complete:
                self._start_header_timer()
            else:
                self._stop_header_timer()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_header_timer()
            super().connection_lost(exc)

        def _start_header_timer(self) -> None:
            if self._header_timer is None:
                self._header_timer = self.loop.call_later(head_seconds, self._close_connection)

        def _stop_header_timer(self) -> None:
            if self._header_timer is not None:
                self._header_timer.cancel()
                self._header_timer = None

        def _close_connection(self) -> None:
            self._header_timer = None
            self.transport.close()

    return HeaderTimeoutProtocol
