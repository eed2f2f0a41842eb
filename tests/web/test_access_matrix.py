"""Every role, every limit of a token, every operation of the OpenAPI document, on what is within the limit and outside.

What each call must answer is in the table ROWS, which is independent of what the routes declare.
"""

import re
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from detent.core.access import Role, Scope
from detent.core.contract.builtin import CONTRACTS
from detent.core.errors import InvalidInput
from detent.engine import Engine
from detent.engine.metrics.webhooks import WebhookRequest
from detent.engine.schedules.request import ScheduleRequest
from detent.system.clock import SystemClock
from detent.web.app import create_app
from detent.web.http.settings import Settings
from support.stores import open_place
from support.web.api import API, Api, code

pytestmark = pytest.mark.anyio

MAY: dict[str, str] = {
    "anyone": "worker producer viewer operator reviewer admin",
    "view": "viewer operator reviewer admin",
    "submit": "producer operator admin",
    "work": "worker operator admin",
    "operate": "operator admin",
    "review": "reviewer admin",
    "discard": "operator reviewer admin",
    "admin": "admin",
    "public": "",
}
"""Who may call a route -> the roles."""
LIMITS: dict[str, dict[str, Any]] = {
    "all": {},
    "tenant": {"tenant": "own"},
    "queue": {"queues": ["own-queue"]},
    "type": {"job_types": ["own-type"]},
}
"""What a token may be limited to -> the options that create it."""
IMPOSSIBLE = {("worker", "tenant"), ("admin", "queue"), ("admin", "type")}
"""Tokens that cannot be created."""
ROWS = """
POST   /jobs                              submit   new     201
GET    /jobs                              view     list    200
GET    /jobs/export                       view     list    200
GET    /search                            view     listed  200
GET    /views                             view     free    200
PUT    /views/{page}/{name}               view     free    200
DELETE /views/{page}/{name}               view     free    200 404
POST   /jobs/bulk                         submit   new     201
GET    /jobs/{job_id}                     view     id      200
GET    /jobs/{job_id}/events              view     id      200
GET    /jobs/{job_id}/why                 view     id      200
GET    /jobs/{job_id}/verify              view     id      200
GET    /jobs/{job_id}/detail              view     id      200
GET    /jobs/{job_id}/steps               view     id      200
GET    /jobs/{job_id}/children            view     id      200
GET    /jobs/{job_id}/logs                view     id      200
POST   /jobs/{job_id}/cancel              operate  id      200 409
POST   /jobs/{job_id}/abort               operate  id      200 409
POST   /jobs/{job_id}/approve             review   id      409
POST   /jobs/{job_id}/reject              review   id      409
POST   /jobs/{job_id}/reopen              operate  id      200 409
POST   /jobs/{job_id}/signal              operate  id      200 409 422
POST   /jobs/{job_id}/requeue             operate  id      201 409
POST   /internal/jobs/{job_id}/run        operate  id      200 409
POST   /internal/jobs/{job_id}/transition operate  id      200 409
GET    /approvals                         view     listed  200
POST   /tasks                             submit   new     201
GET    /tasks/{task_id}                   view     id      200
GET    /tasks/{task_id}/events            view     id      200
POST   /tasks/{task_id}/cancel            operate  id      200 409
POST   /worker/claim                      work     claim   200
POST   /worker/heartbeat                  work     hold    200
POST   /worker/settle                     work     hold    409
POST   /worker/deregister                 work     hold    200
POST   /worker/steps                      work     hold    409
POST   /worker/steps/record               work     hold    409
POST   /worker/signals                    work     hold    409
POST   /worker/children                   work     child   409
POST   /worker/progress                   work     hold    409
POST   /worker/logs                       work     hold    409
GET    /dlq/items                         view     list    200
GET    /dlq/groups                        view     list    200
GET    /dlq/items/{dlq_id}                view     id      200
POST   /dlq/items/{dlq_id}/requeue        operate  id      201 409
POST   /dlq/items/{dlq_id}/discard        discard  id      200 202 400 409
POST   /dlq/requeue                       operate  list    200
POST   /dlq/discard                       discard  list    200
POST   /bulk/cancel                       operate  list    200
POST   /bulk/requeue                      operate  list    200
GET    /schedules                         view     list    200
POST   /schedules                         operate  new     201
POST   /schedules/preview                 view     free    200
GET    /schedules/{reference}             view     id      200
PATCH  /schedules/{reference}             operate  id      200
DELETE /schedules/{reference}             operate  id      200
POST   /schedules/{reference}/pause       operate  id      200
POST   /schedules/{reference}/resume      operate  id      200
POST   /schedules/{reference}/run         operate  id      201
GET    /schedules/{reference}/preview     view     id      200
POST   /schedules/{reference}/backfill    operate  id      200
GET    /queues                            view     shared  200
GET    /queues/{name}                     view     shared  200 404
GET    /job-types                         view     shared  200
GET    /job-types/{name}                  view     shared  200 404
GET    /declarations                      submit   free    200
POST   /queues/{name}/pause               operate  shared  200
POST   /queues/{name}/resume              operate  shared  200 404
GET    /limits                            view     shared  200
PUT    /limits                            operate  shared  200
POST   /limits/remove                     operate  shared  200 404
GET    /tenants                           view     tenant  200
PUT    /tenants/{tenant}                  admin    shared  200
DELETE /tenants/{tenant}                  admin    shared  200 404
GET    /stats                             view     tenant  200
GET    /overview                          view     tenant  200
GET    /attention                         view     free    200
GET    /series                            view     tenant  200
GET    /series/groups                     view     shared  200
GET    /verification                      view     shared  200
POST   /verification                      operate  shared  202
GET    /workers                           view     shared  200
GET    /workers/recoveries                view     shared  200
GET    /workers/{worker_id}               view     shared  404
POST   /workers/{worker_id}/drain         operate  shared  404
POST   /workers/{worker_id}/stop          operate  shared  404
GET    /alerts                            view     shared  200
GET    /alerts/deliveries                 view     shared  200
GET    /alerts/rules                      view     shared  200
POST   /alerts/acknowledge                operate  shared  404
GET    /alerts/silences                   view     shared  200
POST   /alerts/silences                   operate  shared  201
DELETE /alerts/silences/{silence_id}      operate  shared  200
GET    /webhooks                          operate  hooks   200
POST   /webhooks                          admin    hooks   201
GET    /webhooks/{webhook_id}             operate  hook    200
PATCH  /webhooks/{webhook_id}             admin    hook    200
DELETE /webhooks/{webhook_id}             admin    hook    200
POST   /webhooks/{webhook_id}/pause       operate  hook    200
POST   /webhooks/{webhook_id}/resume      operate  hook    200
POST   /webhooks/{webhook_id}/replay      operate  hook    200
GET    /webhooks/{webhook_id}/deliveries  operate  hook    200
GET    /contracts                         view     free    200
GET    /contracts/{name}                  view     free    200
GET    /tokens                            admin    listed  200
POST   /tokens                            admin    new     201
POST   /tokens/rotate                     anyone   free    401
POST   /tokens/{token_id}/revoke          admin    id      200
GET    /audit                             admin    listed  200
GET    /me                                anyone   free    200
POST   /session                           public   free    401 429
DELETE /session                           public   free    204
GET    /metrics                           view     shared  200
GET    /healthz                           public   free    200
GET    /readyz                            public   free    200
GET    /openapi.json                      public   free    200
GET    /docs                              public   free    200
"""
"""Operation, who may call it, how limits apply, and its answers to callers who may.

id: the path names a thing of one tenant, queue and type; outside of the limit it does not exist.
new: the body names tenant, queue and type; outside of the limit it is refused.
list: has filters; another tenant is refused, another queue or type matches nothing. listed: without filters.
claim, hold, child: for workers, which serve all tenants; child: the body names the type of a new job.
shared: for tokens without limits. tenant: also for one tenant.
hook, hooks: one webhook, or all; for tokens without limits, or of its tenant. free: the same for everyone.
"""
REFUSED = {"tenant": "TENANT_SCOPE_VIOLATION", "queue": "TOKEN_SCOPE_VIOLATION", "type": "TOKEN_SCOPE_VIOLATION"}
UNKNOWN_ID = "01900000-0000-7000-8000-000000000000"
numbers = count(1)


