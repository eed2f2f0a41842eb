"""Fixtures: an API over a database of its own, called without a network, and HTTP clients with tokens."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from engine.stores import Place, open_place
from fastapi import FastAPI

from detent.core.access import Scope
from detent.core.contract.builtin import CONTRACTS
from detent.engine import Engine
from detent.system.clock import SystemClock
from detent.web.app import create_app
from detent.web.http.settings import Settings

API = "/api/v1"
BASE = "http://127.0.0.1:8400"


class Api:
    """An application, and an HTTP client for each person."""

    def __init__(self, engine: Engine, app: FastAPI, place: Place) -> None:
        self.engine = engine
        self.app = app
        self.place = place
        self.clients: list[httpx.AsyncClient] = []
        self.open = self.client()

    def client(self, token: str | None = None, **headers: str) -> httpx.AsyncClient:
        request_headers = {"Authorization": f"Bearer {token}", **headers} if token else headers
        client = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url=BASE, headers=request_headers)
        self.clients.append(client)
        return client

    async def person(self, name: str, role: str, **options: Any) -> httpx.AsyncClient:
        _, secret = await self.engine.tokens.create(name, role, Scope("test"), **options)
        self.app.state.web.authenticator.clear_cache()
        return self.client(secret)

    async def submit(self, client: httpx.AsyncClient | None = None, **body: Any) -> dict[str, Any]:
        response = await (client or self.open).post(f"{API}/jobs", json={"job_type": "mail", **body})
        assert response.status_code == 201, response.text
        job: dict[str, Any] = response.json()["job"]
        return job


@pytest.fixture(params=["sqlite-thread", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    place = open_place(request.param, tmp_path)
    yield place
    place.close()


@pytest.fixture
async def api(place: Place) -> AsyncIterator[Api]:
    engine = Engine(place.store(SystemClock()), CONTRACTS)
    await engine.open()
    api = Api(engine, create_app(engine, Settings(open_without_tokens=True, internal=True)), place)
    yield api
    for client in api.clients:
        await client.aclose()
    await api.app.state.web.close()
    await engine.close()


def code(response: httpx.Response, status: int) -> str:
    """The error code of a response, which must have this status and be problem+json."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body["status"] == status and body["detail"] and body["trace_id"] and isinstance(body["retryable"], bool)
    return str(body["code"])
