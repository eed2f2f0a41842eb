"""The powers of roles and routes. `test_access_matrix.py` calls every route with every role."""

from typing import Any

import pytest
from fastapi.routing import APIRoute

from detent.core.access import POWERS, Power, Role
from detent.web.http.route import ApiRoute
from detent.web.pages.pages import PAGES
from detent.web.pages.shell import PREFIX
from support.web.api import API, Api, code

pytestmark = pytest.mark.anyio


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


async def test_a_token_with_a_tenant_creates_and_lists_only_there(api: Api) -> None:
    await api.submit(tenant_id="foreign")
    bound = await api.person("bound", "operator", tenant="own")
    created = await api.submit(bound)
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
    listed = (await bound.get(f"{API}/jobs")).json()["items"]
    assert {job["tenant_id"] for job in listed} == {"own"}
    assert (await bound.post(f"{API}/queues/own/pause?kind=tenant")).status_code == 200
    assert (await bound.post(f"{API}/queues/foreign/pause?kind=tenant")).status_code == 403
    for act in ("queues/own/pause", "queues/own/pause?kind=job_type", "queues/own/resume"):
        assert code(await bound.post(f"{API}/{act}"), 403) == "TENANT_SCOPE_VIOLATION"


def test_the_powers_of_the_roles() -> None:
    assert POWERS[Role.VIEWER] == {Power.SELF, Power.READ} and POWERS[Role.ADMIN] == set(Power)
    assert POWERS[Role.WORKER] == {Power.SELF, Power.WORK} and POWERS[Role.PRODUCER] == {Power.SELF, Power.SUBMIT}
    assert Power.REVIEW not in POWERS[Role.OPERATOR] and Power.OPERATE not in POWERS[Role.REVIEWER]


async def test_programs_read_neither_events_nor_pages(api: Api) -> None:
    """These routes are not in the OpenAPI document, which the matrix of roles and routes is generated from."""
    for role in ("worker", "producer"):
        program = await api.person(role, role)
        assert code(await program.get(f"{API}/events/stream"), 403) == "FORBIDDEN"
        for page in PAGES:
            assert (await program.get(page.path)).status_code == 403
    viewer = await api.person("vic", "viewer")
    refused = {page.name for page in PAGES if (await viewer.get(page.path)).status_code == 403}
    assert refused == {"audit", "tokens", "webhooks", "enqueue"}


async def test_the_powers_of_the_routes(api: Api) -> None:
    """Repeated here to find wrong declarations: changes need more than READ, decisions REVIEW, tokens ADMIN."""
    harmless = {"/schedules/preview", "/views/{page}/{name}"}  # the second changes what only the caller sees
    for route in api_routes(api):
        assert isinstance(route, ApiRoute)
        plain = route.path.removeprefix(API)
        if route.methods - {"GET", "HEAD"} and route.needs is not None:
            assert route.needs is not Power.READ or plain in harmless, plain
        if plain.endswith(("/approve", "/reject")):
            assert route.needs is Power.REVIEW, plain
        if plain.startswith(("/tokens", "/audit")) and plain != "/tokens/rotate":
            assert route.needs is Power.ADMIN, plain
        if plain.endswith("/discard"):
            assert route.needs is Power.DISCARD, plain
