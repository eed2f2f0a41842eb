"""A server on a real socket, and clients that read its event stream."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from detent.web.http.serving import Server, bind, config_of
from support.web.api import API, Api


@asynccontextmanager
async def listening(api: Api) -> AsyncIterator[str]:
    server = Server(config_of(api.app), own_signals=False)
    socket = bind("127.0.0.1", 0)
    serving = asyncio.create_task(server.serve([socket]))
    try:
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving


class Follower:
    """Reads server-sent events from one connection."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines
        self.last = ""

    async def next(self) -> dict[str, Any]:
        received: dict[str, str] = {}
        async with asyncio.timeout(20):
            async for line in self._lines:
                name, _, value = line.partition(": ")
                if line and not line.startswith(":"):
                    received[name] = value
                elif not line and "data" in received:
                    break
        self.last = received.get("id", self.last)
        return {"id": received.get("id"), "name": received["event"], **json.loads(received["data"])}

    async def read(self, number: int) -> list[dict[str, Any]]:
        return [await self.next() for _ in range(number)]


@asynccontextmanager
async def following(client: httpx.AsyncClient, last: str | None = None, **params: str) -> AsyncIterator[Follower]:
    headers = {"Last-Event-ID": last} if last is not None else {}
    async with client.stream("GET", f"{API}/events/stream", params=params, headers=headers, timeout=30) as response:
        assert response.status_code == 200 and response.headers["content-type"].startswith("text/event-stream")
        lines = response.aiter_lines()
        assert (await anext(lines)).startswith(":")
        yield Follower(lines)
