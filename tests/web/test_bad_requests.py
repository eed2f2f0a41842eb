"""Thousands of invalid requests: none causes a 5xx response, none changes the database."""

import json
import random
import re
from typing import Any

import httpx
import pytest

from detent.web.http.route import ApiRoute
from support.web.api import API, Api, code

pytestmark = pytest.mark.anyio
NUMBER = 5_000
ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    2**31,
    2**63,
    2**64,
    10**400,
    -(10**30),
    1e308,
    0.1,
    "",
    " ",
    "\x00",
    "a\x00b",
    "\ud800",
    "\u202e",
    "x" * 300,
    "../..",
    "%2e%2e",
    "'; DROP TABLE detent_jobs; --",
    [],
    [[]],
    {},
    {"a": {"b": []}},
    "2026-13-45T99:99:99Z",
    "9999-12-31T23:59:59+14:00",
    "0001-01-01T00:00:00Z",
    "NaN",
    "queued",
    "standard",
    "\r\nX: y",
    "🦀" * 150,
]
RAW = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"NaN",
    b'{"job_type": NaN}',
    b'{"a":1,}',
    b"\xff\xfe",
    b'"\\ud800"',
    b"[" * 100_000,
    b'{"a":' * 2_000 + b"1" + b"}" * 2_000,
    b'{"job_type":"x","payload":{"n":' + b"9" * 5_000 + b"}}",
    b"0" * 70_000,
    b'{"job_type":"\\u0000"}',
    b"\x00" * 100,
    b'{"job_type":"x","payload":{"a":Infinity}}',
]
FIELDS = [
    "job_type",
    "payload",
    "contract",
    "queue",
    "tenant_id",
    "idempotency_key",
    "idempotency_scope",
    "task_id",
    "priority",
    "schedule_type",
    "scheduled_at",
    "timeout_ms",
    "max_retries",
    "trace_id",
    "hold",
    "reason",
    "force",
    "name",
    "data",
    "new_status",
    "jobs",
    "worker",
    "job_types",
    "queues",
    "limit",
    "lease_seconds",
    "held",
    "token",
    "outcome",
    "result",
    "role",
    "expires_days",
    "cron",
    "every",
    "at",
    "tz",
    "first",
    "last",
    "rate",
    "dry_run",
    "cursor",
    "id",
    "nonsense",
]
PARTS = [
    "x",
    "%00",
    "%2e%2e%2f",
    "..",
    "a%2Fb",
    "%ff%fe",
    "%F0%9F%A6%80",
    "*",
    "01900000-0000-7000-8000-000000000000",
    "A" * 250,
    "'",
    "%0d%0aX",
    "null",
    "-1",
    "{job_id}",
    " ",
]
QUERIES = [
    "cursor=forged",
    "cursor=01900000-0000-7000-8000-00000000000",
    "limit=0",
    "limit=-5",
    "limit=1e9",
    "limit=99999999999999",
    "limit=",
    "status=%00",
    "text=%00",
    "phase=nowhere",
    "tenant=%F0%9F",
    "queue=" + "q" * 500,
    "cursor=%2e%2e",
    "unknown=1",
    "count=0",
    "after=now",
    "force_fail=maybe",
    "kind=planet",
    "cursor=18446744073709551616",
    "limit=1&limit=2&x=%",
]


def bad_requests(api: Api, number: int, seed: int) -> Any:
    """Invalid requests, the same for the same seed. GET routes that could succeed by chance are left out."""
    source = random.Random(seed)
    routes = [
        (method, route.path, _raw_bodies(route))
        for route in api.app.router.routes
        if isinstance(route, ApiRoute) and route.path != f"{API}/events/stream"
        for method in sorted(route.methods or ())
        if method != "GET" or "{" in route.path or route.path in (f"{API}/jobs", f"{API}/dlq/items", f"{API}/audit")
    ]
    for _ in range(number):
        method, path, raw = source.choice(routes)
        while "{" in path:
            head, _, rest = path.partition("{")
            path = head + source.choice(PARTS) + rest.partition("}")[2]
        if source.random() < 0.4 or method == "GET":
            path += "?" + source.choice(QUERIES)
        body = b""
        if method != "GET":
            body = source.choice(raw) if raw and source.random() < 0.3 else _odd_body(source)
        media = source.choice(["application/json"] * 6 + ["text/plain", "application/xml", ""])
        yield method, path, body, {"content-type": media} if media else {}