class Row(NamedTuple):
    method: str
    path: str
    may: str
    kind: str
    answers: set[int]


class Thing(NamedTuple):
    """Things of one tenant, queue and type: name in the path -> id."""

    owner: str
    ids: dict[str, str]

    @property
    def options(self) -> dict[str, Any]:
        return {"tenant_id": self.owner, "queue": f"{self.owner}-queue", "job_type": f"{self.owner}-type"}


def read_rows() -> dict[tuple[str, str], Row]:
    rows = {}
    for line in ROWS.split("\n")[1:-1]:
        method, path, may, kind, *answers = line.split()
        at_root = path in ("/metrics", "/healthz", "/readyz", "/openapi.json", "/docs")
        full = path if at_root else API + path
        rows[method, full] = Row(method, full, may, kind, {int(answer) for answer in answers})
    return rows


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    place = open_place("sqlite-inline", tmp_path)
    engine = Engine(place.store(SystemClock()), CONTRACTS)
    await engine.open()
    api = Api(engine, create_app(engine, Settings(internal=True)), place)
    yield api
    for client in api.clients:
        await client.aclose()
    await api.app.state.web.close()
    await engine.close()
    place.close()


async def make_things(api: Api, boss: httpx.AsyncClient, owner: str) -> Thing:
    thing = Thing(owner, {})
    job, dead = [await api.submit(boss, **thing.options, contract="gate-b2") for _ in range(2)]
    failed = await boss.post(f"{API}/internal/jobs/{dead['id']}/run?force_fail=true")
    task = await api.submit(boss, **thing.options, contract="men", task_id=f"task-{owner}")
    token, _ = await api.engine.tokens.create(f"friend of {owner}", "viewer", Scope("test"), tenant=owner)
    names = {
        "worker_id": "w",
        "page": "jobs",
        "tenant": owner,
        "name": f"{owner}-queue",
        "reference": await add_schedule(api, thing),
    }
    request = WebhookRequest(f"hook of {owner}", "https://example.com/", tenant_id=owner)
    webhook, _ = await api.engine.webhooks.add(request, Scope("test"))
    thing.ids.update(webhook_id=webhook.id, silence_id="nothing")
    thing.ids.update(names, job_id=job["id"], task_id=task["task_id"], dlq_id=failed.json()["dlq_id"])
    thing.ids["token_id"] = token.id
    return thing


