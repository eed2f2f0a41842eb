"""What the database, its log files and the server log keep of tokens, sessions and payloads."""

import asyncio
import json
import logging
import os
import re
import stat
import subprocess
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from detent.core.contract.builtin import CONTRACTS
from detent.core.times import SECOND
from detent.engine import Engine
from detent.stores.sqlite.store import SqliteStore
from detent.web.app import create_app
from detent.web.http import idempotency
from detent.web.http.route import ApiRoute
from detent.web.http.settings import Settings
from support.stores import SqlitePlace
from support.web.api import API, BASE, Api, code

pytestmark = pytest.mark.anyio
PAYLOAD = "a-payload-that-no-stored-answer-contains"
BODIES: dict[str, Any] = {
    "/jobs": {"job_type": "mail"},
    "/jobs/bulk": {"jobs": [{"job_type": "mail"}]},
    "/tasks": {"task_id": "new"},
    "/jobs/{job_id}/signal": {"name": "go"},
    "/dlq/discard": {"reason": "old"},
    "/limits": {"queue": "q", "concurrency": 3},
    "/tokens": {"name": "new", "role": "viewer"},
    "/worker/claim": {"worker": "w", "job_types": ["none"]},
    "/worker/heartbeat": {"worker": "w", "held": {}},
    "/schedules": {"name": "second", "job_type": "mail", "every": "1h"},
    "/schedules/preview": {"every": "1h"},
}
"""Other routes are called with {}, which some refuse."""


def stored_bytes(api: Api) -> bytes:
    """The rows of all tables and, for SQLite, the bytes of its files, read by another process."""
    rows = repr(api.place.dump()).encode()
    if not isinstance(api.place, SqlitePlace):
        return rows
    files = [f"{api.place.path}{suffix}" for suffix in ("", "-wal", "-shm")]
    return rows + subprocess.run(["cat", *files], capture_output=True, check=True).stdout


def answers(api: Api) -> list[tuple[Any, ...]]:
    return api.place.dump()["http_responses"]


async def call_every_route(api: Api, client: httpx.AsyncClient) -> AsyncIterator[httpx.Response]:
    """Twice each, with an Idempotency-Key where one is accepted."""
    job = await api.submit(client, contract="gate-b2")
    dead = await api.submit(client, contract="gate-b2")
    letter = (await client.post(f"{API}/internal/jobs/{dead['id']}/run?force_fail=true")).json()["dlq_id"]
    await client.post(f"{API}/schedules", json={"name": "nightly", "job_type": "mail", "every": "1h"})
    ids = {"job_id": job["id"], "dlq_id": letter, "reference": "nightly", "task_id": "new", "name": "standard"}
    for route in api.app.router.routes:
        assert isinstance(route, ApiRoute)
        if route.path.endswith("/events/stream"):
            continue
        path = re.sub(r"\{(\w+)(:\w+)?\}", lambda match: ids.get(match[1], "x"), route.path)
        for method in route.methods - {"HEAD"}:
            body = None if method in ("GET", "DELETE") else BODIES.get(route.path.removeprefix(API), {})
            headers = {"Idempotency-Key": f"{method}-{path}"} if route.keeps_answer else {}
            for _ in range(2):
                yield await client.request(method, path, json=body, headers=headers)


