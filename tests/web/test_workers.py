"""Workers over HTTP: claim, heartbeat, settle, drain."""

import asyncio
from typing import Any
from urllib.parse import quote

import pytest

from detent.engine.metrics import worker_throughput
from detent.web import Settings, create_app
from support.waiting import until
from support.web.api import API, Api, code

pytestmark = pytest.mark.anyio
CLAIM = {"worker": "w1", "job_types": ["mail"]}
RETRIED = {"outcome": "fail", "code": "E", "message": "no", "after_seconds": 60}


async def test_claim_heartbeat_settle(api: Api) -> None:
    job = await api.submit(payload={"to": "ann"})
    (mine,) = (await api.open.post(f"{API}/worker/claim", json=CLAIM)).json()["jobs"]
    assert mine["id"] == job["id"] and mine["payload"] == {"to": "ann"} and mine["execution_no"] == 1
    assert (await api.open.get(f"{API}/jobs/{job['id']}")).json()["worker"] == "local/w1"
    held = {mine["id"]: mine["token"], "01900000-0000-7000-8000-000000000000": "nope"}
    beat = (await api.open.post(f"{API}/worker/heartbeat", json={"worker": "w1", "held": held})).json()
    assert beat == {"lost": ["01900000-0000-7000-8000-000000000000"], "cancels": {}, "command": None}
    await api.open.post(f"{API}/jobs/{job['id']}/cancel", json={"reason": "stop"})
    beat = (await api.open.post(f"{API}/worker/heartbeat", json={"worker": "w1", "held": held})).json()
    assert beat["cancels"] == {mine["id"]: "stop"}
    end = {"job_id": mine["id"], "token": mine["token"], "outcome": "succeed", "result": {"sent": True}}
    for _ in range(2):
        done = await api.open.post(f"{API}/worker/settle", json=end)
        assert done.status_code == 200 and done.json()["status"] == "succeeded" and done.json()["ended"]
    stale = await api.open.post(f"{API}/worker/settle", json={**end, "token": "other"})
    assert code(stale, 409) == "LEASE_STALE"


async def test_every_outcome(api: Api) -> None:
    async def status_after(**outcome: object) -> str:
        job = await api.submit()
        claimed = (await api.open.post(f"{API}/worker/claim", json={**CLAIM, "limit": 5})).json()["jobs"]
        mine = next(claimed_job for claimed_job in claimed if claimed_job["id"] == job["id"])
        settlement = {"job_id": mine["id"], "token": mine["token"], **outcome}
        return str((await api.open.post(f"{API}/worker/settle", json=settlement)).json()["status"])

    assert await status_after(outcome="succeed") == "succeeded"
    assert await status_after(outcome="fail", code="E", message="no", retryable=False) == "failed"
    assert await status_after(outcome="fail", code="E", message="no", after_seconds=60) == "retrying"
    assert await status_after(outcome="cancel", reason="why not") == "cancelled"
    assert await status_after(outcome="snooze", after_seconds=60) == "queued"
    assert await status_after(outcome="stop") == "queued"


@pytest.mark.parametrize(
    ("contract", "status", "error_code"),
    [
        ("gate-b2", "failed", "JOB_EXECUTION_FAILED"),
        ("men", "ready", "TASK_EXECUTION_FAILED"),
        ("p3c", "retry_scheduled", "JOB_EXECUTION_FAILED"),
        ("standard", "retrying", "JOB_EXECUTION_FAILED"),
    ],
)
async def test_a_failure_that_says_nothing(api: Api, contract: str, status: str, error_code: str) -> None:
    """Without a code it gets the contract's own; gate-b2 retries only what says that it is retryable."""
    job = await api.submit(contract=contract)
    (mine,) = (await api.open.post(f"{API}/worker/claim", json=CLAIM)).json()["jobs"]
    failed = {"job_id": mine["id"], "token": mine["token"], "outcome": "fail", "message": "no"}
    assert (await api.open.post(f"{API}/worker/settle", json=failed)).json()["status"] == status
    assert (await api.open.get(f"{API}/jobs/{job['id']}")).json()["error_code"] == error_code


async def test_gate_b2_retries_a_failure_that_says_so(api: Api) -> None:
    await api.submit(contract="gate-b2")
    (mine,) = (await api.open.post(f"{API}/worker/claim", json=CLAIM)).json()["jobs"]
    failed = {"job_id": mine["id"], "token": mine["token"], "outcome": "fail", "retryable": True}
    assert (await api.open.post(f"{API}/worker/settle", json=failed)).json()["status"] == "retrying"