def _raw_bodies(route: ApiRoute) -> list[bytes]:
    """Those of RAW that are invalid for the route: none if it takes no body, no empty one if its body is optional."""
    if not route.takes_body:
        return []
    optional = route.body_field is not None and not route.body_field.field_info.is_required()
    return [body for body in RAW if not (optional and body in (b"", b"null"))]


def _odd_body(source: random.Random) -> bytes:
    body = {name: source.choice(ODD) for name in source.sample(FIELDS, source.randint(1, 6))}
    body["nonsense"] = source.choice(ODD)  # an unknown field, so that the body is always invalid
    return json.dumps(body).encode()


@pytest.mark.long
@pytest.mark.parametrize("place", ["sqlite-thread", pytest.param("postgres", marks=pytest.mark.drill)], indirect=True)
async def test_invalid_requests_cause_no_5xx_and_change_nothing(api: Api) -> None:
    await api.submit()
    boss = await api.person("boss", "admin")
    before = _stored(api)
    seen: dict[int, int] = {}
    for method, path, body, headers in bad_requests(api, NUMBER, seed=11):
        try:
            response = await boss.request(method, path, content=body, headers=headers)
        except (httpx.InvalidURL, ValueError):
            continue
        assert response.status_code < 500, (method, path, body[:200], response.text)
        if response.status_code >= 400:
            assert response.headers["content-type"] == "application/problem+json", (method, path)
            assert "Traceback" not in response.text and '"code"' in response.text
        elif method != "GET" and not path.startswith(f"{API}/session"):
            pytest.fail(f"{method} {path} {body[:200]!r} succeeded: {response.text}")
        seen[response.status_code] = seen.get(response.status_code, 0) + 1
    assert sum(seen.values()) > NUMBER * 0.9 and {404, 415, 422} <= seen.keys(), seen
    assert _stored(api) == before


def _stored(api: Api) -> Any:
    return {name: rows for name, rows in api.place.dump().items() if name != "sqlite_sequence"}


async def test_bodies_have_limits(api: Api) -> None:
    media = {"content-type": "application/json"}
    large = await api.open.post(f"{API}/jobs", content=b"x" * (4 << 20) + b"x", headers=media)
    assert code(large, 413) == "BODY_TOO_LARGE"

    async def endless() -> Any:
        for _ in range(200):
            yield b" " * 65_536

    streamed = await api.open.post(f"{API}/jobs", content=endless(), headers=media)
    assert code(streamed, 413) == "BODY_TOO_LARGE"
    deep = {"job_type": "x", "payload": json.loads('{"a":' * 70 + "1" + "}" * 70)}
    assert code(await api.open.post(f"{API}/jobs", json=deep), 422) == "BODY_TOO_DEEP"
    wide = {"job_type": "x", "payload": {"many": [{"n": [n]} for n in range(500)]}}
    assert (await api.open.post(f"{API}/jobs", json=wide)).status_code == 201
    form = await api.open.post(f"{API}/jobs", content=b'{"job_type": "x"}', headers={"content-type": "text/plain"})
    assert code(form, 415) == "MEDIA_TYPE_UNSUPPORTED"