async def test_no_token_is_stored_or_logged(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    boss = await api.person("root", "admin")
    secrets = {boss.headers["authorization"].partition(" ")[2]}
    statuses: Counter[int] = Counter()
    async for response in call_every_route(api, boss):
        statuses[response.status_code] += 1
        secrets |= set(re.findall(r"detent_[\w-]{43}", response.text))
    assert max(statuses) < 500 and statuses[200] + statuses[201] > 90, statuses
    created = [await boss.post(f"{API}/tokens", json={"name": "ann", "role": "operator"}) for _ in range(2)]
    secrets |= {response.json()["token"] for response in created}
    page = api.client()
    await page.post(f"{API}/session", json={"token": created[0].json()["token"]})
    sessions = {cookie.value for cookie in page.cookies.jar if cookie.value}
    await page.post(f"{API}/session", json={"token": "detent_" + "x" * 43})
    await page.get(f"{API}/jobs")
    assert len(secrets) >= 4 and sessions
    stored, logged = stored_bytes(api), caplog.text
    for secret in secrets | sessions:
        assert secret.encode() not in stored and secret not in logged
    if isinstance(api.place, SqlitePlace):
        assert created[0].json()["id"].encode() in stored, "the files were read"


async def test_an_answer_is_stored_with_ids_and_rebuilt(api: Api) -> None:
    """A repeated request shows the job as it is now; nothing of its payload is kept with the answer."""
    bodies = {
        "/jobs": {"job_type": "mail", "payload": {"text": PAYLOAD}},
        "/jobs/bulk": {"jobs": [{"job_type": "mail", "payload": {"text": PAYLOAD}}] * 2},
        "/tasks": {"task_id": "t", "payload": {"text": PAYLOAD}},
        "/schedules": {"name": "n", "job_type": "mail", "every": "1h", "payload": {"text": PAYLOAD}},
    }
    for path, body in bodies.items():
        first, again = [
            await api.open.post(f"{API}{path}", json=body, headers={"Idempotency-Key": path}) for _ in (1, 2)
        ]
        assert first.status_code == again.status_code == 201, first.text
        assert again.json() == first.json() and again.headers["idempotency-replayed"] == "true"
        assert again.headers.get("location") == first.headers.get("location")
    assert len(answers(api)) == 4 and PAYLOAD not in repr(answers(api))
    job = (await api.open.get(f"{API}/jobs?task_id=t")).json()["items"][0]
    await api.open.post(f"{API}/jobs/{job['id']}/cancel")
    again = await api.open.post(f"{API}/tasks", json=bodies["/tasks"], headers={"Idempotency-Key": "/tasks"})
    assert again.status_code == 201 and again.json()["task"]["state"] != job["view"]["state"]
    await api.open.delete(f"{API}/schedules/n")
    gone = await api.open.post(f"{API}/schedules", json=bodies["/schedules"], headers={"Idempotency-Key": "/schedules"})
    assert code(gone, 410) == "ANSWER_GONE"


async def test_an_answer_of_an_action_is_rebuilt(api: Api) -> None:
    """Actions on jobs, tasks, dead letters and schedules, and refusals: the repeated answer is the first one."""
    made = {"payload": {"text": PAYLOAD}}
    dead, other, plain = [(await api.submit(contract="gate-b2", **made))["id"] for _ in range(3)]
    dlq = [
        (await api.open.post(f"{API}/internal/jobs/{job}/run?force_fail=true")).json()["dlq_id"]
        for job in (dead, other)
    ]
    await api.submit(contract="men", task_id="t", **made)
    await api.open.post(f"{API}/schedules", json={"name": "n", "job_type": "mail", "every": "1h", **made})
    calls: list[tuple[str, Any]] = [
        (f"/dlq/items/{dlq[0]}/requeue", {}),
        (f"/dlq/items/{dlq[1]}/discard", {"reason": "old"}),
        (f"/jobs/{plain}/cancel", {"reason": "x"}),
        (f"/internal/jobs/{plain}/transition", {"new_status": "running"}),
        ("/tasks/t/cancel", {}),
        ("/schedules/n/pause", {}),
        ("/bulk/cancel", {"dry_run": False}),
        ("/queues/default/pause", {}),
        ("/tasks", {"task_id": "t", "max_retries": 9}),
    ]
    for path, body in calls:
        pair = [await api.open.post(f"{API}{path}", json=body, headers={"Idempotency-Key": path}) for _ in (1, 2)]
        assert pair[1].headers.get("idempotency-replayed") == "true", (path, pair[1].text)
        assert (pair[0].status_code, pair[0].json()) == (pair[1].status_code, pair[1].json()), path
    assert len(answers(api)) == len(calls) and PAYLOAD not in repr(answers(api))


async def test_reading_routes_and_tokens_refuse_a_key_and_store_no_answer(api: Api) -> None:
    boss, viewer = await api.person("boss", "admin"), await api.person("viewer", "viewer")
    worker = {"worker": "w", "job_types": ["none"]}
    calls = (
        (viewer, "/schedules/preview", {"every": "1h"}),
        (boss, "/tokens", {"name": "ann", "role": "viewer"}),
        (boss, "/worker/claim", worker),
    )
    for client, path, body in calls:
        for _ in (1, 2):
            response = await client.post(f"{API}{path}", json=body, headers={"Idempotency-Key": "k"})
            assert code(response, 422) == "IDEMPOTENCY_KEY_INVALID" and "idempotency-replayed" not in response.headers
    assert not answers(api)


async def test_stored_answers_are_bounded_and_expire(api: Api) -> None:
    settings = Settings(open_without_tokens=True, answers_per_caller=100, answers_kept_seconds=3_600)
    app = create_app(api.engine, settings)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE) as client:
        for number in range(250):
            body = {"dry_run": True}
            response = await client.post(f"{API}/bulk/cancel", json=body, headers={"Idempotency-Key": f"k{number}"})
            assert response.status_code == 200
        assert 100 <= len(answers(api)) <= 100 + 64
        again = await client.post(f"{API}/bulk/cancel", json=body, headers={"Idempotency-Key": "k249"})
        assert again.headers["idempotency-replayed"] == "true"
    later = api.engine.store.now() + 3_600 * SECOND
    dropped = await api.engine.store.write(lambda tx: tx.answers.drop_old_answers(1_000))
    assert dropped == 0 and all(later - 60 * SECOND < row_until(row) <= later for row in answers(api))
    await app.state.web.close()


async def test_stored_answers_are_bounded_for_each_caller(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the calls of another one come in between."""
    monkeypatch.setattr(idempotency, "_TRIM_EVERY", 4)
    app = create_app(api.engine, Settings(answers_per_caller=2))
    callers = [await api.person(name, "operator") for name in ("ann", "bob")]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE) as client:
        for number in range(24):
            headers = {**callers[number % 2].headers, "Idempotency-Key": f"k{number}"}
            response = await client.post(f"{API}/bulk/cancel", json={"dry_run": True}, headers=headers)
            assert response.status_code == 200
    assert len(answers(api)) <= 2 * (2 + 4)
    await app.state.web.close()


def row_until(row: tuple[Any, ...]) -> int:
    return max(value for value in row if isinstance(value, int))


def test_sqlite_files_are_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = SqliteStore(str(tmp_path / "jobs.db"))
        engine = Engine(store, CONTRACTS)
        asyncio.run(engine.open())
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
        asyncio.run(engine.close())
    finally:
        os.umask(before)
    assert modes == {"jobs.db": 0o600, "jobs.db-wal": 0o600, "jobs.db-shm": 0o600}, json.dumps(modes)
