"""Every combination of role, route and tenant. The routes are read from the application, so new ones are included."""

import re
from typing import Any

import pytest
from fastapi.routing import APIRoute

from detent.core.access import POWERS, Power, Role, Scope
from detent.engine.schedules.request import ScheduleRequest
from detent.web.http.route import ApiRoute
from detent.web.pages.pages import PAGES
from detent.web.pages.shell import PREFIX
from support.web.api import API, Api

pytestmark = pytest.mark.anyio
UNKNOWN_ID = "01900000-0000-7000-8000-000000000000"
BODIES: dict[str, Any] = {
    "/jobs": {"job_type": "mail"},
    "/jobs/bulk": {"jobs": [{"job_type": "mail"}]},
    "/tasks": {"task_id": "new"},
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
    "/worker/settle": {"job_id": UNKNOWN_ID, "token": "t", "outcome": "succeed"},
    "/schedules": {"name": "n2", "job_type": "mail", "every": "1h"},
    "/schedules/preview": {"every": "1h"},
    "/schedules/{reference}": {"every": "2h"},
    "/schedules/{reference}/backfill": {"first": "2026-01-01T00:00:00Z", "last": "2026-01-01T02:00:00Z"},
}
"""Request bodies for the routes that need one."""
SHARED = {"/limits", "/limits/remove", "/tenants/{tenant}",
          "/alerts", "/alerts/deliveries", "/workers/recoveries", "/workers/{worker_id}/drain",
          "/workers/{worker_id}/stop",
          "/queues", "/queues/{name}/pause", "/queues/{name}/resume", "/workers", "/worker/claim", "/worker/heartbeat",
          "/worker/settle", "/overview", "/series", "/verification"}  # fmt: skip
"""Routes of resources that tenants share: refused to tokens that are bound to a tenant."""
OWNED = {"job_id", "dlq_id", "reference", "task_id", "token_id"}
"""Path parameters that name a resource of one tenant."""
STREAMS = {"/events/stream"}


def api_routes(api: Api) -> list[APIRoute]:
    routes = [route for route in _all(api.app) if isinstance(route, APIRoute) and route.path.startswith(API)]
    assert len(routes) > 40
    return routes


def _all(app: Any) -> list[Any]:
    return list(app.router.routes)


async def test_every_route_declares_its_power(api: Api) -> None:
    unguarded = [route.path for route in _all(api.app) if not isinstance(route, ApiRoute)]
    assert not unguarded, "routes without authentication and limits"
    public = {route.path for route in _all(api.app) if isinstance(route, ApiRoute) and route.needs is None}
    shells = {page.path for page in PAGES} | {"/sign-in", f"{PREFIX}/{{name:path}}"}
    assert public <= {"/healthz", "/readyz", "/openapi.json", "/docs", f"{API}/session"} | shells


def test_a_route_without_a_power_is_refused() -> None:
    with pytest.raises(TypeError, match="declares no power"):
        ApiRoute("/new", lambda: None)


class Scene:
    """Resources of two tenants, and a way to request them."""

    def __init__(self, api: Api, resources: dict[str, dict[str, str]]) -> None:
        self.api = api
        self.resources = resources

    async def request(self, client: Any, route: APIRoute, method: str, owner: str) -> Any:
        path = re.sub(r"\{(\w+)(:\w+)?\}", lambda match: self.resources[owner].get(match[1], "x"), route.path)
        plain = re.sub(r":\w+\}", "}", route.path.removeprefix(API))
        body = BODIES.get(plain) if method in ("POST", "PATCH", "PUT") else None
        return await client.request(method, path, json=body)


@pytest.fixture
async def scene(api: Api) -> Scene:
    boss = await api.person("boss", "admin")
    resources: dict[str, dict[str, str]] = {}
    for tenant in ("own", "foreign"):
        job = await api.submit(boss, tenant_id=tenant, contract="gate-b2")
        dead = await api.submit(boss, tenant_id=tenant, contract="gate-b2")
        dead_letter = (await boss.post(f"{API}/internal/jobs/{dead['id']}/run?force_fail=true")).json()["dlq_id"]
        definition = ScheduleRequest(f"nightly-{tenant}", "mail", every="1h", tenant_id=tenant)
        schedule = await api.engine.schedules.add(definition, Scope("test"))
        task = await api.submit(boss, tenant_id=tenant, contract="men", task_id=f"task-{tenant}")
        resources[tenant] = {
            "task_id": task["task_id"],
            "job_id": job["id"],
            "dlq_id": dead_letter,
            "reference": schedule.id,
            "token_id": UNKNOWN_ID,
            "name": "q",
        }
        resources[tenant]["contract"] = "standard"
    resources["unknown"] = dict.fromkeys(resources["own"], UNKNOWN_ID)
    _, secret = await api.engine.tokens.create("theirs", "viewer", Scope("test"), tenant="foreign")
    resources["foreign"]["token_id"] = (await api.engine.tokens.find(secret)).id
    return Scene(api, resources)


