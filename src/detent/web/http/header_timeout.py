"""Patience with a request's head: a connection that brings no whole one in time is closed, and holds nothing."""

import asyncio
import importlib
import importlib.util
from typing import Any


def http_protocol(head_seconds: float) -> type[asyncio.Protocol]:
    """uvicorn's, the fast one where it is installed; by itself it waits for the rest of a head for ever."""
    fast = importlib.util.find_spec("httptools") is not None
    module, name = ("httptools_impl", "HttpToolsProtocol") if fast else ("h11_impl", "H11Protocol")
    return with_header_timeout(getattr(importlib.import_module(f"uvicorn.protocols.http.{module}"), name), head_seconds)


def with_header_timeout(protocol: type[Any], head_seconds: float) -> type[asyncio.Protocol]:
    """The time runs from the connection, or from the first byte behind an answer, whatever trickles in meanwhile.

    Between two requests the keep-alive time counts, within one the limits of bodies and answers.
    """

    class Patient(protocol):  # type: ignore[misc]
        _head_due: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._await_head()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is None or self.cycle.response_complete:
                self._await_head()
            else:
                self._head_came()

        def connection_lost(self, exc: Exception | None) -> None:
            self._head_came()
            super().connection_lost(exc)

        def _await_head(self) -> None:
            if self._head_due is None:
                self._head_due = self.loop.call_later(head_seconds, self._give_up)

        def _head_came(self) -> None:
            if self._head_due is not None:
                self._head_due.cancel()
                self._head_due = None

        def _give_up(self) -> None:
            self._head_due = None
            self.transport.close()

    return Patient
