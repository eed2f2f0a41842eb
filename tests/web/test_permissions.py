"""Role by route by tenant, cell by cell. The cells come from the routes: a new one is asked like the others."""

import re
from typing import Any

import pytest
from fastapi.routing import APIRoute

from detent.core.access import POWERS, Power, Role
from detent.engine.schedules.request import ScheduleRequest
from detent.engine.schedules.schedules import add
from detent.web.http.route import ApiRoute
from detent.web.pages.assets import PREFIX
from detent.web.pages.pages import PAGES
from web.conftest import API, Api

pytestmark = pytest.mark.anyio
NOBODY = "01900000-0000-7000-8000-000000000000"
BODIES: dict[str, Any] = {
    "/jobs": {"job_type": "mail"},
    "/jobs/bulk": {"jobs": [{"job_type": "mail"}]},
    "/jobs/{job_id}/signal": {"name": "go"},
    "/internal/jobs/{job_id}/transition": {"new_status": "nowhere"},
    "/dlq/requeue": {},
    "/dlq/discard": {"reason": "x"},
    "/bulk/cancel": {},
    "/bulk/requeue": {},
    "/limits": {"queue": "q", "concurrency": 3},
    "/limits/remove": {"queue": "q"},
    "/tenants/{tenant}": {"weight": 2},
    "/tokens": {"name": "new", "role": "viewer"},
    "/session": {"token": "nope"},
    "/worker/claim": {"worker": "w", "job_types": ["none"]},
    "/worker/heartbeat": {"worker": "w", "held": {}},
    "/worker/settle": {"job_id": NOBODY, "token": "t", "outcome": "succeed"},
    "/schedules": {"name": "n2", "job_type": "mail", "every": "1h"},
    "/schedules/preview": {"every": "1h"},
    "/schedules/{reference}": {"every": "2h"},
    "/schedules/{reference}/backfill": {"first": "2026-01-01T00:00:00Z", "last": "2026-01-01T02:00:00Z"},
}
"""What a route with a required body is asked with."""
SHARED = {"/limits", "/limits/remove", "/tenants/{tenant}",
          "/alerts", "/alerts/deliveries", "/workers/recoveries", "/workers/{worker_id}/drain",
          "/workers/{worker_id}/stop",
          "/queues", "/queues/{name}/pause", "/queues/{name}/resume", "/workers", "/worker/claim", "/worker/heartbeat",
          "/worker/settle", "/overview", "/series", "/verification"}  # fmt: skip
"""What belongs to all tenants: refused to every token that is bound to one."""
OWNED = {"job_id", "dlq_id", "reference"}
"""Parts of a path that name something of a tenant."""
STREAMS = {"/events/stream"}


def api_routes(api: Api) -> list[APIRoute]:
    found = [route for route in _all(api.app) if isinstance(route, APIRoute) and route.path.startswith(API)]
    assert len(found) > 40
    return found


def _all(app: Any) -> list[Any]:
    return list(app.router.routes)


async def test_every_route_declares_its_power(api: Api) -> None:
    loose = [route.path for route in _all(api.app) if not isinstance(route, ApiRoute)]
    assert not loose, "routes that bypass the door"
    public = {route.path for route in _all(api.app) if isinstance(route, ApiRoute) and route.needs is None}
    shells = {page.path for page in PAGES} | {"/sign-in", f"{PREFIX}/{{name:path}}"}
    assert public <= {"/healthz", "/readyz", "/openapi.json", "/docs", f"{API}/session"} | shells


def test_a_route_without_a_power_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="declares no power"):
        ApiRoute("/new", lambda: None)


class Scene:
    """Things of two tenants, and the ways to ask for them."""

    def __init__(self, api: Api, things: dict[str, dict[str, str]]) -> None:
        self.api = api
        self.things = things

    async def ask(self, client: Any, route: APIRoute, method: str, owner: str) -> Any:
        path = re.sub(r"\{(\w+)(:\w+)?\}", lambda found: self.things[owner].get(found[1], "x"), route.path)
        plain = re.sub(r":\w+\}", "}", route.path.removeprefix(API))
        body = BODIES.get(plain) if method in ("POST", "PATCH", "PUT") else None
        return await client.request(method, path, json=body)


@pytest.fixture
async def scene(api: Api) -> Scene:
    boss = await api.person("boss", "admin")
    things: dict[str, dict[str, str]] = {}
    for tenant in ("own", "foreign"):
        job = await api.submit(boss, tenant_id=tenant, contract="gate-b2")
        dead = await api.submit(boss, tenant_id=tenant, contract="gate-b2")
        dead_letter = (await boss.post(f"{API}/internal/jobs/{dead['id']}/run?force_fail=true")).json()["dlq_id"]
        ask = ScheduleRequest(f"nightly-{tenant}", "mail", every="1h", tenant_id=tenant)
        plan = await add(api.engine, ask, actor="test")
        things[tenant] = {
            "job_id": job["id"],
            "dlq_id": dead_letter,
            "reference": plan.id,
            "token_id": NOBODY,
            "name": "q",
        }
        things[tenant]["contract"] = "standard"
    return Scene(api, things)


