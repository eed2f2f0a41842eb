"""Tokens: storage, expiry, revocation, hidden payloads; the open API."""

import re
from typing import Any

import httpx
import pytest

from detent.web.app import create_app
from detent.web.http.settings import Settings
from support.web.api import API, BASE, Api, code

pytestmark = pytest.mark.anyio
SECRET = "the-secret-value"


async def test_a_token_is_shown_once_and_stored_as_a_digest(api: Api) -> None:
    boss = await api.person("boss", "admin")
    created = (await boss.post(f"{API}/tokens", json={"name": "ann", "role": "viewer"})).json()
    assert re.fullmatch(r"detent_[\w-]{43}", created["token"])
    assert created["token"] not in (await boss.get(f"{API}/tokens")).text
    assert not any(created["token"] in repr(rows) for rows in api.place.dump().values())
    ann = api.client(created["token"])
    assert (await ann.get(f"{API}/me")).json()["name"] == "ann"
    assert (await boss.post(f"{API}/tokens/{created['id']}/revoke")).json()["valid"] is False
    assert code(await ann.get(f"{API}/me"), 401) == "UNAUTHORIZED"
    assert code(await boss.post(f"{API}/tokens/nope/revoke"), 404) == "TOKEN_NOT_FOUND"


async def test_a_token_expires(api: Api) -> None:
    late = await api.person("late", "admin", expires_days=1e-12)
    assert code(await late.get(f"{API}/jobs"), 401) == "UNAUTHORIZED"


async def test_the_first_token_turns_on_authentication(api: Api) -> None:
    assert (await api.open.get(f"{API}/me")).json()["open"] is True
    boss = await api.person("boss", "admin")
    response = await api.open.get(f"{API}/jobs")
    assert code(response, 401) == "UNAUTHORIZED" and response.headers["www-authenticate"] == "Bearer"
    assert (await boss.get(f"{API}/me")).json()["open"] is False
    for header in ("Bearer", "Basic abc", "Bearer nope", "Bearer \u00e9"):
        got = await api.open.get(f"{API}/jobs", headers={"Authorization": header.encode("latin-1")})
        assert code(got, 401) == "UNAUTHORIZED"


async def test_an_open_api_refuses_cross_site_requests(api: Api) -> None:
    other = await api.open.post(f"{API}/jobs", json={"job_type": "x"}, headers={"Origin": "https://evil.example"})
    assert code(other, 403) == "ORIGIN_NOT_ALLOWED"
    rebound = await api.open.get(f"{API}/jobs", headers={"Host": "evil.example"})
    assert code(rebound, 403) == "HOST_NOT_ALLOWED"
    assert (await api.open.get(f"{API}/jobs", headers={"Origin": BASE})).status_code == 200


@pytest.mark.parametrize(
    "header", ["Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "x-forwarded-anything", "X-Real-IP", "Via"]
)
async def test_an_open_api_refuses_requests_through_a_proxy(api: Api, header: str) -> None:
    refused = await api.open.post(f"{API}/jobs", json={"job_type": "x"}, headers={header: "127.0.0.1"})
    assert code(refused, 403) == "PROXY_NOT_ALLOWED" and header.lower() in refused.json()["detail"]
    assert (await api.open.get("/", headers={header: "127.0.0.1"})).status_code == 403
    boss = await api.person("boss", "admin")
    assert (await boss.get(f"{API}/jobs", headers={header: "127.0.0.1"})).status_code == 200


async def test_an_open_api_refuses_the_protocol_of_proxies(api: Api) -> None:
    async def as_nginx(scope: Any, receive: Any, send: Any) -> None:
        await api.app({**scope, "http_version": "1.0"}, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(as_nginx), base_url=BASE) as client:
        assert code(await client.get(f"{API}/jobs"), 403) == "PROXY_NOT_ALLOWED"


async def test_an_open_api_refuses_other_machines(api: Api) -> None:
    for address, status in (("192.0.2.7", 403), ("::1", 200), ("::ffff:127.0.0.1", 200)):
        transport = httpx.ASGITransport(api.app, client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
            assert (await client.get(f"{API}/jobs")).status_code == status


async def test_by_default_an_api_needs_tokens(api: Api) -> None:
    closed = create_app(api.engine, Settings())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(closed), base_url=BASE) as client:
        assert code(await client.get(f"{API}/jobs"), 401) == "UNAUTHORIZED"
        assert (await client.get("/healthz")).status_code == 200
        assert code(await client.post(f"{API}/internal/jobs/x/run"), 404) == "ROUTE_NOT_FOUND"


@pytest.mark.parametrize("contract", ["standard", "gate-b2", "men", "p3c", "streams", "formal"])
async def test_a_token_without_payloads_sees_none(api: Api, contract: str) -> None:
    boss, redacted = await api.person("boss", "admin"), await api.person("blind", "admin", payloads=False)
    body = {"contract": contract, "payload": {"card": SECRET}}
    ids = [(await api.submit(boss, **body))["id"] for _ in range(2)]
    engine = api.engine
    from detent.core.job import Failure
    from detent.core.outcome import Failed, Succeeded

    claims = {claimed.id: claimed for claimed in await engine.claim(engine.claim_request("w", 2, 60.0))}
    await engine.settle(ids[0], claims[ids[0]].token, Succeeded(f'"{SECRET}"'))
    failure = Failure("CARD_BAD", SECRET, "CardError", retryable=False, traceback=SECRET)
    await engine.settle(ids[1], claims[ids[1]].token, Failed(failure))
    paths = [f"{API}/jobs", f"{API}/dlq/items"]
    for job_id in ids:
        paths += [f"{API}/jobs/{job_id}{tail}" for tail in ("", "/events", "/why", "/verify")]
        if dead_letter := (await boss.get(f"{API}/jobs/{job_id}")).json()["dlq_id"]:
            paths.append(f"{API}/dlq/items/{dead_letter}")
    seen = False
    for path in paths:
        seen |= SECRET in (await boss.get(path)).text
        response = await redacted.get(path)
        assert response.status_code == 200 and SECRET not in response.text, path
    assert seen
    assert (await boss.get(f"{API}/jobs", params={"text": SECRET})).json()["items"]
    assert not (await redacted.get(f"{API}/jobs", params={"text": SECRET})).json()["items"]
    requeued = (await redacted.post(f"{API}/jobs/{ids[1]}/requeue")).text
    assert SECRET not in requeued
    granted = (await redacted.post(f"{API}/tokens", json={"name": "x", "role": "viewer"})).json()
    assert granted["payloads"] is False, "a token cannot grant access that it does not have"
