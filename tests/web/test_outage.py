"""A database that stops or hangs: requests fail with 503 within about a second, and work again when it is back."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from detent.engine import Engine
from detent.stores.postgres.store import PostgresStore
from detent.web.app import create_app
from detent.web.http.settings import Settings
from support.servers.databases import migrated
from support.servers.postgres import Server, installations
from support.web.api import API, BASE, code

pytestmark = pytest.mark.anyio


@pytest.fixture
async def server_and_client() -> AsyncIterator[tuple[Server, httpx.AsyncClient]]:
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


async def seconds_until_refused(client: httpx.AsyncClient) -> list[float]:
    """Send several requests, which must all fail with STORE_UNAVAILABLE; returns the seconds that each one took."""
    requests: list[tuple[str, str, Any]] = [
        ("GET", f"{API}/jobs", None),
        ("POST", f"{API}/jobs", {"job_type": "x"}),
        ("POST", f"{API}/jobs", {"job_type": "x", "idempotency_key": "k"}),
        ("GET", f"{API}/jobs/01900000-0000-7000-8000-000000000000", None),
        ("POST", f"{API}/worker/claim", {"worker": "w", "job_types": ["x"], "wait_seconds": 5.0}),
    ]
    durations = []
    for method, path, body in requests:
        start = time.perf_counter()
        response = await client.request(method, path, json=body)
        durations.append(time.perf_counter() - start)
        assert code(response, 503) == "STORE_UNAVAILABLE" and response.json()["retryable"], path
        assert response.headers["retry-after"] == "1" and "127.0.0.1" not in response.text
    assert (await client.get("/readyz")).status_code == 503
    assert (await client.get("/healthz")).status_code == 200
    return durations


async def wait_until_working(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(30):
        while (await client.post(f"{API}/jobs", json={"job_type": "x"})).status_code != 201:
            await asyncio.sleep(0.05)
        while (await client.get("/readyz")).status_code != 200:
            await asyncio.sleep(0.05)


async def test_a_stopped_database(server_and_client: tuple[Server, httpx.AsyncClient]) -> None:
    server, client = server_and_client
    assert (await client.post(f"{API}/jobs", json={"job_type": "x"})).status_code == 201
    server.stop()
    assert sorted(await seconds_until_refused(client))[2] < 1.0
    server.start()
    await wait_until_working(client)


@pytest.mark.long
async def test_a_database_that_hangs(server_and_client: tuple[Server, httpx.AsyncClient]) -> None:
    """Its processes get SIGSTOP: connections stay open, but nothing responds."""
    server, client = server_and_client
    assert (await client.post(f"{API}/jobs", json={"job_type": "x"})).status_code == 201
    pids = suspend(server)
    try:
        assert sorted(await seconds_until_refused(client))[2] < 1.2
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    await wait_until_working(client)


def suspend(server: Server) -> list[int]:
    """Send SIGSTOP to the server and its backends; returns their pids."""
    head = int((server.data / "postmaster.pid").read_text().splitlines()[0])
    pids = [head]
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parent = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == head:
                pids.append(int(entry))
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    return pids