async def test_a_success_after_the_timeout_is_refused(api: Api) -> None:
    """A millisecond passes between two requests. The worker's clock plays no part: it sends no time."""
    job = await api.submit(contract="men", timeout_ms=1, max_retries=0)
    (mine,) = (await api.open.post(f"{API}/worker/claim", json=CLAIM)).json()["jobs"]
    await until(lambda: _is_overdue(api, job["id"]))
    end = {"job_id": mine["id"], "token": mine["token"], "outcome": "succeed"}
    assert code(await api.open.post(f"{API}/worker/settle", json=end), 409) == "LEASE_STALE"
    await until(api.engine.expire)
    beat = await api.open.post(f"{API}/worker/heartbeat", json={"worker": "w1", "held": {mine["id"]: mine["token"]}})
    assert beat.json()["lost"] == [mine["id"]]
    task = (await api.open.get(f"{API}/jobs/{job['id']}")).json()["view"]
    assert (task["state"], task["last_error_code"]) == ("failed", "TASK_RETRY_EXHAUSTED")
    assert task["last_error_reason"].startswith("TASK_TIMEOUT")


async def _is_overdue(api: Api, job_id: str) -> bool:
    return (await api.engine.jobs.get(job_id)).times_out_at < api.engine.store.now()


async def test_a_frozen_contract_refuses_after_seconds(api: Api) -> None:
    job = await api.submit(contract="gate-b2")
    (mine,) = (await api.open.post(f"{API}/worker/claim", json=CLAIM)).json()["jobs"]
    failure = {"job_id": mine["id"], "token": mine["token"], "outcome": "fail", "retryable": True}
    for seconds in (0.1, 60):
        refused = await api.open.post(f"{API}/worker/settle", json={**failure, "after_seconds": seconds})
        assert code(refused, 422) == "RETRY_DELAY_FROZEN"
        assert (await api.open.get(f"{API}/jobs/{job['id']}")).json()["status"] == "running"
    assert (await api.open.post(f"{API}/worker/settle", json=failure)).json()["status"] == "retrying"


async def test_backoff_over_http(api: Api) -> None:
    assert (await api.submit(backoff="60,300,900"))["backoff"] == "60,300,900"
    assert (await api.submit())["backoff"] is None
    frozen = {"job_type": "mail", "contract": "gate-b2", "backoff": "1"}
    assert code(await api.open.post(f"{API}/jobs", json=frozen), 422) == "BACKOFF_FROZEN"
    wrong = await api.open.post(f"{API}/jobs", json={"job_type": "mail", "backoff": "soon"})
    assert code(wrong, 422) == "BACKOFF_INVALID"


async def test_a_claim_waits_for_a_job(api: Api) -> None:
    waiting = asyncio.create_task(api.open.post(f"{API}/worker/claim", json={**CLAIM, "wait_seconds": 15.0}))
    while not await api.engine.store.read(lambda tx: tx.workers.list_workers()):
        await asyncio.sleep(0.01)
    job = await api.submit()
    response = await asyncio.wait_for(waiting, 10)
    assert [claimed_job["id"] for claimed_job in response.json()["jobs"]] == [job["id"]]
    empty = await api.open.post(f"{API}/worker/claim", json={**CLAIM, "wait_seconds": 0.05})
    assert empty.json()["jobs"] == []


async def test_why_knows_workers_over_http(api: Api) -> None:
    await api.open.post(f"{API}/worker/claim", json=CLAIM)
    await api.submit(job_type="other")
    job = await api.submit()
    assert (await api.open.get(f"{API}/jobs/{job['id']}/why")).json()["reason"] == "ANY_MOMENT"


async def test_tokens_that_may_not_claim(api: Api) -> None:
    redacted, with_tenant = await api.person("b", "admin", payloads=False), await api.person("t", "admin", tenant="t")
    assert code(await redacted.post(f"{API}/worker/claim", json=CLAIM), 403) == "PAYLOADS_REQUIRED"
    assert code(await with_tenant.post(f"{API}/worker/claim", json=CLAIM), 403) == "TENANT_SCOPE_VIOLATION"


