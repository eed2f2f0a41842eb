"""An API over a database of its own, asked without a network; and people with tokens."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from engine.stores import Place, open_place
from fastapi import FastAPI

from detent.core.contract.builtin import CONTRACTS
from detent.engine import Engine
from detent.engine.control.access import create_token
from detent.system.clock import SystemClock
from detent.web.app import create_app
from detent.web.http.settings import Settings

API = "/api/v1"
BASE = "http://127.0.0.1:8400"


class Api:
    """One application, and a client for each person."""

    def __init__(self, engine: Engine, app: FastAPI, place: Place) -> None:
        self.engine = engine
        self.app = app
        self.place = place
        self.clients: list[httpx.AsyncClient] = []
        self.open = self.client()

    def client(self, token: str | None = None, **headers: str) -> httpx.AsyncClient:
        told = {"Authorization": f"Bearer {token}", **headers} if token else headers
        made = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url=BASE, headers=told)
        self.clients.append(made)
        return made

    async def person(self, name: str, role: str, **options: Any) -> httpx.AsyncClient:
        _, secret = await create_token(self.engine, name, role, actor="test", **options)
        self.app.state.web.people.forget()
        return self.client(secret)

    async def submit(self, client: httpx.AsyncClient | None = None, **body: Any) -> dict[str, Any]:
        answer = await (client or self.open).post(f"{API}/jobs", json={"job_type": "mail", **body})
        assert answer.status_code == 201, answer.text
        job: dict[str, Any] = answer.json()["job"]
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
    made = Api(engine, create_app(engine, Settings(open_without_tokens=True, internal=True)), place)
    yield made
    for client in made.clients:
        await client.aclose()
    await made.app.state.web.close()
    await engine.close()


def code(answer: httpx.Response, status: int) -> str:
    """The code of a refusal that must have this status and be problem+json."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["status"] == status and body["detail"] and body["trace_id"] and isinstance(body["retryable"], bool)
    return str(body["code"])