async def add_schedule(api: Api, thing: Thing) -> str:
    request = ScheduleRequest(f"nightly-{next(numbers)}", every="1h", **thing.options)
    return (await api.engine.schedules.add(request, Scope("test"))).id


def body_of(row: Row, limit: str, thing: Thing) -> Any:
    """The body of a request about this thing."""
    job, number = {**thing.options, "payload": {}}, next(numbers)
    names_it = limit != "tenant" or thing.owner == "own"
    held = {"job_id": thing.ids["job_id"], "token": "t"}
    filters = {} if row.kind != "list" or (names_it and limit == "all") else filter_of(limit, thing)
    bodies = {
        "/jobs": job,
        "/jobs/bulk": {"jobs": [job]},
        "/tasks": {**job, "task_id": f"t{number}"},
        "/jobs/{job_id}/signal": {"name": "go"},
        "/internal/jobs/{job_id}/transition": {"new_status": "nowhere"},
        "/dlq/items/{dlq_id}/discard": {"reason": "x"},
        "/dlq/discard": {"reason": "x", **filters},
        "/dlq/requeue": filters,
        "/bulk/cancel": filters,
        "/bulk/requeue": filters,
        "/limits": {"queue": "q", "concurrency": 3},
        "/limits/remove": {"queue": "q"},
        "/tenants/{tenant}": {"weight": 2},
        "/tokens": {"name": f"new {number}", "role": "viewer", "tenant": thing.owner},
        "/tokens/rotate": {"token": "nope"},
        "/views/{page}/{name}": {"query": "q=queue:a"},
        "/session": {"token": "nope"},
        "/worker/claim": {"worker": "w", "queues": [thing.options["queue"]], "job_types": [thing.options["job_type"]]},
        "/worker/heartbeat": {"worker": "w", "held": {thing.ids["job_id"]: "t"}},
        "/worker/settle": {"job_id": thing.ids["job_id"], "token": "t", "outcome": "succeed"},
        "/worker/deregister": {"worker": "w"},
        "/worker/steps": held,
        "/worker/steps/record": {**held, "name": "s"},
        "/worker/signals": held,
        "/worker/children": {**held, "children": [{"name": "c", **thing.options}]},
        "/worker/progress": {**held, "share": 0.5},
        "/worker/logs": {**held, "lines": [{"message": "m"}]},
        "/alerts/acknowledge": {"rule": "r", "subject": "s"},
        "/alerts/silences": {"rule": "no_worker", "seconds": 60},
        "/webhooks": {"name": f"n{number}", "url": "https://example.com/", "tenant_id": thing.owner},
        "/webhooks/{webhook_id}": {"url": "https://example.com/changed"},
        "/webhooks/{webhook_id}/replay": {"after": "0"},
        "/schedules": {**thing.options, "name": f"n{number}", "every": "1h"},
        "/schedules/preview": {"every": "1h"},
        "/schedules/{reference}": {"every": "2h"},
        "/schedules/{reference}/backfill": {"first": "2026-01-01T00:00:00Z", "last": "2026-01-01T02:00:00Z"},
    }
    return bodies.get(row.path.removeprefix(API)) if row.method in ("POST", "PUT", "PATCH") else None


