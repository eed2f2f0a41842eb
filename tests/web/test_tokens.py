"""Tokens of programs and of people: what a worker and a producer may do, limits by queue and type, expiry."""

from typing import Any

import pytest

from detent.core.access import Reach, Scope
from detent.core.times import SECOND
from detent.engine import Submission
from support.web.api import API, Api, code

pytestmark = pytest.mark.anyio
DAY = 86_400 * SECOND
CLAIM = {"worker": "w", "job_types": ["mail"], "limit": 10}


async def test_a_worker_works_on_its_queues_and_types_only(api: Api) -> None:
    jobs = {
        (queue, kind): (await api.submit(queue=queue, job_type=kind))["id"]
        for queue in ("a", "b")
        for kind in ("mail", "pay")
    }
    worker = await api.person("w-a", "worker", queues=["a"], job_types=["mail"])
    full = await api.person("w-all", "worker")
    for outside in ({"queues": ["b"]}, {"queues": ["a", "b"]}, {"job_types": ["mail", "pay"]}):
        refused = await worker.post(f"{API}/worker/claim", json={**CLAIM, **outside})
        assert code(refused, 403) == "TOKEN_SCOPE_VIOLATION"
    (mine,) = (await worker.post(f"{API}/worker/claim", json=CLAIM)).json()["jobs"]
    assert mine["id"] == jobs["a", "mail"]
    (other,) = (await full.post(f"{API}/worker/claim", json={**CLAIM, "queues": ["b"]})).json()["jobs"]
    held = {other["id"]: other["token"], mine["id"]: mine["token"]}
    beat = (await worker.post(f"{API}/worker/heartbeat", json={"worker": "w", "held": held})).json()
    assert beat["lost"] == [other["id"]], "a lease outside of the token's queues was extended"
    settle = {"job_id": other["id"], "token": other["token"], "outcome": "succeed"}
    assert (await worker.post(f"{API}/worker/settle", json=settle)).status_code in (404, 409)
    assert (await api.engine.jobs.get(other["id"])).token == other["token"]
    for job in (mine, other):
        settle = {"job_id": job["id"], "token": job["token"], "outcome": "succeed"}
        assert (await full.post(f"{API}/worker/settle", json=settle)).status_code == 200
    for path in ("jobs", f"jobs/{mine['id']}", "queues", "tokens"):
        assert code(await worker.get(f"{API}/{path}"), 403) == "FORBIDDEN"


async def test_a_producer_is_shown_no_payload(api: Api) -> None:
    """Neither of a job of somebody else that has the key or the task id, nor in a replayed answer."""
    owner, producer = await api.person("owner", "operator"), await api.person("shop", "producer")
    private = {"payload": {"card": "4111"}, "idempotency_key": "k1"}
    assert (await api.submit(owner, **private))["payload"] == {"card": "4111"}
    await owner.post(f"{API}/tasks", json={"task_id": "t1", "payload": {"card": "4111"}})
    key = {"Idempotency-Key": "again"}
    answers = [await producer.post(f"{API}/jobs", json={"job_type": "mail", **private}, headers=key) for _ in range(2)]
    tasks: list[dict[str, Any]] = [{"task_id": "t1"}, {"task_id": "t1", "timeout_ms": 7}]
    answers += [await producer.post(f"{API}/tasks", json=task) for task in tasks]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 409]
    assert all("4111" not in answer.text for answer in answers)


async def test_a_producer_submits_to_its_queues_only(api: Api) -> None:
    elsewhere = await api.submit(queue="b", idempotency_key="k1")
    producer = await api.person("shop", "producer", queues=["a"], job_types=["mail"])
    created = await api.submit(producer, queue="a")
    jobs: list[dict[str, Any]] = [{"job_type": "mail", "queue": "a"}, {"job_type": "mail", "queue": "b"}]
    for path, body in (("jobs", jobs[1]), ("jobs", {"job_type": "mail"}), ("jobs/bulk", {"jobs": jobs})):
        assert code(await producer.post(f"{API}/{path}", json=body), 403) == "TOKEN_SCOPE_VIOLATION"
    child = {**jobs[0], "parent_id": elsewhere["id"]}
    assert (await producer.post(f"{API}/jobs", json=child)).status_code in (404, 422)
    hit = await producer.post(f"{API}/jobs", json={**jobs[0], "idempotency_key": "k1"})
    assert code(hit, 409) == "IDEMPOTENCY_CONFLICT" and elsewhere["id"] not in hit.text
    for path in (f"jobs/{created['id']}", "jobs"):
        assert code(await producer.get(f"{API}/{path}"), 403) == "FORBIDDEN"
    assert code(await producer.post(f"{API}/jobs/{created['id']}/cancel"), 403) == "FORBIDDEN"
    assert (await producer.get(f"{API}/me")).json()["queues"] == ["a"]