async def test_every_response_has_the_security_headers(api: Api) -> None:
    for path in ("/", "/docs", "/healthz", f"{API}/jobs", "/nowhere"):
        headers = (await api.open.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in headers["content-security-policy"] and "cache-control" in headers
        assert "server" not in headers and "unsafe" not in headers["content-security-policy"]
    page = (await api.open.get("/docs")).text
    tags = re.findall(r"<[^>]*>", page)
    for foreign in ("<script", "<style", "style=", "//"):
        assert not [tag for tag in tags if foreign in tag], foreign
    for address in re.findall(r'(?:href|src)="(static/[^"]+)"', page):
        assert (await api.open.get(f"/{address}")).status_code == 200, address


async def test_the_request_rate_of_a_token_is_limited(api: Api) -> None:
    api.app.state.web.rate_limiter._rate = 5.0
    responses = [await api.open.get(f"{API}/me") for _ in range(14)]
    assert responses[0].status_code == 200 and code(responses[-1], 429) == "RATE_LIMITED"
    assert responses[-1].headers["retry-after"] == "1"
    assert (await api.open.get("/healthz")).status_code == 200


@pytest.mark.parametrize(
    "body", ['{"job_type": "a", "job_type": "b"}', '{"job_type": "a", "payload": {"x": 1, "x": 2}}']
)
async def test_a_member_that_is_sent_twice_is_refused(api: Api, body: str) -> None:
    refused = await api.open.post(f"{API}/jobs", content=body, headers={"content-type": "application/json"})
    assert code(refused, 422) == "BODY_NOT_JSON" and "twice" in refused.json()["detail"]


async def test_a_body_that_is_not_json_is_refused_alike_everywhere(api: Api) -> None:
    reasons = {b'{"x": NaN}': "NaN", b'{"x": "a", "x": "b"}': "twice", b"{": "property name", b"\xff": "utf-8"}
    deep = b'{"x":' + b"[" * 99 + b"]" * 99 + b"}"
    headers = {"content-type": "application/json"}
    for path in ("jobs", "worker/claim", "bulk/cancel", "schedules", "limits/remove"):
        for body, reason in reasons.items():
            refused = await api.open.post(f"{API}/{path}", content=body, headers=headers)
            assert code(refused, 422) == "BODY_NOT_JSON" and reason in refused.json()["detail"], path
        assert code(await api.open.post(f"{API}/{path}", content=deep, headers=headers), 422) == "BODY_TOO_DEEP", path


async def test_a_get_request_has_no_body(api: Api) -> None:
    for body in (b"{}", b'{"status": "queued"}'):
        refused = await api.open.request(
            "GET", f"{API}/jobs", content=body, headers={"content-type": "application/json"}
        )
        assert code(refused, 422) == "BODY_UNEXPECTED"
    assert (await api.open.request("GET", f"{API}/jobs", headers={"content-length": "0"})).status_code == 200


@pytest.mark.parametrize("header", ["If-Match", "If-Unmodified-Since"])
async def test_a_precondition_that_is_not_checked_is_refused(api: Api, header: str) -> None:
    job = await api.submit()
    for method, path in (("POST", f"jobs/{job['id']}/cancel"), ("GET", f"jobs/{job['id']}"), ("PUT", "limits")):
        refused = await api.open.request(method, f"{API}/{path}", headers={header: '"x"'})
        assert code(refused, 422) == "INPUT_INVALID" and header in refused.json()["detail"]
    assert (await api.open.get(f"{API}/jobs/{job['id']}")).json()["status"] == "queued"


async def test_an_idempotency_key_that_would_be_ignored_is_refused(api: Api) -> None:
    """A client that repeats POST /webhooks under a key must not get two webhooks, nor PATCH two new secrets."""
    bodies = {
        "POST webhooks": {"name": "crm", "url": "https://crm.example/"},
        "POST tokens": {"name": "ann", "role": "viewer"},
        "POST worker/claim": {"worker": "w", "job_types": ["mail"]},
        "POST schedules/preview": {"every": "1h"},
        "PATCH webhooks/crm": {"secret": ""},
        "PUT limits": {"queue": "mail", "concurrency": 1},
    }
    for action, body in bodies.items():
        method, path = action.split()
        refused = await api.open.request(method, f"{API}/{path}", json=body, headers={"Idempotency-Key": "k"})
        assert code(refused, 422) == "IDEMPOTENCY_KEY_INVALID", action
    assert (await api.open.get(f"{API}/webhooks")).json()["items"] == []


async def test_an_empty_list_of_statuses_does_not_match_all_jobs(api: Api) -> None:
    job = await api.submit()
    refused = await api.open.post(f"{API}/bulk/cancel", json={"status": [], "dry_run": False})
    assert code(refused, 422) == "INPUT_INVALID"
    assert (await api.open.get(f"{API}/jobs/{job['id']}")).json()["status"] == "queued"


async def test_only_a_known_rule_is_silenced(api: Api) -> None:
    refused = await api.open.post(f"{API}/alerts/silences", json={"rule": "no_workers", "seconds": 60})
    assert code(refused, 422) == "SILENCE_INVALID" and "no_worker" in refused.json()["detail"]
    known = await api.open.post(f"{API}/alerts/silences", json={"rule": "no_worker", "seconds": 60})
    assert known.status_code == 201


async def test_requests_without_permission_count_for_the_rate(api: Api) -> None:
    producer = await api.person("shop", "producer")
    api.app.state.web.rate_limiter._rate = 5.0
    responses = [await producer.get(f"{API}/jobs") for _ in range(14)]
    assert code(responses[0], 403) and code(responses[-1], 429) == "RATE_LIMITED"