def filter_of(limit: str, thing: Thing) -> dict[str, str]:
    name = {"tenant": "tenant_id", "queue": "queue", "type": "job_type"}.get(limit)
    return {"tenant" if limit == "tenant" else name: thing.options[name]} if name else {}


async def call(api: Api, client: httpx.AsyncClient, row: Row, limit: str, thing: Thing) -> httpx.Response:
    ids = {**thing.ids, "name": "standard"} if "/contracts/" in row.path else thing.ids
    if row.method == "DELETE" and "{reference}" in row.path:
        ids = {**ids, "reference": await add_schedule(api, thing)}
    if row.method == "DELETE" and "{webhook_id}" in row.path:
        request = WebhookRequest(f"hook {next(numbers)}", "https://example.com/", tenant_id=thing.owner)
        webhook, _ = await api.engine.webhooks.add(request, Scope("test"))
        ids = {**ids, "webhook_id": webhook.id}
    path = re.sub(r"\{(\w+)\}", lambda match: ids[match[1]], row.path)
    params = filter_of(limit, thing) if row.kind == "list" and row.method == "GET" else {}
    params |= {"q": thing.ids["job_id"]} if path.endswith("/search") else {}
    return await client.request(row.method, path, json=body_of(row, limit, thing), params=params)


def expected(row: Row, role: str, limit: str, thing: Thing) -> set[tuple[int, str]]:
    """The answers (status, end of the code) that this call may have."""
    if row.may != "public" and role not in MAY[row.may].split():
        return {(403, "FORBIDDEN")}
    fine, outside = {(answer, "") for answer in row.answers}, thing.owner != "own"
    if limit == "all" or row.kind == "free":
        return fine
    refused = {(403, REFUSED[limit])}
    if row.kind in ("claim", "hold", "child") and limit == "tenant":
        return refused
    if row.kind in ("hook", "hooks") and limit != "tenant":
        return refused
    if row.kind == "hook" and outside:
        return {(404, "NOT_FOUND")}
    if row.kind == "hooks" and outside and row.method == "POST":
        return refused
    if row.kind == "shared" or (row.kind == "tenant" and limit != "tenant"):
        return refused
    if row.kind == "id" and outside:
        return {(404, "NOT_FOUND")}
    if row.kind == "child" and outside and limit == "type":
        return refused
    if outside and (row.kind in ("new", "claim") or (row.kind == "list" and limit == "tenant")):
        return refused
    return fine


