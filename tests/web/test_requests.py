"""What every request gets: an id, HEAD, names with slashes in paths, rate-limit headers; and requests that wait."""

import asyncio
import logging
import re
from urllib.parse import quote

import pytest

from detent.web.http.route import ApiRoute
from support.acts import claim
from support.waiting import until
from support.web.api import API, Api, code

pytestmark = pytest.mark.anyio
ODD_NAME = "a/b pause/preview"


async def test_a_well_formed_request_id_is_kept(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    for path in (f"{API}/jobs", "/healthz", "/", "/nowhere", f"{API}/jobs/nowhere"):
        answer = await api.open.get(path, headers={"X-Request-Id": "Root=1-67891233;a"})
        assert answer.headers.get_list("x-request-id") == ["Root=1-67891233;a"], path
        if answer.status_code == 404:
            assert answer.json()["trace_id"] == "Root=1-67891233;a"
    for sent in ("", "with space", "x" * 129, "\xe9"):
        answer = await api.open.get(f"{API}/jobs/nowhere", headers={"X-Request-Id": sent.encode("latin-1")})
        assert re.fullmatch("req-[0-9a-f-]{36}", answer.headers["x-request-id"]), sent
        assert answer.json()["trace_id"] == answer.headers["x-request-id"]
    await api.engine.close()
    with caplog.at_level(logging.WARNING, "detent.web"):
        answer = await api.open.get(f"{API}/jobs", headers={"X-Request-Id": "abc"})
    assert answer.status_code >= 500
    assert [record.__dict__["request_id"] for record in caplog.records if record.name == "detent.web"] == ["abc"]


async def test_every_get_route_serves_head(api: Api) -> None:
    job = await api.submit()
    for route in api.app.router.routes:
        if isinstance(route, ApiRoute) and "GET" in (route.methods or ()):
            path = re.sub(r"\{\w+(:path)?\}", job["id"], route.path)
            head = await api.open.head(path)
            assert not head.content, path
            if path != f"{API}/events/stream":
                full = await api.open.get(path)
                assert head.status_code == full.status_code, path
                assert head.headers["content-type"] == full.headers["content-type"], path
    stream = await api.open.head(f"{API}/events/stream")
    assert stream.status_code == 200 and stream.headers["content-type"].startswith("text/event-stream")
    not_allowed = await api.open.delete(f"{API}/jobs")
    assert code(not_allowed, 405) == "METHOD_NOT_ALLOWED" and not_allowed.headers["allow"] == "GET, HEAD, POST"


async def test_a_preview_has_the_cron_expression_in_words(api: Api) -> None:
    preview = (await api.open.post(f"{API}/schedules/preview?count=2", json={"cron": "30 3 * * *"})).json()
    assert preview["in_words"] == {"en": "every day at 03:30", "zh": "每天 03:30"} and len(preview["items"]) == 2
    assert (await api.open.post(f"{API}/schedules/preview", json={"every": "1h"})).json()["in_words"] == {}
    assert code(await api.open.post(f"{API}/schedules/preview", json={"cron": "30 x"}), 422) == "SCHEDULE_INVALID"


async def test_names_with_slashes_are_encoded_in_paths(api: Api) -> None:
    name = quote(ODD_NAME, safe="")
    schedule = {"name": ODD_NAME, "job_type": "x", "every": 60}
    assert (await api.open.post(f"{API}/schedules", json=schedule)).status_code == 201
    assert (await api.open.get(f"{API}/schedules/{name}")).json()["name"] == ODD_NAME
    assert (await api.open.get(f"{API}/schedules/{name}/preview")).json()["items"]
    assert (await api.open.post(f"{API}/schedules/{name}/pause")).json()["paused"] is True
    assert (await api.open.put(f"{API}/tenants/{name}", json={"weight": 3})).json()["tenant_id"] == ODD_NAME
    assert (await api.open.delete(f"{API}/tenants/{name}")).json() == {"tenant_id": ODD_NAME, "removed": True}
    assert (await api.open.post(f"{API}/queues/{name}/pause")).json()["name"] == ODD_NAME
    assert code(await api.open.get(f"{API}/queues/{name}/pause"), 405) == "METHOD_NOT_ALLOWED"
    assert (await api.open.request("OPTIONS", f"{API}/jobs/bulk")).headers["allow"] == "POST"
    task = await api.open.post(f"{API}/tasks", json={"task_id": ODD_NAME})
    assert (await api.open.get(task.headers["location"])).json()["task_id"] == ODD_NAME
    assert (await api.open.get(f"{API}/tasks/{name}/events")).status_code == 200
    assert code(await api.open.get(f"{API}/schedules/a%1Fb"), 422) == "INPUT_INVALID"
    assert code(await api.open.get(f"{API}%2Fjobs"), 404) == "ROUTE_NOT_FOUND"


async def test_responses_say_how_many_requests_are_left(api: Api) -> None:
    api.app.state.web.rate_limiter._rate = 5.0
    answers = [await api.open.get(f"{API}/me") for _ in range(14)]
    assert {answer.headers["ratelimit-policy"] for answer in answers} == {'"requests";q=10;w=2'}
    left = [int(re.fullmatch(r'"requests";r=(\d+);t=\d', answer.headers["ratelimit"])[1]) for answer in answers]  # type: ignore[index]
    assert left[:9] == list(range(9, 0, -1)) and left[-1] == 0
    assert code(answers[-1], 429) == "RATE_LIMITED"
    assert "ratelimit" not in (await api.open.get("/healthz")).headers


async def test_a_request_waits_until_the_job_is_finished(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await api.submit()
    path = f"{API}/jobs/{job['id']}"
    reads: list[str] = []
    read = api.engine.store.read
    monkeypatch.setattr(api.engine.store, "read", lambda act: reads.append(act.__qualname__) or read(act))
    requests = [asyncio.create_task(api.open.get(f"{path}?wait=20")) for _ in range(50)]
    tail = api.app.state.web.event_tail
    await until(lambda: len(tail._job_watches.get(job["id"], ())) == 50)
    (held,) = await claim(api.engine, 1, job_types=frozenset({"mail"}))
    for _ in range(5):  # events of other jobs and a claim wake nobody
        head = tail._head
        await api.submit()
        await until(lambda: tail._head > head)  # noqa: B023
    assert not any(request.done() for request in requests)
    own = [name for name in reads if not name.startswith("EventTail")]
    assert len(own) < 130, "each request reads the job twice before it waits, and then only the tail reads"
    settle = {"job_id": held.id, "token": held.token, "outcome": "succeed", "result": 7}
    assert (await api.open.post(f"{API}/worker/settle", json=settle)).status_code == 200
    async with asyncio.timeout(10):
        answers = await asyncio.gather(*requests)
    assert {(answer.json()["status"], answer.json()["result"]) for answer in answers} == {("succeeded", 7)}
    assert not tail._job_watches and not api.app.state.web.streams
    finished = await api.open.get(f"{path}?wait=20")
    assert finished.json()["phase"] == "final"
    same = await api.open.get(f"{path}?wait=20", headers={"If-None-Match": finished.headers["etag"]})
    assert same.status_code == 304


async def test_a_request_that_waits_ends_with_its_token(api: Api) -> None:
    boss, viewer = await api.person("boss", "admin"), await api.person("v", "viewer", rotated=False)
    worker = await api.person("w", "worker", rotated=False)
    job = await api.submit(boss)
    claim_request = {"worker": "w1", "job_types": ["other"], "wait_seconds": 20}
    waiting = asyncio.create_task(viewer.get(f"{API}/jobs/{job['id']}?wait=20"))
    claiming = asyncio.create_task(worker.post(f"{API}/worker/claim", json=claim_request))
    await until(lambda: bool(api.app.state.web.streams))
    while not (await boss.get(f"{API}/workers")).json()["items"]:
        pass
    for token in await api.engine.tokens.list():
        if token.person in ("v", "w"):
            assert (await boss.post(f"{API}/tokens/{token.id}/revoke")).status_code == 200
    assert (await boss.post(f"{API}/jobs/{job['id']}/cancel")).status_code == 200
    async with asyncio.timeout(10):
        assert code(await waiting, 401) == code(await claiming, 401) == "UNAUTHORIZED"


async def test_a_wait_has_limits(api: Api) -> None:
    job = await api.submit()
    path = f"{API}/jobs/{job['id']}"
    assert (await api.open.get(f"{path}?wait=0.05")).json()["status"] == "queued"
    for bad in ("-1", "20.5", "x", "nan"):
        assert code(await api.open.get(f"{path}?wait={bad}"), 422) == "INPUT_INVALID"
    web = api.app.state.web
    waiting = asyncio.create_task(api.open.get(f"{path}?wait=20"))
    await until(lambda: bool(web.streams))
    object.__setattr__(web.settings, "max_streams_per_caller", 1)
    assert code(await api.open.get(f"{path}?wait=20"), 503) == "STREAMS_FULL"
    assert (await api.open.get(path)).status_code == 200
    web.stopping.set()
    async with asyncio.timeout(5):
        assert (await waiting).json()["status"] == "queued"
    assert not web.streams
