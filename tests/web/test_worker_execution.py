"""The worker protocol about a running job: steps, waits, signals, children, progress, log lines."""

from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from detent.proof.verify.verify import Scope, verify
from support.web.api import API, Api, code

pytestmark = pytest.mark.anyio


class RunningJob:
    """A job that this test has claimed over HTTP."""

    def __init__(self, api: Api, job: dict[str, Any]) -> None:
        self.api, self.job = api, job
        self.lease = {"job_id": job["id"], "token": job["token"]}

    async def post(self, action: str, client: httpx.AsyncClient | None = None, **body: Any) -> httpx.Response:
        return await (client or self.api.open).post(f"{API}/worker/{action}", json={**self.lease, **body})

    async def items(self, action: str, **body: Any) -> list[dict[str, Any]]:
        response = await self.post(action, **body)
        assert response.status_code == 200, response.text
        items: list[dict[str, Any]] = response.json()["items"]
        return items

    async def settle(self, **outcome: Any) -> str:
        response = await self.post("settle", **outcome)
        assert response.status_code == 200, response.text
        return str(response.json()["status"])


async def claim(api: Api, job_type: str = "mail") -> RunningJob:
    response = await api.open.post(f"{API}/worker/claim", json={"worker": "w1", "job_types": [job_type]})
    (job,) = response.json()["jobs"]
    return RunningJob(api, job)


async def run(api: Api, **options: Any) -> RunningJob:
    await api.submit(**options)
    return await claim(api)


async def verified(api: Api) -> bool:
    return (await verify(api.engine.store, api.engine.contracts, Scope())).ok


async def test_steps_are_recorded_once(api: Api) -> None:
    mine = await run(api)
    assert await mine.items("steps") == []
    first = (await mine.post("steps/record", name="pay", digest="d1", result={"receipt": 7})).json()
    assert (first["result"], first["finished"], first["execution_no"]) == ({"receipt": 7}, True, 1)
    again = await mine.post("steps/record", name="pay", digest="d1", result={"receipt": 8})
    assert again.status_code == 200 and again.json()["result"] == {"receipt": 7}
    changed = await mine.post("steps/record", name="pay", digest="d2", result={"receipt": 8})
    assert code(changed, 409) == "STEP_MISMATCH"
    assert await mine.settle(outcome="fail", retryable=True, after_seconds=0) == "retrying"
    second = await claim(api)
    assert [(step["name"], step["digest"], step["result"]) for step in await second.items("steps")] == [
        ("pay", "d1", {"receipt": 7})
    ]
    late = await mine.post("steps/record", name="ship", digest="")
    assert code(late, 409) == "LEASE_STALE"
    assert code(await mine.post("steps"), 409) == "LEASE_STALE"
    assert len(await second.items("steps")) == 1
    assert await second.settle(outcome="succeed") == "succeeded" and await verified(api)


async def test_two_children_of_one_name_are_refused(api: Api) -> None:
    mine = await run(api)
    twins = [{"name": "twin", "job_type": "mail", "payload": {"number": number}} for number in (1, 2)]
    assert code(await mine.post("children", children=twins), 422) == "INPUT_INVALID"
    assert (await api.open.get(f"{API}/jobs/{mine.job['id']}/children")).json()["items"] == []


@pytest.mark.parametrize(
    ("outcome", "values"),
    [
        ("succeed", {"reason": "done"}),
        ("succeed", {"wait": {"name": "paid"}}),
        ("fail", {"result": 0}),
        ("snooze", {"code": "BUSY"}),
        ("cancel", {"message": "no"}),
        ("stop", {"after_seconds": 0}),
        ("wait", {"wait": {"name": "paid"}, "retryable": False}),
    ],
)
async def test_an_outcome_has_only_its_own_values(api: Api, outcome: str, values: dict[str, Any]) -> None:
    mine = await run(api)
    refused = await mine.post("settle", outcome=outcome, **values)
    assert code(refused, 422) == "INPUT_INVALID" and refused.json()["field"] in values
    assert await mine.settle(outcome="succeed", result=1, reason=None, wait=None) == "succeeded"


async def test_a_step_that_was_begun_is_not_run_again(api: Api) -> None:
    mine = await run(api)
    begun = {"name": "transfer", "digest": "d", "finished": False}
    for _ in range(2):
        assert (await mine.post("steps/record", **begun)).json()["finished"] is False
    await mine.settle(outcome="fail", retryable=True, after_seconds=0)
    second = await claim(api)
    assert code(await second.post("steps/record", **begun), 409) == "ONCE_UNFINISHED"
    ended = await second.post("steps/record", name="transfer", digest="d", result=1)
    assert code(ended, 409) == "ONCE_UNFINISHED"
    assert (await second.items("steps"))[0]["finished"] is False


