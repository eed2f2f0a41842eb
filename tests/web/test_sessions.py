"""Sessions of the dashboard: cookie and key, expiry, revocation, limits on failed sign-ins, and what is stored."""

import logging
import subprocess
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from detent.core.access import Scope, Session
from detent.web.app import create_app
from detent.web.http.settings import Settings
from support.stores import SqlitePlace
from support.web.api import API, BASE, Api, code

pytestmark = pytest.mark.anyio
JOBS = f"{API}/jobs"
KEY = "X-Session-Key"


@pytest.fixture
async def token(api: Api) -> str:
    return (await api.engine.tokens.create("ann", "operator", Scope("test")))[1]


@pytest.fixture
async def clients(api: Api) -> AsyncIterator[Any]:
    """A function that makes a client of an application with these settings."""
    opened: list[httpx.AsyncClient] = []

    def new_client(address: str = "127.0.0.1", **settings: Any) -> httpx.AsyncClient:
        app = create_app(api.engine, Settings(**settings))
        transport = httpx.ASGITransport(app, client=(address, 1))
        opened.append(httpx.AsyncClient(transport=transport, base_url=BASE))
        return opened[-1]

    yield new_client
    for client in opened:
        await client.aclose()


async def sign_in(client: httpx.AsyncClient, token: str, **headers: str) -> dict[str, str]:
    """Sign in; returns the headers that a page sends with each request."""
    response = await client.post(f"{API}/session", json={"token": token}, headers=headers)
    assert response.status_code == 200, response.text
    return {KEY: response.json()["session_key"]}


async def test_a_session_needs_its_cookie_and_its_key(api: Api, token: str) -> None:
    page = api.client()
    response = await page.post(f"{API}/session", json={"token": token})
    cookie = response.headers["set-cookie"]
    assert cookie.startswith("detent_session=") and "HttpOnly" in cookie and "SameSite=strict" in cookie
    assert "Secure" not in cookie and token not in cookie and response.json()["name"] == "ann"
    key = {KEY: response.json()["session_key"]}
    assert (await page.get(JOBS, headers=key)).status_code == 200
    assert (await page.post(JOBS, json={"job_type": "x"}, headers=key)).status_code == 201
    for wrong in ({}, {KEY: ""}, {KEY: "x" * 43}, {KEY: page.cookies["detent_session"]}):
        assert code(await page.get(JOBS, headers=wrong), 401) == "SESSION_KEY_INVALID"
        assert code(await page.post(JOBS, json={"job_type": "x"}, headers=wrong), 401) == "SESSION_KEY_INVALID"
        assert code(await page.get(f"{API}/events/stream", headers=wrong), 401) == "SESSION_KEY_INVALID"
    thief = api.client()
    assert code(await thief.get(JOBS, headers=key), 401) == "UNAUTHORIZED"
    for secret in (page.cookies["detent_session"], key[KEY]):
        assert code(await api.client(secret).get(JOBS), 401) == "UNAUTHORIZED", "neither is a bearer token"
    thief.cookies["detent_session"] = token
    assert code(await thief.get(JOBS, headers={KEY: token}), 401) == "SESSION_ENDED"
    assert (await page.get("/jobs")).status_code == 200, "a page has no data, its address carries no key"
    assert key[KEY] not in (await page.get("/jobs")).text


async def test_a_session_ends_with_the_sign_out(api: Api, token: str) -> None:
    page, stolen = api.client(), api.client()
    key = await sign_in(page, token)
    stolen.cookies["detent_session"] = page.cookies["detent_session"]
    assert (await stolen.delete(f"{API}/session")).status_code == 204
    assert (await page.get(JOBS, headers=key)).status_code == 200, "without the key no session ends"
    stolen.cookies["detent_session"] = page.cookies["detent_session"]
    assert (await page.delete(f"{API}/session", headers=key)).status_code == 204
    assert not page.cookies
    assert code(await stolen.get(JOBS, headers=key), 401) == "SESSION_ENDED"
    assert (await stolen.get("/jobs")).status_code == 303
    assert (await page.delete(f"{API}/session")).status_code == 204


async def test_a_new_sign_in_ends_the_session_before(api: Api, token: str) -> None:
    page, earlier = api.client(), api.client()
    key = await sign_in(page, token)
    earlier.cookies["detent_session"] = page.cookies["detent_session"]
    newer = await sign_in(page, token)
    assert code(await earlier.get(JOBS, headers=key), 401) == "SESSION_ENDED"
    assert (await page.get(JOBS, headers=newer)).status_code == 200


