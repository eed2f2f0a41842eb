"""What callers can use up: memory for bodies, connections, event streams, rows of stored answers."""

import asyncio
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from time import monotonic

import httpx
import pytest

from detent.core.access import Scope
from detent.core.contract.builtin import CONTRACTS
from detent.engine import Engine
from detent.stores.sqlite.store import SqliteStore
from detent.system.clock import SystemClock
from detent.web.app import create_app
from detent.web.http.connection_timeouts import http_protocol
from detent.web.http.settings import Settings
from support.web.api import API, BASE, Api, code
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
    try:
        connection.sendall(b"x" * (BODY_BYTES // 2))
    except TimeoutError:
        pass  # the server reads no more
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
        print("MB", resident_mb(pid) - before)
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
            seconds = [health_seconds(port) for _ in range(20)]
            print("S", max(seconds))
            assert max(seconds) < 0.1, seconds
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
