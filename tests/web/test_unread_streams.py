"""Clients of the event stream that never read: real sockets, each disconnected after `send_seconds`."""

import asyncio
import importlib.util
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol

from detent.engine import Submission
from detent.web.http.connection_timeouts import with_timeouts
from detent.web.http.serving import Server, bind, config_of
from detent.web.http.settings import Settings
from support.waiting import until
from support.web.api import API, Api

pytestmark = pytest.mark.anyio
PROTOCOLS = ["h11", *(["httptools"] if importlib.util.find_spec("httptools") else [])]
SETTINGS = Settings(open_without_tokens=True, send_seconds=0.3)
CLIENTS = 5


@asynccontextmanager
async def serving(api: Api, protocol: str, settings: Settings) -> AsyncIterator[tuple[Server, int]]:
    config = config_of(api.app, settings)
    if protocol == "h11":
        config.http = with_timeouts(H11Protocol, settings)
    server, listening = Server(config, own_signals=False), bind("127.0.0.1", 0)
    task = asyncio.create_task(server.serve([listening]))
    try:
        yield server, listening.getsockname()[1]
    finally:
        server.should_exit = True
        await asyncio.wait_for(task, 10)


async def unread_stream(port: int) -> socket.socket:
    """A client that asks for the stream and reads nothing; its receive buffer is small."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, ("127.0.0.1", port))
    await loop.sock_sendall(client, f"GET {API}/events/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    return client


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("events", [100, 4_000], ids=["in-the-kernel", "in-the-process"])
async def test_a_client_that_never_reads_is_disconnected(api: Api, protocol: str, events: int) -> None:
    """Few events wait in the kernel's send buffer, many of them in the buffer of the server as well."""
    api.app.state.web.settings = SETTINGS
    tail = api.app.state.web.event_tail
    async with serving(api, protocol, SETTINGS) as (server, port):
        clients = [await unread_stream(port) for _ in range(CLIENTS)]
        await until(lambda: tail.listeners == CLIENTS)
        await api.engine.jobs.submit_many([Submission("mail", payload={"text": "x" * 600}) for _ in range(events)])
        await until(lambda: not server.server_state.connections, 10)
        await until(lambda: tail.listeners == 0)
        for client in clients:
            client.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_server_stops_beside_clients_that_never_read(api: Api, protocol: str) -> None:
    """The end of a stream is not awaited longer than any other write."""
    api.app.state.web.settings = SETTINGS
    async with serving(api, protocol, SETTINGS) as (_, port):
        client = await unread_stream(port)
        await until(lambda: api.app.state.web.event_tail.listeners == 1)
        await api.engine.jobs.submit_many([Submission("mail", payload={"text": "x" * 600}) for _ in range(4_000)])
    client.close()