async def test_a_session_ends_with_its_token(api: Api) -> None:
    created, secret = await api.engine.tokens.create("ann", "operator", Scope("test"))
    page = api.client()
    key = await sign_in(page, secret)
    await api.engine.tokens.revoke(created.id, Scope("test"))
    api.app.state.web.authenticator.clear_cache()
    assert code(await page.get(JOBS, headers=key), 401) == "SESSION_ENDED"
    assert stored(api) == []
    _, short = await api.engine.tokens.create("ben", "operator", Scope("test"), expires_days=0.1 / 86_400)
    key = await sign_in(page, short)
    while (response := await page.get(JOBS, headers=key)).status_code == 200:
        pass
    assert code(response, 401) == "UNAUTHORIZED"


async def test_an_idle_session_expires_and_a_used_one_is_extended(api: Api, clients: Any, token: str) -> None:
    page = clients(session_idle_seconds=0.6, session_seconds=3_600.0)
    key = await sign_in(page, token)
    (before,) = stored(api)
    while stored(api)[0].expires_at == before.expires_at:
        assert (await page.get(JOBS, headers=key)).status_code == 200
    (after,) = stored(api)
    assert after.ends_at == before.ends_at and after.expires_at > before.expires_at
    while api.engine.store.now() < after.expires_at:
        pass
    assert code(await page.get(JOBS, headers=key), 401) == "SESSION_ENDED"
    await api.engine.workers.delete_old_rows()
    assert stored(api) == []


@pytest.mark.parametrize("idle_seconds", [3_600.0, 0.2])
async def test_a_used_session_ends_after_its_longest_time(
    api: Api, clients: Any, token: str, idle_seconds: float
) -> None:
    page = clients(session_idle_seconds=idle_seconds, session_seconds=0.3)
    key = await sign_in(page, token)
    (session,) = stored(api)
    assert session.ends_at == session.created_at + 300_000 and session.expires_at <= session.ends_at
    while (response := await page.get(JOBS, headers=key)).status_code == 200:
        assert stored(api)[0].expires_at <= session.ends_at
    assert code(response, 401) == "SESSION_ENDED" and api.engine.store.now() >= session.ends_at


def stored(api: Api) -> list[Session]:
    """All stored sessions."""
    return [Session(*row) for row in api.place.dump()["sessions"]]


async def test_failed_sign_ins_are_limited_and_audited(api: Api, clients: Any, token: str) -> None:
    page = clients(sign_in_failures_per_minute=3.0)
    for _ in range(3):
        for _ in range(5):
            await sign_in(page, token)
        wrong = await page.post(f"{API}/session", json={"token": token[:-1]})
        assert code(wrong, 401) == "UNAUTHORIZED"
    limited = await page.post(f"{API}/session", json={"token": token[:-1]})
    assert code(limited, 429) == "SIGN_IN_LIMITED" and "retry-after" in limited.headers
    assert code(await page.post(f"{API}/session", json={"token": "other"}), 429) == "SIGN_IN_LIMITED"
    rows = await api.engine.store.read(lambda tx: tx.audit.list_audit(50))
    refusals = [row.entry for row in rows if row.entry.act == "session.refuse"]
    assert [(entry.actor, entry.subject) for entry in refusals] == [("127.0.0.1", "unknown token")] * 3


async def test_one_token_cannot_fill_the_database(api: Api, clients: Any, token: str) -> None:
    page = clients()
    first = await sign_in(page, token)
    cookie = page.cookies["detent_session"]
    last: dict[str, str] = {}
    for _ in range(100):
        page.cookies.clear()
        last = await sign_in(page, token)
    assert len(stored(api)) == 100
    assert (await page.get(JOBS, headers=last)).status_code == 200
    page.cookies.clear()
    page.cookies["detent_session"] = cookie
    assert code(await page.get(JOBS, headers=first), 401) == "SESSION_ENDED"
    rows = await api.engine.store.read(lambda tx: tx.audit.list_audit(200))
    created = [row.entry for row in rows if row.entry.act == "session.create"]
    assert 20 <= len(created) < 40 and {(entry.actor, (entry.data or {})["address"]) for entry in created} == {
        ("ann", "127.0.0.1")
    }