async def test_role_by_route(scene: Scene) -> None:
    """A role without the power is refused with 403; a role with it is never refused for its role."""
    api = scene.api
    people = {role: await api.person(f"one-{role}", role) for role in Role}
    cells = 0
    for route in api_routes(api):
        assert isinstance(route, ApiRoute)
        plain = route.path.removeprefix(API)
        if route.needs is None or plain in STREAMS:
            continue
        for method in route.methods - {"HEAD"}:
            nobody = await scene.ask(api.client(), route, method, "own")
            assert nobody.status_code == 401, (method, plain)
            for role, client in people.items():
                got = await scene.ask(client, route, method, "own")
                if route.needs in POWERS[role]:
                    assert not (got.status_code == 403 and got.json()["code"] == "FORBIDDEN"), (role, method, plain)
                    assert got.status_code < 500, got.text
                else:
                    assert got.status_code == 403 and got.json()["code"] == "FORBIDDEN", (role, method, plain, got.text)
                cells += 1
    assert cells > 150


async def test_tenant_by_route(scene: Scene) -> None:
    """A bound admin reaches its own tenant's things, never another's, and nothing that all share."""
    api = scene.api
    bound = await api.person("bound", "admin", tenant="own")
    before = snapshot(api)
    for route in api_routes(api):
        assert isinstance(route, ApiRoute)
        plain = re.sub(r":\w+\}", "}", route.path.removeprefix(API))
        if route.needs is None or plain in STREAMS:
            continue
        for method in route.methods - {"HEAD"}:
            if OWNED & set(re.findall(r"\{(\w+)", route.path)):
                got = await scene.ask(bound, route, method, "foreign")
                assert got.status_code == 403, (method, plain, got.text)
                assert got.json()["code"] == "TENANT_SCOPE_VIOLATION", (method, plain, got.text)
            elif plain in SHARED:
                got = await scene.ask(bound, route, method, "own")
                assert got.status_code == 403 and got.json()["code"] == "TENANT_SCOPE_VIOLATION", (method, plain)
    assert snapshot(api) == before, "a refusal left something behind"
    for route in api_routes(api):
        plain = re.sub(r":\w+\}", "}", route.path.removeprefix(API))
        if "GET" in route.methods and plain not in SHARED | STREAMS and isinstance(route, ApiRoute) and route.needs:
            got = await scene.ask(bound, route, "GET", "own")
            assert got.status_code == 200 or plain.startswith("/contracts/"), (plain, got.text)
            assert '"foreign"' not in got.text and scene.things["foreign"]["job_id"] not in got.text, plain


async def test_a_bound_token_makes_and_lists_its_own_only(scene: Scene) -> None:
    bound = await scene.api.person("bound", "operator", tenant="own")
    made = await scene.api.submit(bound)
    assert made["tenant_id"] == "own"
    theirs = {"job_type": "x", "tenant_id": "foreign"}
    for path, body in (
        ("/jobs", theirs),
        ("/jobs/bulk", {"jobs": [{"job_type": "x"}, theirs]}),
        ("/schedules", {"name": "x", "every": "1h", **theirs}),
    ):
        refused = await bound.post(f"{API}{path}", json=body)
        assert refused.status_code == 403 and refused.json()["code"] == "TENANT_SCOPE_VIOLATION"
    for path in ("/jobs", "/dlq/items", "/schedules"):
        assert (await bound.get(f"{API}{path}", params={"tenant": "foreign"})).status_code == 403
    listed = (await bound.get(f"{API}/jobs")).json()["jobs"]
    assert {job["tenant_id"] for job in listed} == {"own"}
    assert (await bound.post(f"{API}/queues/own/pause?kind=tenant")).status_code == 200
    assert (await bound.post(f"{API}/queues/foreign/pause?kind=tenant")).status_code == 403


def snapshot(api: Api) -> Any:
    """All that is stored, but for notes of refused moves, which a refusal is meant to leave."""
    return {name: rows for name, rows in api.place.dump().items() if name not in ("notes", "sqlite_sequence")}


def test_the_roles_are_what_the_page_says() -> None:
    assert POWERS[Role.VIEWER] == {Power.READ} and POWERS[Role.ADMIN] == set(Power)
    assert Power.REVIEW not in POWERS[Role.OPERATOR] and Power.OPERATE not in POWERS[Role.REVIEWER]


async def test_whoever_only_reads_changes_nothing(api: Api) -> None:
    """Typed in again, so that a route whose declaration is wrong is found: what changes, and what needs a reviewer."""
    harmless = {"/schedules/preview"}
    for route in api_routes(api):
        assert isinstance(route, ApiRoute)
        plain = route.path.removeprefix(API)
        if route.methods - {"GET", "HEAD"} and route.needs is not None:
            assert route.needs is not Power.READ or plain in harmless, plain
        if plain.endswith(("/approve", "/reject")):
            assert route.needs is Power.REVIEW, plain
        if plain.startswith(("/tokens", "/audit")):
            assert route.needs is Power.ADMIN, plain
        if plain.endswith("/discard"):
            assert route.needs is Power.DISCARD, plain
