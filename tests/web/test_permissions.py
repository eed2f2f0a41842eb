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
OWNED = {"job_id", "dlq_id", "reference"}
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
    return Scene(api, resources)


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
