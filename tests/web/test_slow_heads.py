"""Half a head holds no connection: real sockets against a real server, over each of uvicorn's protocols there is."""

import asyncio
import importlib.util
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol

from detent.web.http.header_timeout import with_header_timeout
from detent.web.http.serving import Server, bind, config_of
from web.conftest import API, Api

pytestmark = pytest.mark.anyio
PATIENCE = 0.3
BODY = b'{"job_type": "mail"}'
HEAD = (
    b"POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n" % len(BODY)
)
PROTOCOLS = ["h11", *(["httptools"] if importlib.util.find_spec("httptools") else [])]


class Line:
    """A connection whose other end may hang up."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> bytes:
        """One answer, whole."""
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 20)
        length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"content-length" in line)
        return head + await self.reader.readexactly(length)

    async def hung_up(self) -> float:
        """Seconds until the other end closed without a word."""
        begun = asyncio.get_running_loop().time()
        with suppress(ConnectionError):
            assert await asyncio.wait_for(self.reader.read(), 20) == b""
        return asyncio.get_running_loop().time() - begun


class Port:
    def __init__(self, server: Server, number: int) -> None:
        self.server, self.number = server, number
        self.lines: list[Line] = []

    async def line(self) -> Line:
        self.lines.append(Line(*await asyncio.open_connection("127.0.0.1", self.number)))
        return self.lines[-1]


@pytest.fixture(params=PROTOCOLS)
async def port(api: Api, request: pytest.FixtureRequest) -> AsyncIterator[Port]:
    config = config_of(api.app, PATIENCE)
    if request.param == "h11":
        config.http = with_header_timeout(H11Protocol, PATIENCE)
    server = Server(config, own_signals=False)
    listening = bind("127.0.0.1", 0)
    serving = asyncio.create_task(server.serve([listening]))
    made = Port(server, listening.getsockname()[1])
    yield made
    for line in made.lines:
        line.writer.close()
    server.should_exit = True
    await serving


async def test_half_a_head_is_given_up(port: Port) -> None:
    silent, half = await port.line(), await port.line()
    half.send(HEAD[:40])
    assert all(PATIENCE / 2 < seconds < 10 for seconds in await asyncio.gather(silent.hung_up(), half.hung_up()))
    assert not port.server.server_state.connections


async def test_a_head_that_trickles_is_given_up_all_the_same(port: Port) -> None:
    line = await port.line()

    async def trickle() -> None:
        with suppress(ConnectionError):
            for number in range(1_000):
                line.send(b"POST / HTTP/1.1\r\nX-More: " if number == 0 else b"x")
                await line.writer.drain()
                await asyncio.sleep(PATIENCE / 10)

    trickling = asyncio.create_task(trickle())
    assert await line.hung_up() < 10
    trickling.cancel()


async def test_half_a_second_head_is_given_up_too(port: Port) -> None:
    line = await port.line()
    line.send(HEAD + BODY)
    assert b" 201 " in await line.answer()
    line.send(HEAD[:40])
    assert await line.hung_up() < 10


async def test_a_slow_body_and_a_pause_between_requests_are_not_cut(port: Port) -> None:
    line = await port.line()
    for _ in range(2):
        line.send(HEAD + BODY[:5])
        await asyncio.sleep(PATIENCE * 2)  # the time itself is what is tested
        line.send(BODY[5:])
        assert b" 201 " in await line.answer()
        await asyncio.sleep(PATIENCE * 2)


async def test_others_are_served_meanwhile(port: Port, api: Api) -> None:
    halves = [await port.line() for _ in range(50)]
    for half in halves:
        half.send(HEAD[:40])
    line = await port.line()
    line.send(f"GET {API}/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    assert b" 200 " in await line.answer()
    await asyncio.gather(*(half.hung_up() for half in halves))
