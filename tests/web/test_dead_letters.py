"""Dead letters and the endpoints that play executions by hand, as gate-b2 asks for them."""

from typing import Any

import pytest

from web.conftest import API, Api, code

pytestmark = pytest.mark.anyio


async def dead(api: Api, client: Any = None, **body: Any) -> str:
    job = await api.submit(client, contract="gate-b2", **body)
    done = await (client or api.open).post(f"{API}/internal/jobs/{job['id']}/run?force_fail=true")
    assert done.json()["final_status"] == "failed", done.text
    return str(done.json()["dlq_id"])


async def test_an_execution_played_well(api: Api) -> None:
    job = await api.submit(contract="gate-b2")
    done = await api.open.post(f"{API}/internal/jobs/{job['id']}/run")
    assert done.json() == {
        "job_id": job["id"], "final_status": "succeeded", "retry_count": 0,
        "dlq_id": None, "retry_after_ms": None, "retry_at": None}  # fmt: skip
    for how in ("", "?force_fail=true", "?transient_fail=true"):
        again = await api.open.post(f"{API}/internal/jobs/{job['id']}/run{how}")
        assert code(again, 409) == "WF_STATE_TRANSITION_INVALID"


async def test_the_fourth_passing_failure_ends_among_the_dead_letters(api: Api) -> None:
    job = await api.submit(contract="gate-b2")
    path = f"{API}/internal/jobs/{job['id']}/run?transient_fail=true"
    for number in (1, 2, 3):
        told = (await api.open.post(path)).json()
        assert (told["final_status"], told["retry_count"], told["dlq_id"]) == ("retrying", number, None)
        low = 1_000 * 2 ** (number - 1)
        assert low <= told["retry_after_ms"] <= low + 300 and told["retry_at"]
    told = (await api.open.post(path)).json()
    assert told["final_status"] == "failed" and told["retry_count"] == 3 and told["retry_after_ms"] is None
    item = (await api.open.get(f"{API}/dlq/items/{told['dlq_id']}")).json()
    assert item["job_id"] == job["id"] and item["status"] == "open" and item["retry_count"] == 3
    events = (await api.open.get(f"{API}/jobs/{job['id']}/events")).json()["events"]
    moved = [event["target"] for event in events if not event["note"]]
    assert moved[-3:] == ["dlq_pending", "dlq_recorded", "failed"]


async def test_a_job_another_holds_is_not_played(api: Api) -> None:
    job = await api.submit(contract="gate-b2")
    await api.engine.claim(api.engine.claim_request("worker", 1, 60.0))
    assert code(await api.open.post(f"{API}/internal/jobs/{job['id']}/run"), 409) == "WF_STATE_TRANSITION_INVALID"


async def test_a_transition_is_asked_of_the_table(api: Api) -> None:
    job = await api.submit(contract="gate-b2")
    path = f"{API}/internal/jobs/{job['id']}/transition"
    for status in ("succeeded", "nowhere", "queued"):
        assert code(await api.open.post(path, json={"new_status": status}), 409) == "WF_STATE_TRANSITION_INVALID"
    assert (await api.open.post(path, json={"new_status": "running"})).json()["status"] == "running"
    assert (await api.open.post(f"{API}/internal/jobs/{job['id']}/run")).json()["final_status"] == "succeeded"


async def test_requeue_once(api: Api) -> None:
    dlq_id = await dead(api, payload={"n": 1})
    made = await api.open.post(f"{API}/dlq/items/{dlq_id}/requeue", json={"payload": {"n": 2}})
    assert made.status_code == 201 and made.json()["job"]["requeued_from"] == dlq_id
    assert made.json()["job"]["payload"] == {"n": 2}
    assert code(await api.open.post(f"{API}/dlq/items/{dlq_id}/requeue"), 409) == "DLQ_REQUEUE_CONFLICT"
    assert code(await api.open.post(f"{API}/dlq/items/nope/requeue"), 404) == "DLQ_ITEM_NOT_FOUND"


async def test_discard_counts_people_and_not_tokens(api: Api) -> None:
    ann, ann_too = await api.person("ann", "reviewer"), await api.person("ann", "admin")
    bob = await api.person("bob", "reviewer")
    dlq_id = await dead(api, ann_too)
    path = f"{API}/dlq/items/{dlq_id}/discard"
    assert code(await ann.post(path, json={"reason": "  "}), 400) == "APPROVAL_REQUIRED"
    assert code(await ann.post(path), 400) == "APPROVAL_REQUIRED"
    proposed = await ann.post(path, json={"reason": "old"})
    assert proposed.status_code == 202 and proposed.json()["item"]["proposed_by"] == "ann"
    assert code(await ann_too.post(path, json={"reason": "sure"}), 400) == "APPROVAL_REQUIRED"
    assert (await ann.get(f"{API}/dlq/items/{dlq_id}")).json()["status"] == "open"
    gone = await bob.post(path, json={"reason": "agreed"})
    assert gone.status_code == 200 and gone.json()["item"]["status"] == "discarded"
    assert code(await bob.post(path, json={"reason": "again"}), 409) == "DLQ_DISCARD_CONFLICT"
    told = (await ann_too.get(f"{API}/audit", params={"subject": dlq_id})).json()["items"]
    assert [(one["actor"], one["act"]) for one in told] == [("bob", "dlq.discard"), ("ann", "dlq.discard.propose")]


async def test_an_open_api_is_one_person(api: Api) -> None:
    path = f"{API}/dlq/items/{await dead(api)}/discard"
    assert (await api.open.post(path, json={"reason": "old"})).status_code == 202
    assert code(await api.open.post(path, json={"reason": "old"}), 400) == "APPROVAL_REQUIRED"


async def test_many_at_once_after_a_dry_run(api: Api) -> None:
    for number in range(3):
        await dead(api, queue="a" if number else "b")
    dry = (await api.open.post(f"{API}/dlq/requeue", json={"queue": "a"})).json()
    assert (dry["dry_run"], dry["matched"], dry["done"], dry["job_ids"]) == (True, 2, 0, [])
    done = (await api.open.post(f"{API}/dlq/requeue", json={"queue": "a", "dry_run": False})).json()
    assert done["done"] == 2 and len(done["job_ids"]) == 2
    left = (await api.open.get(f"{API}/dlq/items", params={"status": "open"})).json()["items"]
    assert [item["queue"] for item in left] == ["b"]
    for_two = (await api.open.post(f"{API}/dlq/discard", json={"reason": "old", "dry_run": False})).json()
    assert for_two["done"] == 0 and for_two["for_two"] == 1
    assert code(await api.open.post(f"{API}/dlq/discard", json={"reason": " "}), 422) == "INPUT_INVALID"