async def test_a_step_has_the_duration_that_its_worker_measured(api: Api) -> None:
    mine = await run(api)
    for name, seconds in (("pay", 0.0001), ("ship", None), ("pack", 3_600)):
        await mine.post("steps/record", name=name, result=1, duration_seconds=seconds)
    steps = (await api.open.get(f"{API}/jobs/{mine.job['id']}/steps")).json()["items"]
    times = {step["name"]: (step["started_at"], step["finished_at"]) for step in steps}
    start, end = map(datetime.fromisoformat, times["pay"])
    assert timedelta(microseconds=100) <= end - start < timedelta(seconds=1) and times["ship"][0] == times["ship"][1]
    job = (await api.open.get(f"{API}/jobs/{mine.job['id']}")).json()
    assert times["pack"][0] == job["started_at"], "no step begins before its execution"
    begun = await mine.post("steps/record", name="call", finished=False, duration_seconds=1)
    assert code(begun, 422) == "INPUT_INVALID"


async def test_a_snooze_says_for_how_long(api: Api) -> None:
    mine = await run(api)
    refused = await mine.post("settle", outcome="snooze")
    assert code(refused, 422) == "INPUT_INVALID" and "after_seconds" in refused.json()["detail"]
    assert await mine.settle(outcome="snooze", after_seconds=0) == "queued"


async def test_the_name_of_a_worker_has_at_most_100_characters(api: Api) -> None:
    answers = [
        await api.open.post(f"{API}/worker/claim", json={"worker": "w" * length, "job_types": ["mail"]})
        for length in (100, 101)
    ]
    assert [answer.status_code for answer in answers] == [200, 422]


async def test_a_step_may_have_the_result_null(api: Api) -> None:
    mine = await run(api)
    for name, values in {"left out": {}, "given": {"result": None}}.items():
        step = (await mine.post("steps/record", name=name, **values)).json()
        assert (step["result"], step["finished"]) == (None, True)
    early = await mine.post("steps/record", name="early", result=1, finished=False)
    assert code(early, 422) == "INPUT_INVALID" and early.json()["field"] == "result"
    assert await mine.settle(outcome="succeed") == "succeeded" and await verified(api)


async def test_wait_for_a_signal(api: Api) -> None:
    mine = await run(api)
    assert await mine.items("signals") == []
    assert await mine.settle(outcome="wait", wait={"name": "paid", "timeout_seconds": 60}) == "waiting"
    sent = await api.open.post(f"{API}/jobs/{mine.job['id']}/signal", json={"name": "paid", "data": {"amount": 5}})
    assert sent.status_code == 200
    second = await claim(api)
    (signal,) = await second.items("signals")
    assert (signal["name"], signal["data"], signal["timed_out"]) == ("paid", {"amount": 5}, False)
    assert await second.settle(outcome="wait", wait={"name": "paid"}) == "queued", "a signal that came is not awaited"
    third = await claim(api)
    assert await third.settle(outcome="wait", wait={"name": "nap", "kind": "timer", "timeout_seconds": 0}) == "waiting"
    await api.engine.wake()
    fourth = await claim(api)
    assert [s["timed_out"] for s in await fourth.items("signals") if s["name"] == "nap"] == [True]
    assert code(await fourth.post("settle", outcome="wait"), 422) == "WAIT_INVALID"
    assert await fourth.settle(outcome="succeed") == "succeeded" and await verified(api)


@pytest.mark.parametrize(
    "wait",
    [
        {"name": "nap", "kind": "timer"},
        {"name": "paid", "wakes_on": "any"},
        {"name": "gather", "kind": "signal", "children": ["01a1dd37-0000-7000-8000-000000000000"]},
    ],
)
async def test_a_wait_that_would_not_end_as_it_says_is_refused(api: Api, wait: dict[str, Any]) -> None:
    mine = await run(api)
    if "children" in wait:
        (child,) = await mine.items("children", children=[{"name": "pack", "job_type": "pack"}])
        wait = {**wait, "children": [child["id"]]}
    assert code(await mine.post("settle", outcome="wait", wait=wait), 422) == "WAIT_INVALID"
    assert await mine.settle(outcome="succeed") == "succeeded"


