"""A TCP proxy that can be told to go silent: what a partition looks like from the side of a client."""

import asyncio
import ssl
import threading
from contextlib import suppress
from types import TracebackType


class Proxy:
    """Passes bytes to a port of this machine. silent: nothing goes through and nobody is told, as by a dead router.

    tls: clients must speak TLS to the proxy.
    """

    def __init__(self, target: int, tls: ssl.SSLContext | None = None) -> None:
        self.target = target
        self.tls = tls
        self.port = 0
        self.silent = False
        self.closed = False
        self.cut_at: bytes | None = None
        """The next data that contains these bytes is dropped, and every connection is closed."""
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="proxy", daemon=True)
        self._writers: set[asyncio.StreamWriter] = set()
        self._forgotten: set[asyncio.StreamWriter] = set()

    def __enter__(self) -> "Proxy":
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def go_silent(self) -> None:
        """Connections stay open and say nothing any more; new ones are taken and left waiting."""
        self.silent = True

    def forget(self) -> None:
        """Connections that exist go silent, as after a lost NAT entry or a host that died; new ones work."""
        self._forgotten |= self._writers

    def cut(self) -> None:
        """Every connection is closed, and new ones are closed at once until the proxy is opened again."""
        self.closed = True
        self._loop.call_soon_threadsafe(self._cut)

    def open(self) -> None:
        self.silent = self.closed = False

    def _cut(self) -> None:
        for writer in list(self._writers):
            writer.close()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._meet, "127.0.0.1", 0, ssl=self.tls))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        # Accept no more, let accepted connections reach `_meet`, then close: asyncio 3.11 leaks the socket of a
        # connection that was accepted but has no transport yet when its server is closed (Server._attach fails).
        self._loop.remove_reader(server.sockets[0].fileno())
        self._loop.run_until_complete(self._settle())
        server.close()
        for writer in self._writers:
            writer.transport.abort()  # not closed: TLS would wait for the goodbye of its peer
        for transport in self._transports_without_writer():
            transport.abort()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.run_until_complete(self._settle())
        self._loop.close()

    def _transports_without_writer(self) -> list[asyncio.Transport]:
        """Accepted connections whose TLS handshake has not ended: `_meet` never learns of them."""
        keys = list(self._loop._selector.get_map().values())  # type: ignore[attr-defined]
        owners = [getattr(handle._callback, "__self__", None) for key in keys for handle in key.data if handle]
        return [owner for owner in owners if isinstance(owner, asyncio.Transport)]

    async def _settle(self) -> None:
        """Let connections that were just accepted reach `_meet`, and those that were aborted close their sockets."""
        for _ in range(10):
            await asyncio.sleep(0)

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if self.silent:
                await asyncio.Event().wait()
            if self.closed:
                raise OSError("closed")
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.target)
            self._writers.add(there_writer)
            await asyncio.gather(self._pass(reader, there_writer), self._pass(there_reader, writer))
        except OSError:
            writer.close()

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await source.read(65536):
                if self.silent or sink in self._forgotten:
                    await asyncio.Event().wait()
                if self.cut_at is not None and self.cut_at in data:
                    self.cut_at = None
                    self._cut()
                    return
                sink.write(data)
                await sink.drain()
        if not self.silent:
            sink.close()
