"""Header timeout: real sockets against a real server, with each of uvicorn's installed HTTP protocols."""

import asyncio
import importlib.util
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol

from detent.web.http.connection_timeouts import with_timeouts
from detent.web.http.serving import Server, bind, config_of
from detent.web.http.settings import Settings
from support.web.api import API, Api

pytestmark = pytest.mark.anyio
HEADER_SECONDS = 0.3
SETTINGS = Settings(head_seconds=HEADER_SECONDS)
BODY = b'{"job_type": "mail"}'
HEADERS = (
    b"POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n" % len(BODY)
)
PROTOCOLS = ["h11", *(["httptools"] if importlib.util.find_spec("httptools") else [])]


class Connection:
    """A client connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def read_response(self) -> bytes:
        """One complete response."""
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), 20)
        length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"content-length" in line)
        return head + await self.reader.readexactly(length)

    async def seconds_until_closed(self) -> float:
        """Seconds until the server closed the connection without sending anything."""
        started = asyncio.get_running_loop().time()
        with suppress(ConnectionError):
            assert await asyncio.wait_for(self.reader.read(), 20) == b""
        return asyncio.get_running_loop().time() - started


class RunningServer:
    def __init__(self, server: Server, number: int) -> None:
        self.server, self.number = server, number
        self.connections: list[Connection] = []

    async def connection(self) -> Connection:
        self.connections.append(Connection(*await asyncio.open_connection("127.0.0.1", self.number)))
        return self.connections[-1]


@pytest.fixture(params=PROTOCOLS)
async def running(api: Api, request: pytest.FixtureRequest) -> AsyncIterator[RunningServer]:
    config = config_of(api.app, SETTINGS)
    if request.param == "h11":
        config.http = with_timeouts(H11Protocol, SETTINGS)
    server = Server(config, own_signals=False)
    listening = bind("127.0.0.1", 0)
    serving = asyncio.create_task(server.serve([listening]))
    running_server = RunningServer(server, listening.getsockname()[1])
    yield running_server
    for connection in running_server.connections:
        connection.writer.close()
    server.should_exit = True
    await serving


async def test_incomplete_headers_time_out(running: RunningServer) -> None:
    silent, partial = await running.connection(), await running.connection()
    partial.send(HEADERS[:40])
    assert all(
        HEADER_SECONDS / 2 < seconds < 10
        for seconds in await asyncio.gather(silent.seconds_until_closed(), partial.seconds_until_closed())
    )
    assert not running.server.server_state.connections


async def test_slowly_sent_headers_time_out(running: RunningServer) -> None:
    connection = await running.connection()

    async def trickle() -> None:
        with suppress(ConnectionError):
            for number in range(1_000):
                connection.send(b"POST / HTTP/1.1\r\nX-More: " if number == 0 else b"x")
                await connection.writer.drain()
                await asyncio.sleep(HEADER_SECONDS / 10)

    trickling = asyncio.create_task(trickle())
    assert await connection.seconds_until_closed() < 10
    trickling.cancel()


async def test_incomplete_headers_of_a_second_request_time_out(running: RunningServer) -> None:
    connection = await running.connection()
    connection.send(HEADERS + BODY)
    assert b" 201 " in await connection.read_response()
    connection.send(HEADERS[:40])
    assert await connection.seconds_until_closed() < 10


async def test_a_slow_body_and_a_pause_between_requests_do_not_time_out(running: RunningServer) -> None:
    connection = await running.connection()
    for _ in range(2):
        connection.send(HEADERS + BODY[:5])
        await asyncio.sleep(HEADER_SECONDS * 2)  # longer than the header timeout, which must not apply here
        connection.send(BODY[5:])
        assert b" 201 " in await connection.read_response()
        await asyncio.sleep(HEADER_SECONDS * 2)


async def test_other_connections_are_served_meanwhile(running: RunningServer, api: Api) -> None:
    incomplete = [await running.connection() for _ in range(50)]
    for partial in incomplete:
        partial.send(HEADERS[:40])
    connection = await running.connection()
    connection.send(f"GET {API}/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    assert b" 200 " in await connection.read_response()
    await asyncio.gather(*(partial.seconds_until_closed() for partial in incomplete))


async def test_two_lengths_of_one_request_end_the_connection(running: RunningServer) -> None:
    """A request with Content-Length and Transfer-Encoding is answered, what follows it on the connection is not."""
    ambiguous = HEADERS.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n")
    hidden = f"GET {API}/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    connection = await running.connection()
    connection.send(ambiguous + b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY) + hidden)
    answers = await asyncio.wait_for(connection.reader.read(), 20)
    assert answers.count(b"HTTP/1.1 ") == 1 and answers.startswith((b"HTTP/1.1 201", b"HTTP/1.1 400"))
    assert b"connection: close" in answers.lower()