async def test_role_by_route(scene: Scene) -> None:
    """403 FORBIDDEN for exactly the roles that do not have the power of the route."""
    api = scene.api
    people = {role: await api.person(f"one-{role}", role) for role in Role}
    cells = 0
    for route in api_routes(api):
        assert isinstance(route, ApiRoute)
        plain = route.path.removeprefix(API)
        if route.needs is None or plain in STREAMS:
            continue
        for method in route.methods - {"HEAD"}:
            anonymous = await scene.request(api.client(), route, method, "own")
            assert anonymous.status_code == 401, (method, plain)
            for role, client in people.items():
                response = await scene.request(client, route, method, "own")
                if route.needs in POWERS[role]:
                    assert not (response.status_code == 403 and response.json()["code"] == "FORBIDDEN"), (
                        role,
                        method,
                        plain,
                    )
                    assert response.status_code < 500, response.text
                else:
                    assert response.status_code == 403 and response.json()["code"] == "FORBIDDEN", (
                        role,
                        method,
                        plain,
                        response.text,
                    )
                cells += 1
    assert cells > 150


async def test_tenant_by_route(scene: Scene) -> None:
    """A token with a tenant reaches the resources of that tenant, none of another, and none that tenants share."""
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
                foreign, unknown = [
                    await scene.request(bound, route, method, owner) for owner in ("foreign", "unknown")
                ]
                assert foreign.status_code == 404, (method, plain, foreign.text)
                assert _as_unknown(scene, foreign) == _as_unknown(scene, unknown), (method, plain)
            elif plain in SHARED:
                response = await scene.request(bound, route, method, "own")
                assert response.status_code == 403 and response.json()["code"] == "TENANT_SCOPE_VIOLATION", (
                    method,
                    plain,
                )
    assert snapshot(api) == before, "a refused request changed the database"
    for route in api_routes(api):
        plain = re.sub(r":\w+\}", "}", route.path.removeprefix(API))
        if "GET" in route.methods and plain not in SHARED | STREAMS and isinstance(route, ApiRoute) and route.needs:
            response = await scene.request(bound, route, "GET", "own")
            assert response.status_code == 200 or plain.startswith("/contracts/"), (plain, response.text)
            assert '"foreign"' not in response.text and scene.resources["foreign"]["job_id"] not in response.text, plain


async def test_a_token_with_a_tenant_creates_and_lists_only_there(scene: Scene) -> None:
    bound = await scene.api.person("bound", "operator", tenant="own")
    created = await scene.api.submit(bound)
    assert created["tenant_id"] == "own"
    foreign_job = {"job_type": "x", "tenant_id": "foreign"}
    for path, body in (
        ("/jobs", foreign_job),
        ("/jobs/bulk", {"jobs": [{"job_type": "x"}, foreign_job]}),
        ("/schedules", {"name": "x", "every": "1h", **foreign_job}),
    ):
        refused = await bound.post(f"{API}{path}", json=body)
        assert refused.status_code == 403 and refused.json()["code"] == "TENANT_SCOPE_VIOLATION"
    for path in ("/jobs", "/dlq/items", "/schedules"):
        assert (await bound.get(f"{API}{path}", params={"tenant": "foreign"})).status_code == 403
    listed = (await bound.get(f"{API}/jobs")).json()["jobs"]
    assert {job["tenant_id"] for job in listed} == {"own"}
    assert (await bound.post(f"{API}/queues/own/pause?kind=tenant")).status_code == 200
    assert (await bound.post(f"{API}/queues/foreign/pause?kind=tenant")).status_code == 403


def _as_unknown(scene: Scene, response: Any) -> str:
    """The response without its trace id, and with the id of an unknown resource in place of the one it is about."""
    text = re.sub(r'"trace_id":"req-[^"]*"', "", response.text)
    for name, value in scene.resources["foreign"].items():
        text = text.replace(value, scene.resources["unknown"][name])
    return f"{response.status_code} {text}"


def snapshot(api: Api) -> Any:
    """All stored rows except notes: a refused transition writes one."""
    return {name: rows for name, rows in api.place.dump().items() if name not in ("notes", "sqlite_sequence")}


def test_the_powers_of_the_roles() -> None:
    assert POWERS[Role.VIEWER] == {Power.READ} and POWERS[Role.ADMIN] == set(Power)
    assert Power.REVIEW not in POWERS[Role.OPERATOR] and Power.OPERATE not in POWERS[Role.REVIEWER]


async def test_the_powers_of_the_routes(api: Api) -> None:
    """Repeated here to find wrong declarations: changes need more than READ, decisions REVIEW, tokens ADMIN."""
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