async def test_a_known_token_that_is_refused_is_named_in_the_audit(api: Api) -> None:
    created, secret = await api.engine.tokens.create("ann", "viewer", Scope("test"), tenant="a")
    await api.engine.tokens.revoke(created.id, Scope("test"))
    assert code(await api.client().post(f"{API}/session", json={"token": secret}), 401) == "UNAUTHORIZED"
    (row,) = await api.engine.store.read(lambda tx: tx.audit.list_audit(1, subject=created.id))
    assert (row.entry.act, row.entry.tenant_id) == ("session.refuse", "a")


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8::ffff", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
    ],
)
async def test_which_addresses_are_one_client(api: Api, token: str, first: str, second: str, shared: bool) -> None:
    app = create_app(api.engine, Settings(sign_in_failures_per_minute=1.0, trusted_proxies=("10.0.0.0/8",)))
    transport = httpx.ASGITransport(app, client=("10.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:

        async def attempt(address: str, secret: str) -> int:
            headers = {"X-Forwarded-For": f"203.0.113.9, {address}, 10.0.0.2"}
            return (await client.post(f"{API}/session", json={"token": secret}, headers=headers)).status_code

        assert await attempt(first, "one") == 401
        assert await attempt(second, "two") == (429 if shared else 401)
        assert await attempt("198.51.100.1", "a-long-beginning-1") == 401
        assert await attempt("198.51.100.2", "a-long-beginning-2") == 429, "the same beginning counts together"
        assert await attempt("198.51.100.3", token) == 200


async def test_cookies_behind_a_trusted_proxy(api: Api, clients: Any, token: str) -> None:
    https = {"X-Forwarded-Proto": "https"}
    page = clients("10.0.0.1", trusted_proxies=("10.0.0.0/8",))
    page.base_url = httpx.URL("https://detent.example")
    response = await page.post(f"{API}/session", json={"token": token}, headers=https)
    cookie = response.headers["set-cookie"]
    assert cookie.startswith("__Host-detent_session=") and "; Secure" in cookie and "Path=/;" in cookie
    assert "Domain" not in cookie and response.headers["strict-transport-security"] == "max-age=31536000"
    key = {KEY: response.json()["session_key"]}
    assert (await page.get(JOBS, headers={**key, **https})).status_code == 200
    plain = {"Cookie": f"detent_session={page.cookies['__Host-detent_session']}"}
    page.cookies.clear()
    assert code(await page.get(JOBS, headers={**key, **https, **plain}), 401) == "UNAUTHORIZED"
    mixed = await page.post(f"{API}/session", json={"token": token}, headers={"X-Forwarded-Proto": "https, http"})
    assert "Secure" not in mixed.headers["set-cookie"] and "strict-transport-security" not in mixed.headers
    stranger = clients("192.0.2.1", trusted_proxies=("10.0.0.0/8",))
    response = await stranger.post(f"{API}/session", json={"token": token}, headers=https)
    assert "Secure" not in response.headers["set-cookie"] and "strict-transport-security" not in response.headers


async def test_the_cookie_of_a_mounted_api(api: Api, token: str) -> None:
    from starlette.applications import Starlette

    outer = Starlette()
    outer.mount("/ops", api.app)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(outer), base_url="https://x.example") as client:
        response = await client.post(f"/ops{API}/session", json={"token": token})
        cookie = response.headers["set-cookie"]
        assert cookie.startswith("__Secure-detent_session=") and "Path=/ops;" in cookie and "; Secure" in cookie
        key = {KEY: response.json()["session_key"]}
        assert (await client.get(f"/ops{JOBS}", headers=key)).status_code == 200


async def test_no_secret_is_stored_or_logged(api: Api, token: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    page = api.client()
    key = (await sign_in(page, token))[KEY]
    secrets = [token, key, page.cookies["detent_session"]]
    await page.get(JOBS, headers={KEY: key})
    await page.get(JOBS, headers={KEY: key[:-1] + "x"})
    await page.post(f"{API}/session", json={"token": token + "x"})
    await page.post(f"{API}/session", json={"token": token}, headers={"Idempotency-Key": "once"})
    texts = [repr(api.place.dump()), caplog.text]
    if isinstance(api.place, SqlitePlace):
        files = list(api.place.path.parent.glob("jobs.db*"))
        assert len(files) == 3, "the database, its WAL and its shared memory"
        # Read by another process: Detent refuses a second opening in this one.
        texts.append(subprocess.run(["cat", *files], capture_output=True, check=True).stdout.decode("latin-1"))
    for secret in secrets:
        assert not any(secret in text for text in texts)
        assert not any(secret[:20] in text for text in texts)
