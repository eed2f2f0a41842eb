"""Somebody who knows only the men document submits, follows, reads and cancels a task. Its names are typed in here."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from detent.core.job import Failure
from detent.core.outcome import Failed, Succeeded
from support.web.api import API, Api, code

pytestmark = pytest.mark.anyio
TASKS = f"{API}/tasks"
REQUEST: dict[str, Any] = {
    "task_id": "task_20260225_0001",
    "schedule_type": "at",
    "scheduled_at": "2026-02-25T12:00:00Z",
    "timeout_ms": 30000,
    "max_retries": 2,
    "idempotency_key": "order_1001",
    "idempotency_scope": "tenant_a",
    "payload": {"channel": "dingtalk", "request_id": "req-1"},
}
TASK = [
    *("task_id", "schedule_type", "state", "attempt", "max_retries", "timeout_ms", "idempotency_key"),
    *("last_error_code", "last_error_reason", "created_at", "updated_at", "started_at", "finished_at"),
]
EVENT = ["type", "source", "session_key", "event_id", "payload"]
PAYLOAD = [
    *("task_id", "from_state", "to_state", "occurred_at", "attempt", "reason_code", "reason_message", "idempotent_hit"),
]


async def run_task(api: Api, *outcomes: Any) -> None:
    """What the scheduler does with a task: one execution per outcome."""
    for outcome in outcomes:
        (claimed,) = await api.engine.claim(api.engine.claim_request("bridge", 1))
        await api.engine.settle(claimed.id, claimed.token, outcome)


async def read(api: Api, path: str = "") -> Any:
    response = await api.open.get(f"{TASKS}/{REQUEST['task_id']}{path}")
    assert response.status_code == 200, response.text
    return response.json()


async def test_the_request_of_the_document_is_accepted_as_it_is(api: Api) -> None:
    made = await api.open.post(TASKS, json=REQUEST)
    assert made.status_code == 201, made.text
    assert list(made.json()) == ["idempotent_hit", "task"]
    assert made.headers["location"] == f"{TASKS}/task_20260225_0001"
    task = made.json()["task"]
    assert (made.json()["idempotent_hit"], list(task)) == (False, TASK)
    kept = {name: task[name] for name in REQUEST if name in task}
    assert kept == {name: REQUEST[name] for name in kept} and len(kept) == 5
    assert (task["state"], task["attempt"], task["last_error_code"]) == ("ready", 1, None)

    again = await api.open.post(TASKS, json=copy.deepcopy(REQUEST))
    assert (again.status_code, again.json()) == (200, {"idempotent_hit": True, "task": task})
    assert await read(api) == task


async def test_a_task_id_in_any_script(api: Api) -> None:
    made = await api.open.post(TASKS, json={**REQUEST, "task_id": "任务 7"})
    assert made.status_code == 201, made.text
    assert (await api.open.get(made.headers["location"])).json() == made.json()["task"]
    assert (await api.open.get(f"{API}/jobs/任务 7")).json()["view"] == made.json()["task"]


async def test_a_task_is_followed_to_its_end(api: Api) -> None:
    await api.open.post(TASKS, json=REQUEST)
    boom = Failed(Failure("", "no answer from the channel"))
    await run_task(api, boom, boom, boom)
    task = await read(api)
    assert (task["state"], task["attempt"], task["last_error_code"]) == ("failed", 3, "TASK_RETRY_EXHAUSTED")
    assert task["last_error_reason"] == "TASK_EXECUTION_FAILED: no answer from the channel"
    events = (await read(api, "/events"))["items"]
    assert [list(event) for event in events] == [EVENT] * 7
    assert [list(event["payload"]) for event in events] == [PAYLOAD] * 7
    assert {event["type"] for event in events} == {"task_state_changed"}
    steps = [(e["payload"]["from_state"], e["payload"]["to_state"], e["payload"]["attempt"]) for e in events]
    assert steps == [
        ("pending", "ready", 1),
        ("ready", "running", 1),
        ("running", "ready", 1),
        ("ready", "running", 2),
        ("running", "ready", 2),
        ("ready", "running", 3),
        ("running", "failed", 3),
    ]
    codes = [event["payload"]["reason_code"] for event in events if event["payload"]["from_state"] == "running"]
    assert codes == ["TASK_EXECUTION_FAILED", "TASK_EXECUTION_FAILED", "TASK_RETRY_EXHAUSTED"]
    part = (await read(api, "/events?limit=3")), (await read(api, "/events?limit=5&cursor=3"))
    assert [page["items"] for page in part] == [events[:3], events[3:]]


async def test_a_task_is_cancelled_and_then_ended(api: Api) -> None:
    await api.open.post(TASKS, json=REQUEST)
    cancelled = await api.open.post(f"{TASKS}/{REQUEST['task_id']}/cancel")
    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")
    assert await read(api) == cancelled.json()
    again = await api.open.post(f"{TASKS}/{REQUEST['task_id']}/cancel", json={"reason": "twice"})
    assert code(again, 409) == "TASK_INVALID_TRANSITION"


async def test_a_task_that_succeeds(api: Api) -> None:
    await api.open.post(TASKS, json=REQUEST)
    await run_task(api, Succeeded('"sent"'))
    task = await read(api)
    assert (task["state"], task["attempt"]) == ("succeeded", 1)
    assert task["started_at"] and task["finished_at"]


async def test_a_duplicate_names_the_fields_and_the_task(api: Api) -> None:
    task = (await api.open.post(TASKS, json=REQUEST)).json()["task"]
    refused = await api.open.post(TASKS, json={**REQUEST, "timeout_ms": 1, "max_retries": 5})
    assert code(refused, 409) == "TASK_DUPLICATE"
    assert (sorted(refused.json()["conflict_fields"]), refused.json()["task"]) == (["max_retries", "timeout_ms"], task)


def test_the_page_shows_the_same_names() -> None:
    page = (Path(__file__).parents[2] / "docs" / "understand" / "contracts.md").read_text("utf-8")
    section = page.partition("\n## men\n")[2].partition("\n## ")[0]
    request, task, event = (json.loads(block) for block in re.findall(r"```json\n(.*?)```", section, re.DOTALL))
    assert (list(request), list(task), list(event)) == (list(REQUEST), TASK, EVENT)
    assert list(event["payload"]) == PAYLOAD


async def test_an_offset_other_than_utc_is_refused(api: Api) -> None:
    """In a task and in a schedule of tasks alike."""
    refused = await api.open.post(TASKS, json={**REQUEST, "scheduled_at": "2026-02-25T20:00:00+08:00"})
    assert code(refused, 422) == "TIME_INVALID" and refused.json()["field"] == "scheduled_at"
    schedule = {"name": "once", "job_type": "task", "contract": "men", "at": "2030-02-25T20:00:00+08:00"}
    refused = await api.open.post(f"{API}/schedules", json=schedule)
    assert code(refused, 422) == "TASK_INVALID_SCHEDULE" and refused.json()["field"] == "at"
    made = await api.open.post(f"{API}/schedules", json={**schedule, "at": "2030-02-25T12:00:00Z"})
    assert made.status_code == 201, made.text
    other = await api.open.post(f"{API}/schedules", json={**schedule, "name": "other", "contract": "standard"})
    assert json.loads(other.text)["expression"] == "2030-02-25T12:00:00Z", "other contracts convert"


async def test_what_is_no_task_is_not_found(api: Api) -> None:
    job = await api.submit(contract="p3c", task_id="nightly")
    for task_id in ("unknown", "nightly", job["id"]):
        assert code(await api.open.get(f"{TASKS}/{task_id}"), 404) == "JOB_NOT_FOUND"


async def test_a_task_of_another_tenant_is_unknown(api: Api) -> None:
    await api.open.post(TASKS, json={**REQUEST, "tenant_id": "acme"})
    ann, bob = await api.person("ann", "operator", tenant="acme"), await api.person("bob", "operator", tenant="other")
    path = f"{TASKS}/{REQUEST['task_id']}"
    assert (await ann.get(path)).json()["state"] == "ready"
    for answer in (await bob.get(path), await bob.get(f"{path}/events"), await bob.post(f"{path}/cancel")):
        assert code(answer, 404) == "JOB_NOT_FOUND"


@pytest.mark.parametrize("contract", ["gate-b2", "men", "p3c", "formal", "standard"])
async def test_jobs_are_listed_by_task_id(api: Api, contract: str) -> None:
    mine = await api.submit(contract=contract, task_id="order-7")
    await api.submit(contract=contract, task_id="order-8")
    listed = (await api.open.get(f"{API}/jobs", params={"task_id": "order-7"})).json()
    assert [job["id"] for job in listed["items"]] == [mine["id"]]


async def test_streams_tasks_are_listed_by_their_own_id(api: Api) -> None:
    mine = await api.submit(contract="streams")
    listed = (await api.open.get(f"{API}/jobs", params={"task_id": mine["id"]})).json()
    assert [job["id"] for job in listed["items"]] == [mine["id"]]