async def test_every_operation_has_a_row(api: Api) -> None:
    document = (await api.client().get("/openapi.json")).json()
    operations = {
        (method.upper(), path): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    del operations["GET", "/api/v1/events/stream"]  # it has no end; test_stream.py and test_permissions.py call it
    assert operations.keys() == read_rows().keys(), "a route without a row, or a row without a route"
    for key, row in read_rows().items():
        least = operations[key]["x-detent-roles"]
        assert set(least) <= set(MAY[row.may].split()) and bool(least) == (row.may != "public"), key


async def run_matrix(api: Api) -> tuple[int, list[str]]:
    """(number of calls, the unexpected answers)."""
    boss = await api.person("boss", "admin")
    things = [await make_things(api, boss, owner) for owner in ("own", "foreign")]
    foreign_ids = [things[1].ids[name] for name in ("job_id", "dlq_id", "reference", "token_id")]
    unexpected, calls = [], 0
    for role in map(str, Role):
        for limit, options in LIMITS.items():
            if (role, limit) in IMPOSSIBLE:
                with pytest.raises(InvalidInput, match=r"limit its token|limit it by tenant"):
                    await api.engine.tokens.create("x", role, Scope("test"), **options)
                continue
            client = await api.person(f"{role} {limit}", role, **options)
            for row in read_rows().values():
                for thing in things if row.may != "public" or limit == "all" else ():
                    response = await call(api, client, row, limit, thing)
                    calls += 1
                    name = f"{role} limited to {limit}: {row.method} {row.path} of {thing.owner}"
                    allowed = expected(row, role, limit, thing)
                    problem = response.json().get("code", "") if response.status_code >= 400 else ""
                    if not any(response.status_code == s and problem.endswith(end) for s, end in allowed):
                        unexpected.append(f"{name}: {response.status_code} {problem} {response.text[:200]}")
                    hides = limit != "all" and row.kind in ("list", "listed") and response.status_code == 200
                    if hides and any(foreign in response.text for foreign in foreign_ids):
                        unexpected.append(f"{name}: shows what is outside of the limit")
    return calls, unexpected


@pytest.mark.long
async def test_the_matrix_has_no_unexpected_answer(api: Api) -> None:
    calls, unexpected = await run_matrix(api)
    assert not unexpected, "\n".join(unexpected)
    assert calls > 2_800


async def test_a_refused_request_changes_nothing(api: Api) -> None:
    boss = await api.person("boss", "admin")
    own, foreign = [await make_things(api, boss, owner) for owner in ("own", "foreign")]
    people = {"all": await api.person("viewer", "viewer")}
    people |= {limit: await api.person(limit, "operator", **LIMITS[limit]) for limit in ("tenant", "queue", "type")}
    before, refused = stored_rows(api), 0
    for limit, client in people.items():
        role, thing = ("viewer", own) if limit == "all" else ("operator", foreign)
        for row in read_rows().values():
            adds = row.method == "DELETE" and ("{reference}" in row.path or "{webhook_id}" in row.path)
            skipped = row.may == "public" or adds
            if not skipped and all(status >= 400 for status, _ in expected(row, role, limit, thing)):
                refused += (await call(api, client, row, limit, thing)).status_code >= 400
    assert refused > 150
    assert stored_rows(api) == before


async def test_what_is_outside_of_a_limit_answers_as_an_unknown_id(api: Api) -> None:
    boss = await api.person("boss", "admin")
    foreign = await make_things(api, boss, "foreign")
    unknown = Thing("foreign", {**dict.fromkeys(foreign.ids, UNKNOWN_ID)})
    for limit in ("tenant", "queue", "type"):
        client = await api.person(limit, "admin" if limit == "tenant" else "operator", **LIMITS[limit])
        for row in read_rows().values():
            if row.kind == "id" and (limit == "tenant" or "operator" in MAY[row.may]) and row.method != "DELETE":
                answers = [
                    comparable(await call(api, client, row, limit, thing), thing) for thing in (foreign, unknown)
                ]
                assert answers[0] == answers[1] and answers[0][0] == 404, row


def comparable(response: httpx.Response, thing: Thing) -> tuple[int, str]:
    """The status and the body without its trace id and without the ids that the request named."""
    body = re.sub(r'"trace_id":"[^"]*"', "", response.text)
    for value in sorted(thing.ids.values(), key=len, reverse=True):
        body = body.replace(value, "X")
    return response.status_code, body


def stored_rows(api: Api) -> Any:
    """All rows except notes: a refused transition writes one."""
    return {name: rows for name, rows in api.place.dump().items() if name not in ("notes", "sqlite_sequence")}


async def test_without_a_token_nothing_answers(api: Api) -> None:
    boss = await api.person("boss", "admin")
    thing = await make_things(api, boss, "own")
    for row in read_rows().values():
        response = await call(api, api.client(), row, "all", thing)
        assert row.may == "public" or code(response, 401) == "UNAUTHORIZED", row


async def test_a_list_shows_what_is_within_the_limit(api: Api) -> None:
    boss = await api.person("boss", "admin")
    own, _ = [await make_things(api, boss, owner) for owner in ("own", "foreign")]
    for limit, options in LIMITS.items():
        viewer = await api.person(f"v {limit}", "viewer", **options)
        for path, name in (("jobs", "job_id"), ("dlq/items", "dlq_id"), ("schedules", "reference")):
            rows = (await viewer.get(f"{API}/{path}")).json()["items"]
            assert own.ids[name] in [row.get("id", row.get("dlq_id")) for row in rows], (limit, path)
            assert limit == "all" or {row["tenant_id"] for row in rows} == {"own"}
