"""What callers can use up: memory for bodies, connections, event streams, rows of stored answers."""

import asyncio
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from starlette.requests import Request

from detent.core.access import Scope
from detent.core.contract.builtin import CONTRACTS
from detent.engine import Engine
from detent.stores.sqlite.store import SqliteStore
from detent.web.http.limits import read_body
from detent.web.http.problems import RetryLater
from detent.web.http.serving import Server, bind, config_of
from detent.web.http.settings import Settings
from support.web.api import API, Api
from support.web.served import serving

BODY_BYTES = 4 << 20


async def _with_token(url: str) -> str:
    engine = Engine(SqliteStore(url.removeprefix("sqlite:///")), CONTRACTS)
    await engine.open()
    try:
        return (await engine.tokens.create("boss", "admin", Scope("test")))[1]
    finally:
        await engine.close()


@contextmanager
def server(folder: Path) -> Iterator[tuple[str, int, int]]:
    """(token, port, process id) of `detent serve` on a database with a token."""
    url = f"sqlite:///{folder}/jobs.db"
    token = asyncio.run(_with_token(url))
    with serving(folder, url) as at:
        yield token, int(at.rpartition(":")[2]), int((folder / "serve.pid").read_text())


def resident_mb(pid: int) -> float:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * resource.getpagesize() / (1 << 20)


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=5)


def health_seconds(port: int) -> float:
    """How long a health check on a new connection takes."""
    started = monotonic()
    with closing(HTTPConnection("127.0.0.1", port, timeout=5)) as client:
        client.request("GET", "/healthz")
        assert client.getresponse().status == 200
    return monotonic() - started


def send_half_of_a_body(port: int, path: str) -> socket.socket:
    """Send the headers and half of the body, as far as the server reads it, and read the response."""
    connection = connect(port)
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{head}Content-Length: {BODY_BYTES}\r\n\r\n".encode())
    connection.settimeout(0.5)
    with suppress(TimeoutError):  # the server may read no more
        connection.sendall(b"x" * (BODY_BYTES // 2))
    connection.settimeout(5)
    return connection


def test_half_sent_anonymous_bodies_need_no_memory(tmp_path: Path) -> None:
    with server(tmp_path) as (_, port, pid), ExitStack() as open_connections:
        health_seconds(port)
        before = resident_mb(pid)
        statuses = set()
        for number in range(50):
            path = f"{API}/session" if number % 2 else f"{API}/jobs"
            connection = open_connections.enter_context(send_half_of_a_body(port, path))
            statuses.add(connection.recv(12)[-3:])
        assert statuses == {b"401", b"413"}, "answered before the body has arrived"
        assert resident_mb(pid) - before < 20
        assert health_seconds(port) < 0.1


@pytest.mark.parametrize("number", [500, pytest.param(10_000, marks=pytest.mark.drill)])
def test_idle_connections_do_not_delay_others(tmp_path: Path, number: int) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    try:
        with server(tmp_path) as (_, port, _), ExitStack() as open_connections:
            for _ in range(number):
                open_connections.enter_context(connect(port))
            health_seconds(port)  # returns when the server has accepted all connections
            seconds = sorted(health_seconds(port) for _ in range(20))
            assert seconds[-2] < 0.1, seconds
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.anyio
async def test_beyond_the_limit_the_longest_idle_connection_is_closed(api: Api) -> None:
    """Connections with a request are kept: here, a claim that waits for a job."""
    settings = Settings(max_connections=3)
    server, listening = Server(config_of(api.app, settings), own_signals=False), bind("127.0.0.1", 0)
    serving = asyncio.create_task(server.serve([listening]))
    port = listening.getsockname()[1]
    body = b'{"worker": "w", "job_types": ["none"], "wait_seconds": 20}'
    head = "HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length:"
    try:
        busy, busy_writer = await asyncio.open_connection("127.0.0.1", port)
        busy_writer.write(f"POST {API}/worker/claim {head} {len(body)}\r\n\r\n".encode() + body)
        while not api.place.dump()["workers"]:
            await asyncio.sleep(0)
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        async with asyncio.timeout(10):
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            with suppress(ConnectionError):
                assert await idle[0][0].read() == b""
        assert not idle[1][0].at_eof() and not busy.at_eof()
        for open_writer in (busy_writer, writer, *(pair[1] for pair in idle)):
            open_writer.close()
    finally:
        server.should_exit = True
        await serving


@pytest.mark.anyio
async def test_unfinished_bodies_have_a_common_limit(api: Api) -> None:
    """Many callers with a token cannot fill the memory either."""
    web = api.app.state.web
    web.settings = replace(web.settings, max_unfinished=1_000)
    waiting = asyncio.Event()

    def half_sent() -> Request:
        messages = [{"type": "http.request", "body": b"x" * 800, "more_body": True}]

        async def receive() -> Any:
            if messages:
                return messages.pop()
            waiting.set()
            return await asyncio.Event().wait()

        return Request({"type": "http", "method": "POST", "headers": [], "path": "/"}, receive)

    first = asyncio.create_task(read_body(half_sent(), web, anonymous=False))
    await waiting.wait()
    with pytest.raises(RetryLater, match="too many request bodies"):
        await read_body(half_sent(), web, anonymous=False)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert web.unfinished_bytes == 0