async def test_children_out_of_reach_are_neither_shown_nor_counted(api: Api) -> None:
    parent = (await api.submit(queue="a"))["id"]
    submissions = [Submission("mail", queue=queue, parent_id=parent) for queue in ("b", "a", "b")]
    children = [submitted.job.id for submitted in await api.engine.jobs.submit_many(submissions)]
    everyone, viewer = await api.person("all", "viewer"), await api.person("vic", "viewer", queues=["a"])
    detail, path = f"{API}/jobs/{parent}/detail", f"{API}/jobs/{parent}/children"
    counted = [(await client.get(detail)).json()["children"] for client in (everyone, viewer)]
    assert [(part["total"], part["counts"][0]["count"]) for part in counted] == [(3, 3), (1, 1)]
    listed = [[child["id"] for child in (await client.get(path)).json()["items"]] for client in (everyone, viewer)]
    assert listed == [sorted(children), [children[1]]]
    tree = await api.engine.scoped(tenant=None, reach=Reach(queues=("a",))).jobs.tree(parent)
    assert [child.job.id for child in tree.children] == [children[1]]
    assert len((await api.engine.jobs.tree(parent)).children) == 3


async def test_an_operator_of_one_queue(api: Api) -> None:
    """Other queues do not exist for it: not by id, in lists, by bulk actions, in schedules, nor as children."""
    near, far = [(await api.submit(queue=queue))["id"] for queue in ("a", "b")]
    operator = await api.person("op", "operator", queues=["a"])
    assert code(await operator.post(f"{API}/jobs/{far}/cancel"), 404) == "JOB_NOT_FOUND"
    assert (await operator.post(f"{API}/bulk/cancel", json={"ids": [near, far]})).json()["matched"] == 1
    assert (await operator.post(f"{API}/bulk/cancel", json={})).json()["matched"] == 1
    schedule = {"name": "s", "job_type": "mail", "every": "1h"}
    created = await operator.post(f"{API}/schedules", json={**schedule, "queue": "a"})
    assert created.status_code == 201
    moved = await operator.patch(f"{API}/schedules/s", json={"queue": "b"})
    assert code(moved, 403) == "TOKEN_SCOPE_VIOLATION"
    assert code(await operator.post(f"{API}/schedules", json={**schedule, "name": "t"}), 403) == "TOKEN_SCOPE_VIOLATION"


@pytest.mark.parametrize(
    "role, options, days",
    [
        ("viewer", {}, 90),
        ("admin", {}, 90),
        ("operator", {"expires_days": 7}, 7),
        ("reviewer", {"expires_days": "never"}, None),
        ("worker", {}, None),
        ("producer", {}, None),
        ("worker", {"expires_days": 30}, 30),
    ],
)
async def test_how_long_a_token_lasts(api: Api, role: str, options: dict[str, Any], days: int | None) -> None:
    token, _ = await api.engine.tokens.create("x", role, Scope("boss"), **options)
    assert token.expires_at == (None if days is None else token.created_at + days * DAY)
    boss = await api.person("boss", "admin")
    created = await boss.post(f"{API}/tokens", json={"name": "x", "role": role, **options})
    assert (created.json()["expires_at"] is None) == (days is None)
    for bad in (0, -1, 4_000, "soon"):
        assert (
            await boss.post(f"{API}/tokens", json={"name": "x", "role": role, "expires_days": bad})
        ).status_code == 422


async def test_an_expiry_is_announced_two_weeks_before(api: Api) -> None:
    late, soon = [await api.person(name, "viewer", expires_days=days) for name, days in (("l", 14.1), ("s", 13.9))]
    assert "detent-token-expires" not in (await late.get(f"{API}/jobs")).headers
    assert (await soon.get(f"{API}/jobs")).headers["detent-token-expires"].endswith("Z")
    page = await soon.get("/")
    assert page.status_code == 200 and 'id="token-expires"' in page.text
    assert 'id="token-expires"' not in (await late.get("/")).text


async def test_a_rotation_does_not_extend_the_expiry(api: Api) -> None:
    token, secret = await api.engine.tokens.create("x", "viewer", Scope("boss"), expires_days=5, queues=["a"])
    rotated, _ = await api.engine.tokens.rotate(secret)
    assert rotated.expires_at == token.expires_at and rotated.queues == ("a",) and rotated.id != token.id


async def test_limits_that_make_no_sense(api: Api) -> None:
    boss = await api.person("boss", "admin")
    for body in (
        {"role": "worker", "tenant": "t"},
        {"role": "worker", "payloads": False},
        {"role": "admin", "queues": ["a"]},
        {"role": "admin", "job_types": ["a"]},
    ):
        assert code(await boss.post(f"{API}/tokens", json={"name": "x", **body}), 422) == "SCOPE_INVALID"