async def test_drain_a_worker(api: Api) -> None:
    """It gets no more jobs, and its claims and heartbeats return the command. A new process begins without it."""
    await api.submit()
    claim = {**CLAIM, "slots": 4, "host": "node-1", "pid": 11}
    (mine,) = (await api.open.post(f"{API}/worker/claim", json=claim)).json()["jobs"]
    (row,) = await listed_workers(api)
    assert (row["busy"], row["slots"], row["load"], row["state"]) == (1, 4, 0.25, "working")
    assert (row["host"], row["pid"]) == ("node-1", 11) and [job["id"] for job in row["held"]] == [mine["id"]]
    waiting = asyncio.create_task(api.open.post(f"{API}/worker/claim", json={**claim, "wait_seconds": 20.0}))
    await until(lambda: api.app.state.web.commit_watch._waiting)
    assert (await api.open.post(f"{API}/workers/local/w1/drain")).status_code == 200
    assert (await asyncio.wait_for(waiting, 10)).json()["command"] == "drain"
    await api.submit()
    answer = (await api.open.post(f"{API}/worker/claim", json=claim)).json()
    assert answer["jobs"] == [] and answer["command"] == "drain"
    beat = {"worker": "w1", "held": {mine["id"]: mine["token"]}}
    assert (await api.open.post(f"{API}/worker/heartbeat", json=beat)).json()["command"] == "drain"
    (row,) = await listed_workers(api)
    assert (row["busy"], row["state"]) == (1, "draining")
    answer = (await api.open.post(f"{API}/worker/claim", json={**claim, "pid": 12})).json()
    assert len(answer["jobs"]) == 1 and answer["command"] is None


async def test_a_worker_what_it_runs_and_has_done(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_throughput, "_RANGE_EVENTS", 7)  # the log has more events than a range may have
    for outcome in ({"outcome": "succeed"}, {"outcome": "succeed"}, {"outcome": "fail", "retryable": False}, RETRIED):
        await api.submit()
        (mine,) = (await api.open.post(f"{API}/worker/claim", json=CLAIM)).json()["jobs"]
        await api.open.post(f"{API}/worker/settle", json={"job_id": mine["id"], "token": mine["token"], **outcome})
    for worker in ("w2", "w1"):
        running = await api.submit()
        (mine,) = (await api.open.post(f"{API}/worker/claim", json={**CLAIM, "worker": worker, "slots": 4})).json()[
            "jobs"
        ]
    report = {"job_id": mine["id"], "token": mine["token"], "share": 0.4, "message": "4 of 10"}
    await api.open.post(f"{API}/worker/progress", json=report)
    detail = (await api.open.get(f"{API}/workers/{quote('local/w1', safe='')}")).json()
    assert (detail["id"], detail["live"], detail["slots"], detail["busy"]) == ("local/w1", True, 4, 1)
    assert [job["id"] for job in detail["running_jobs"]] == [running["id"]]
    assert detail["running_jobs"][0]["progress"]["share"] == 0.4
    recent = detail["recent"]
    assert (recent["ended_well"], recent["ended_badly"], recent["retries"]) == (2, 1, 1)
    assert sum(point["ended_well"] for point in recent["points"]) == 2 and recent["seconds"] == 900.0
    other = (await api.open.get(f"{API}/workers/{quote('local/w2', safe='')}")).json()
    assert other["recent"]["ended_well"] == 0 and len(other["running_jobs"]) == 1
    monkeypatch.setattr(worker_throughput, "MAX_EVENTS", 4)
    recent = (await api.open.get(f"{API}/workers/{quote('local/w1', safe='')}")).json()["recent"]
    assert recent["ended_well"] == 0 and recent["seconds"] < 900, "says how far it looked"
    assert code(await api.open.get(f"{API}/workers/gone"), 404) == "WORKER_NOT_FOUND"
    blind = await api.person("blind", "viewer", payloads=False)
    hidden = (await blind.get(f"{API}/workers/{quote('local/w1', safe='')}")).json()
    assert hidden["running_jobs"][0]["progress"]["message"] == ""


async def test_a_worker_that_deregisters_is_not_listed(api: Api) -> None:
    await api.open.post(f"{API}/worker/claim", json=CLAIM)
    await api.open.post(f"{API}/workers/local/w1/stop")
    answer = await api.open.post(f"{API}/worker/deregister", json={"worker": "w1"})
    assert answer.json() == {"worker": "local/w1"} and await listed_workers(api) == []
    assert (await api.open.post(f"{API}/worker/claim", json=CLAIM)).json()["command"] is None


async def test_long_names_of_workers_are_not_cut(api: Api) -> None:
    boss = await api.person("b" * 120, "admin")
    refused = await boss.post(f"{API}/worker/claim", json={"worker": "w" * 90, "job_types": ["mail"]})
    assert code(refused, 422) == "INPUT_INVALID" and refused.json()["field"] == "worker"


async def listed_workers(api: Api) -> list[dict[str, Any]]:
    workers: list[dict[str, Any]] = (await api.open.get(f"{API}/workers")).json()["items"]
    return workers


async def test_a_server_sweeps_before_its_first_request(api: Api) -> None:
    """Else no lease ended and no webhook was sent after a restart, until somebody called."""
    app = create_app(api.engine, Settings(sweep=True))
    async with asyncio.timeout(5), app.router.lifespan_context(app):
        while not any(task.get_name() == "detent-web-maintenance" for task in asyncio.all_tasks()):
            await asyncio.sleep(0)
