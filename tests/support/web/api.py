"""An API without a network, an HTTP client for each person, and the error code of a response."""

from typing import Any

import httpx
from fastapi import FastAPI

from detent.core.access import Scope
from detent.engine import Engine
from support.stores import Place

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

    async def person(self, name: str, role: str, *, rotated: bool = True, **options: Any) -> httpx.AsyncClient:
        """A client with a new token, which only this person knows unless rotated is False."""
        token, secret = await self.engine.tokens.create(name, role, Scope("test"), **options)
        if rotated and token.is_valid(self.engine.store.now()):
            _, secret = await self.engine.tokens.rotate(secret)
        self.app.state.web.authenticator.clear_cache()
        return self.client(secret)

    async def submit(self, client: httpx.AsyncClient | None = None, **body: Any) -> dict[str, Any]:
        response = await (client or self.open).post(f"{API}/jobs", json={"job_type": "mail", **body})
        assert response.status_code == 201, response.text
        job: dict[str, Any] = response.json()["job"]
        return job


def code(response: httpx.Response, status: int) -> str:
    """The error code of a response, which must have this status and be problem+json."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body["status"] == status and body["detail"] and body["trace_id"] and isinstance(body["retryable"], bool)
    return str(body["code"])
