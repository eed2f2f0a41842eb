"""A TCP proxy before Postgres that loses one reply: the server has done what was asked, the client never hears."""

import asyncio
from contextlib import suppress

_DONE = b"Z\x00\x00\x00\x05I"
"""ReadyForQuery outside a transaction: whatever was asked is committed."""


class LossyProxy:
    """Passes everything until it is told what to lose. Lives on the loop of the test."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._lose: bytes | None = None
        self._server: asyncio.Server | None = None
        self._links: set[Link] = set()
        self.lost = 0

    async def start(self) -> "LossyProxy":
        self._server = await asyncio.start_server(self._meet, "127.0.0.1", 0)
        return self

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    def lose_reply_to(self, words: bytes) -> None:
        """The next request that holds these words is carried out; its connection breaks before the answer."""
        self._lose = words

    def is_to_be_lost(self, request: bytes) -> bool:
        if self._lose is None or self._lose not in request:
            return False
        self._lose = None
        return True

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for link in list(self._links):
            link.cut()
        for link in list(self._links):
            await link.ended.wait()

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = await asyncio.open_connection(*self._target)
        link = Link(self, (reader, writer), server)
        self._links.add(link)
        await link.run()
        self._links.discard(link)


class Link:
    """One client with its connection to the server."""

    def __init__(
        self,
        proxy: LossyProxy,
        client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        server: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self._proxy = proxy
        self._client, self._server = client, server
        self._losing = False
        self.ended = asyncio.Event()

    async def run(self) -> None:
        with suppress(OSError):
            async with asyncio.TaskGroup() as both:
                both.create_task(self._ask())
                both.create_task(self._answer())
        self.cut()
        self.ended.set()

    async def _ask(self) -> None:
        with suppress(OSError):
            while data := await self._client[0].read(1 << 20):
                self._losing |= self._proxy.is_to_be_lost(data)
                self._server[1].write(data)
        self._server[1].close()

    async def _answer(self) -> None:
        swallowed = b""
        with suppress(OSError):
            while data := await self._server[0].read(1 << 20):
                if self._losing:
                    swallowed += data
                    if _DONE in swallowed:
                        self._proxy.lost += 1
                        break
                else:
                    self._client[1].write(data)
        self._client[1].close()

    def cut(self) -> None:
        self._client[1].close()
        self._server[1].close()
