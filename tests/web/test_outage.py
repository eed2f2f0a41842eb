"""A database that stops: told within a second, whether it hangs up or falls silent; and it comes back by itself."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from servers.databases import migrated
from servers.postgres import Server, installations

from detent.engine import Engine
from detent.stores.postgres.store import PostgresStore
from detent.web.app import create_app
from detent.web.http.settings import Settings
from web.conftest import API, BASE, code

pytestmark = pytest.mark.anyio


@pytest.fixture
async def asked() -> AsyncIterator[tuple[Server, httpx.AsyncClient]]:
    server = Server(list(installations().values())[-1], {"fsync": "off"})
    server.init().start()
    await migrated(server.url())
    engine = Engine(PostgresStore(server.url()))
    await engine.open()
    app = create_app(engine, Settings(open_without_tokens=True))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE, timeout=30) as client:
        yield server, client
    await app.state.web.close()
    await engine.close()
    server.remove()


async def refused_soon(client: httpx.AsyncClient) -> list[float]:
    """Every kind of request is refused with the code; the seconds each took."""
    asks: list[tuple[str, str, Any]] = [
        ("GET", f"{API}/jobs", None),
        ("POST", f"{API}/jobs", {"job_type": "x"}),
        ("POST", f"{API}/jobs", {"job_type": "x", "idempotency_key": "k"}),
        ("GET", f"{API}/jobs/01900000-0000-7000-8000-000000000000", None),
        ("POST", f"{API}/worker/claim", {"worker": "w", "job_types": ["x"], "wait_seconds": 5.0}),
    ]
    took = []
    for method, path, body in asks:
        start = time.perf_counter()
        answer = await client.request(method, path, json=body)
        took.append(time.perf_counter() - start)
        assert code(answer, 503) == "STORE_UNAVAILABLE" and answer.json()["retryable"], path
        assert answer.headers["retry-after"] == "1" and "127.0.0.1" not in answer.text
    assert (await client.get("/readyz")).status_code == 503
    assert (await client.get("/healthz")).status_code == 200
    return took


async def works_again(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(30):
        while (await client.post(f"{API}/jobs", json={"job_type": "x"})).status_code != 201:
            await asyncio.sleep(0.05)
        while (await client.get("/readyz")).status_code != 200:
            await asyncio.sleep(0.05)


async def test_a_stopped_database(asked: tuple[Server, httpx.AsyncClient]) -> None:
    server, client = asked
    assert (await client.post(f"{API}/jobs", json={"job_type": "x"})).status_code == 201
    server.stop()
    assert sorted(await refused_soon(client))[2] < 1.0
    server.start()
    await works_again(client)


async def test_a_database_that_falls_silent(asked: tuple[Server, httpx.AsyncClient]) -> None:
    """Its processes are halted: connections stay open and nobody answers."""
    server, client = asked
    assert (await client.post(f"{API}/jobs", json={"job_type": "x"})).status_code == 201
    pids = halted(server)
    try:
        assert sorted(await refused_soon(client))[2] < 1.2
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    await works_again(client)


def halted(server: Server) -> list[int]:
    """The server and its backends, stopped in their tracks."""
    head = int((server.data / "postmaster.pid").read_text().splitlines()[0])
    found = [head]
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parent = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == head:
                found.append(int(entry))
    for pid in found:
        os.kill(pid, signal.SIGSTOP)
    return found