async def test_children(api: Api) -> None:
    mine = await run(api, tenant_id="acme")
    requests = [{"name": f"pack {n}", "job_type": "pack", "payload": {"n": n}} for n in range(2)]
    children = await mine.items("children", children=requests)
    assert [(child["name"], child["ended"]) for child in children] == [("pack 0", False), ("pack 1", False)]
    assert await mine.items("children", children=requests) == children, "a repeated call creates no more"
    changed = [{**requests[0], "payload": {"n": 9}}]
    assert code(await mine.post("children", children=changed), 409) == "STEP_MISMATCH"
    ids = [child["id"] for child in children]
    stored = (await api.open.get(f"{API}/jobs/{ids[0]}")).json()
    assert (stored["parent_id"], stored["tenant_id"]) == (mine.job["id"], "acme")
    foreign = await api.submit(job_type="other")
    unknown = await mine.post("settle", outcome="wait", wait={"name": "gather", "children": [foreign["id"]]})
    assert code(unknown, 422) == "CHILD_UNKNOWN"
    assert await mine.settle(outcome="wait", wait={"name": "gather", "children": ids}) == "parked"
    first = await claim(api, "pack")
    await first.settle(outcome="succeed", result=first.job["payload"]["n"])
    assert (await api.open.get(f"{API}/jobs/{mine.job['id']}")).json()["status"] == "parked"
    await (await claim(api, "pack")).settle(outcome="fail", code="BROKEN", message="no", retryable=False)
    woken = await claim(api)
    ended = await woken.items("children", children=requests)
    assert [(child["succeeded"], child["result"], child["error_code"]) for child in ended] == [
        (True, 0, None),
        (False, None, "BROKEN"),
    ]
    assert await woken.settle(outcome="succeed") == "succeeded" and await verified(api)


@pytest.mark.parametrize(
    ("child", "error"),
    [
        ({"job_type": "pack"}, "INPUT_INVALID"),
        ({"name": "c", "job_type": "pack", "idempotency_key": "k"}, "CHILD_KEY"),
        ({"name": "c", "job_type": "pack", "tenant_id": "other"}, "CHILD_TENANT"),
        ({"name": "c", "job_type": "pack", "colour": "red"}, "FIELD_UNKNOWN"),
    ],
)
async def test_bad_children(api: Api, child: dict[str, Any], error: str) -> None:
    mine = await run(api)
    assert code(await mine.post("children", children=[child]), 422) == error


async def test_a_limited_worker_enqueues_only_what_it_reaches(api: Api) -> None:
    await api.submit()
    worker = await api.person("biller", "worker", job_types=["mail"])
    claimed = await worker.post(f"{API}/worker/claim", json={"worker": "w", "job_types": ["mail"]})
    mine = RunningJob(api, claimed.json()["jobs"][0])
    refused = await mine.post("children", worker, children=[{"name": "c", "job_type": "secret"}])
    assert code(refused, 403) == "TOKEN_SCOPE_VIOLATION"
    other = await api.person("packer", "worker", job_types=["pack"])
    for action, body in (("steps", {}), ("signals", {}), ("progress", {"share": 1})):
        assert code(await mine.post(action, other, **body), 409) == "LEASE_STALE"


async def test_progress_and_log_lines(api: Api) -> None:
    mine = await run(api)
    for share in (0.25, 0.5):
        answer = await mine.post("progress", share=share, message="loading")
        assert answer.json() == {"cancel_requested": False}
    why = (await api.open.get(f"{API}/jobs/{mine.job['id']}/why")).json()
    assert "25" in str(why), why
    lines = [{"message": f"line {n}", "level": "WARNING"} for n in range(120)]
    for _ in range(2):
        assert (await mine.post("logs", lines=lines)).json() == {"stored": 120, "left_out": 0}
    assert await kept_lines(api, mine) == list(range(41, 241)), "later lines replace the first ones"
    wide = [{"message": "x" * 2_000}] * 20
    assert (await mine.post("logs", lines=wide)).json() == {"stored": 16, "left_out": 4}
    assert await kept_lines(api, mine) == list(range(245, 261)), "32 KiB"
    await api.open.post(f"{API}/jobs/{mine.job['id']}/cancel", json={"reason": "wrong"})
    assert (await mine.post("progress", share=0.75)).json() == {"cancel_requested": True}
    assert code(await mine.post("progress", share=1.5), 422) == "INPUT_INVALID"
    assert await mine.settle(outcome="cancel", reason="asked to") == "cancelled" and await verified(api)


async def kept_lines(api: Api, mine: RunningJob) -> list[int]:
    response = await api.open.get(f"{API}/jobs/{mine.job['id']}/logs")
    return [line["n"] for line in response.json()["items"]]
