"""People whom a reverse proxy has signed in: role and tenant, forged and repeated headers, cross-site requests."""

import re
import tomllib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from detent.core.access import Scope
from detent.core.errors import DetentError
from detent.web.app import create_app
from detent.web.http.settings import FROM_ENVIRONMENT, Settings
from support.stores import Place, open_place
from support.web.api import API, BASE, Api, code

pytestmark = pytest.mark.anyio
PROXY, STRANGER = "10.0.0.1", "192.0.2.1"
GROUPS = {"detent-admins": "admin", "support": "operator", "leads": "reviewer", "staff": "viewer"}
SETTINGS: dict[str, Any] = {
    "trusted_proxies": ("10.0.0.0/8", "2001:db8::1"),
    "proxy_person_header": "X-Forwarded-Email",
    "proxy_role_header": "X-Forwarded-Groups",
    "proxy_roles": GROUPS,
}
ANN = {"X-Forwarded-Email": "ann@x.example", "X-Forwarded-Groups": "support,staff,berlin"}
JOBS = f"{API}/jobs"
Connect = Callable[..., httpx.AsyncClient]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Nothing here depends on the store."""
    return open_place("sqlite-thread", tmp_path)


@pytest.fixture
async def connect(api: Api) -> AsyncIterator[Connect]:
    """A function that makes a client with an address, default headers and settings."""
    opened: list[httpx.AsyncClient] = []

    def new_client(address: str = PROXY, headers: Any = None, **settings: Any) -> httpx.AsyncClient:
        app = create_app(api.engine, Settings(**{**SETTINGS, **settings}))
        transport = httpx.ASGITransport(app, client=(address, 1))
        opened.append(httpx.AsyncClient(transport=transport, base_url=BASE, headers=headers))
        return opened[-1]

    yield new_client
    for client in opened:
        await client.aclose()


async def test_a_person_and_a_role_from_the_headers(connect: Connect) -> None:
    ann = connect(headers=ANN)
    caller = (await ann.get(f"{API}/me")).json()
    assert (caller["name"], caller["role"], caller["tenant_id"]) == ("ann@x.example", "operator", None)
    assert {"support", "berlin", "operator", "viewer"} <= set(caller["roles"]), "groups count in approvals"
    job = (await ann.post(JOBS, json={"job_type": "x"})).json()["job"]
    (event,) = (await ann.get(f"{JOBS}/{job['id']}/events")).json()["items"]
    assert event["actor"] == "ann@x.example"
    assert code(await ann.get(f"{API}/tokens"), 403) == "FORBIDDEN"
    page = (await ann.get("/jobs")).text
    assert 'data-person="ann@x.example"' in page and 'id="sign-out"' not in page
    with_exit = connect(headers=ANN, proxy_sign_out_url="/oauth2/sign_out")
    assert 'href="/oauth2/sign_out"' in (await with_exit.get("/jobs")).text


async def test_without_a_mapping_the_header_names_the_role(connect: Connect) -> None:
    boss = connect(headers={**ANN, "X-Forwarded-Groups": "admin"}, proxy_roles={})
    assert (await boss.get(f"{API}/me")).json()["role"] == "admin"
    name = {"X-Forwarded-Email": "Zoë".encode(), "X-Forwarded-Groups": b"viewer"}
    assert (await connect(headers=name, proxy_roles={}).get(f"{API}/me")).json()["name"] == "Zoë"


@pytest.mark.parametrize("groups", ["", "berlin", "support,leads", "Support", "operator"])
async def test_groups_must_give_one_role(connect: Connect, groups: str) -> None:
    client = connect(headers={**ANN, "X-Forwarded-Groups": groups})
    assert code(await client.get(JOBS), 403) == "PROXY_ROLE_INVALID"


@pytest.mark.parametrize("address", [STRANGER, "127.0.0.1", "2001:db8::2", "unix"])
async def test_headers_from_other_addresses_count_for_nothing(api: Api, connect: Connect, address: str) -> None:
    boss = {**ANN, "X-Forwarded-Groups": "detent-admins"}
    response = await connect(address, boss, open_without_tokens=True).get(JOBS)
    assert code(response, 401) == "UNAUTHORIZED" and "X-Forwarded-Email is ignored" in response.json()["detail"]
    _, secret = await api.engine.tokens.create("vic", "viewer", Scope("test"))
    vic = connect(address, {**boss, "Authorization": f"Bearer {secret}"})
    assert (await vic.get(f"{API}/me")).json()["name"] == "vic"


async def test_a_proxy_is_trusted_by_address_and_network(connect: Connect) -> None:
    for address in ("10.255.0.1", "::ffff:10.0.0.1", "2001:db8::1"):
        assert (await connect(address, ANN).get(JOBS)).status_code == 200


@pytest.mark.parametrize("header", ["X-Forwarded-Email", "X-Forwarded-Groups", "X-Tenant"])
async def test_a_repeated_header_is_refused(connect: Connect, header: str) -> None:
    headers = [*ANN.items(), ("X-Tenant", "a"), (header, "detent-admins")]
    client = connect(headers=headers, proxy_tenant_header="X-Tenant")
    assert code(await client.get(JOBS), 400) == "PROXY_HEADERS_INVALID"


async def test_an_invalid_name_is_refused(connect: Connect) -> None:
    underscored = {"X_Forwarded_Email": "boss", "X-Forwarded-Groups": "staff"}
    assert code(await connect(headers=underscored).get(JOBS), 401) == "UNAUTHORIZED"
    for name in (b"\xff", b"x" * 300):
        client = connect(headers={"X-Forwarded-Email": name, "X-Forwarded-Groups": b"staff"})
        assert (await client.get(JOBS)).status_code in (400, 422)


async def test_the_proxy_decides_who_the_caller_is(api: Api, connect: Connect) -> None:
    _, secret = await api.engine.tokens.create("boss", "admin", Scope("test"))
    ann = connect(headers={**ANN, "Authorization": f"Bearer {secret}"})
    assert (await ann.get(f"{API}/me")).json()["name"] == "ann@x.example"
    program = connect(headers={"Authorization": f"Bearer {secret}"})
    assert (await program.get(f"{API}/me")).json()["name"] == "boss", "without the header, tokens work"
    nobody = connect(headers={"X-Forwarded-Email": ""}, open_without_tokens=True)
    assert code(await nobody.get(JOBS), 401) == "UNAUTHORIZED"


async def test_a_token_does_not_prove_a_person_where_the_proxy_signs_in(api: Api, connect: Connect) -> None:
    """Else an admin could create a second person who confirms what the admin proposed."""
    for role, shared_with in (("operator", None), ("producer", [])):
        _, secret = await api.engine.tokens.create("eve", role, Scope("test"))
        _, secret = await api.engine.tokens.rotate(secret)
        caller = (await connect(headers={"Authorization": f"Bearer {secret}"}).get(f"{API}/me")).json()
        assert caller["shared_with"] == shared_with
    _, secret = await api.engine.tokens.create("eve", "operator", Scope("test"))
    page = connect()
    key = (await page.post(f"{API}/session", json={"token": secret})).json()["session_key"]
    assert (await page.get(f"{API}/me", headers={"X-Session-Key": key})).json()["shared_with"] is None
    assert (await connect(headers=ANN).get(f"{API}/me")).json()["shared_with"] == []


async def test_a_person_of_one_tenant(api: Api, connect: Connect) -> None:
    theirs = (await api.submit(tenant_id="b"))["id"]
    tenant: dict[str, Any] = {"proxy_tenant_header": "X-Tenant"}
    ann = connect(headers={**ANN, "X-Tenant": "a"}, **tenant)
    assert (await ann.get(f"{API}/me")).json()["tenant_id"] == "a"
    assert (await ann.post(JOBS, json={"job_type": "x"})).json()["job"]["tenant_id"] == "a"
    assert (await ann.get(f"{JOBS}/{theirs}")).status_code in (403, 404)
    assert {job["tenant_id"] for job in (await ann.get(JOBS)).json()["items"]} == {"a"}
    assert (await ann.get(f"{API}/queues")).status_code == 403
    for missing in ({}, {"X-Tenant": " "}):
        assert code(await connect(headers={**ANN, **missing}, **tenant).get(JOBS), 403) == "PROXY_TENANT_MISSING"
    everywhere = connect(headers={**ANN, "X-Tenant": "*"}, **tenant)
    assert len((await everywhere.get(JOBS)).json()["items"]) == 2


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({}, True),
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "cross-site", "Origin": BASE}, False),
        ({"Origin": BASE}, True),
        ({"Origin": "http://127.0.0.1:3000"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": "https://detent.example", "X-Forwarded-Host": "detent.example"}, True),
    ],
)
async def test_changes_from_other_origins_are_refused(connect: Connect, headers: dict[str, str], allowed: bool) -> None:
    ann = connect(headers={**ANN, **headers})
    response = await ann.post(JOBS, json={"job_type": "x"})
    assert response.status_code == 201 if allowed else code(response, 403) == "ORIGIN_NOT_ALLOWED"
    assert (await ann.get(JOBS)).status_code == 200


@pytest.mark.parametrize(
    "settings",
    [
        {"trusted_proxies": ()},
        {"proxy_role_header": ""},
        {"trusted_proxies": ("10.0.0.0/33",)},
        {"proxy_roles": {"staff": "owner"}},
    ],
)
def test_incomplete_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(DetentError, match="SETTINGS_INVALID"):
        create_app(None, Settings(**{**SETTINGS, **settings}))  # type: ignore[arg-type]


@pytest.mark.parametrize("page", ["dashboard.md", "dashboard.zh-CN.md"])
async def test_the_example_for_oauth2_proxy(api: Api, monkeypatch: pytest.MonkeyPatch, page: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / "operate" / page).read_text("utf-8")
    (configuration,) = re.findall(r"```toml\n(provider.*?)```", text, re.DOTALL)
    assert tomllib.loads(configuration)["pass_user_headers"] is True
    variables = dict(re.findall(r"^export (DETENT_\w+)=(.*)$", text, re.MULTILINE))
    assert len(variables) == 5
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    documented = {name.lower() for name in re.findall(r"^\| `DETENT_(\w+)`", text, re.MULTILINE)}
    assert documented == set(FROM_ENVIRONMENT)
    transport = httpx.ASGITransport(create_app(api.engine), client=("127.0.0.1", 1))
    headers = {"X-Forwarded-Email": "ann@example.com", "X-Forwarded-Groups": "support,staff"}
    async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=headers) as client:
        assert (await client.get(f"{API}/me")).json()["role"] == "operator"


def test_settings_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {
        "TRUSTED_PROXIES": "10.0.0.0/8, ::1",
        "PROXY_PERSON_HEADER": "X-Forwarded-Email",
        "PROXY_ROLE_HEADER": "X-Forwarded-Groups",
        "PROXY_ROLES": "detent-admins=admin, staff = viewer",
        "SESSION_IDLE_SECONDS": "60",
    }.items():
        monkeypatch.setenv(f"DETENT_{name}", text)
    settings = Settings.from_environment()
    assert settings.trusted_proxies == ("10.0.0.0/8", "::1") and settings.session_idle_seconds == 60.0
    assert settings.proxy_roles == {"detent-admins": "admin", "staff": "viewer"}
    for name, text in (("PROXY_ROLES", "staff"), ("SESSION_SECONDS", "0"), ("SESSION_SECONDS", "soon")):
        with monkeypatch.context() as patch, pytest.raises(DetentError, match=f"SETTINGS_INVALID: DETENT_{name}"):
            patch.setenv(f"DETENT_{name}", text)
            Settings.from_environment()
