"""Dead letters, and the internal endpoints that run executions without a handler, under gate-b2."""

from typing import Any

import pytest

from support.web.api import API, Api, code

pytestmark = pytest.mark.anyio


async def make_dead_letter(api: Api, client: Any = None, **body: Any) -> str:
    job = await api.submit(client, contract="gate-b2", **body)
    done = await (client or api.open).post(f"{API}/internal/jobs/{job['id']}/run?force_fail=true")
    assert done.json()["final_status"] == "failed", done.text
    return str(done.json()["dlq_id"])


async def test_run_succeeds(api: Api) -> None:
    job = await api.submit(contract="gate-b2")
    done = await api.open.post(f"{API}/internal/jobs/{job['id']}/run")
    assert done.json() == {
        "job_id": job["id"], "final_status": "succeeded", "retry_count": 0,
        "dlq_id": None, "retry_after_ms": None, "retry_at": None}  # fmt: skip
    for query in ("", "?force_fail=true", "?transient_fail=true"):
        again = await api.open.post(f"{API}/internal/jobs/{job['id']}/run{query}")
        assert code(again, 409) == "WF_STATE_TRANSITION_INVALID"


async def test_the_fourth_transient_failure_makes_a_dead_letter(api: Api) -> None:
    job = await api.submit(contract="gate-b2")
    path = f"{API}/internal/jobs/{job['id']}/run?transient_fail=true"
    for number in (1, 2, 3):
        result = (await api.open.post(path)).json()
        assert (result["final_status"], result["retry_count"], result["dlq_id"]) == (
            "retrying",
            number,
            None,
        )
        low = 1_000 * 2 ** (number - 1)
        assert low <= result["retry_after_ms"] <= low + 300 and result["retry_at"]
    result = (await api.open.post(path)).json()
    assert result["final_status"] == "failed" and result["retry_count"] == 3 and result["retry_after_ms"] is None
    item = (await api.open.get(f"{API}/dlq/items/{result['dlq_id']}")).json()
    assert item["job_id"] == job["id"] and item["status"] == "open" and item["retry_count"] == 3
    events = (await api.open.get(f"{API}/jobs/{job['id']}/events")).json()["items"]
    moved = [event["target"] for event in events if not event["note"]]
    assert moved[-3:] == ["dlq_pending", "dlq_recorded", "failed"]


async def test_run_refuses_a_job_that_a_worker_holds(api: Api) -> None:
    job = await api.submit(contract="gate-b2")
    await api.engine.claim(api.engine.claim_request("worker", 1, 60.0))
    assert code(await api.open.post(f"{API}/internal/jobs/{job['id']}/run"), 409) == "WF_STATE_TRANSITION_INVALID"


async def test_a_transition_must_be_in_the_contract(api: Api) -> None:
    job = await api.submit(contract="gate-b2")
    path = f"{API}/internal/jobs/{job['id']}/transition"
    for status in ("succeeded", "nowhere", "queued"):
        assert code(await api.open.post(path, json={"new_status": status}), 409) == "WF_STATE_TRANSITION_INVALID"
    assert (await api.open.post(path, json={"new_status": "running"})).json()["status"] == "running"
    assert (await api.open.post(f"{API}/internal/jobs/{job['id']}/run")).json()["final_status"] == "succeeded"


async def test_a_transition_says_from_which_worker_it_takes_the_job(api: Api) -> None:
    job = await api.submit(contract="gate-b2")
    path = f"{API}/internal/jobs/{job['id']}"
    await api.engine.claim(api.engine.claim_request("worker-7", 1, 60.0))
    moved = (await api.open.post(f"{path}/transition", json={"new_status": "dlq_pending"})).json()
    assert (moved["status"], moved["taken_from"]) == ("failed", "worker-7")
    events = (await api.open.get(f"{API}/jobs/{job['id']}/events")).json()["items"]
    assert [(e["target"], (e["data"] or {}).get("taken_from")) for e in events[2:]] == [
        ("dlq_pending", "worker-7"),
        ("dlq_recorded", None),
        ("failed", None),
    ]
    free = await api.submit(contract="gate-b2")
    moved = (await api.open.post(f"{API}/internal/jobs/{free['id']}/transition", json={"new_status": "running"})).json()
    assert moved["taken_from"] is None
    again = await api.open.post(f"{API}/internal/jobs/{free['id']}/transition", json={"new_status": "retrying"})
    assert again.json()["taken_from"] is None, "the internal endpoints held it themselves"


async def test_a_dead_letter_is_requeued_once(api: Api) -> None:
    dlq_id = await make_dead_letter(api, payload={"n": 1})
    requeued = await api.open.post(f"{API}/dlq/items/{dlq_id}/requeue", json={"payload": {"n": 2}})
    assert requeued.status_code == 201 and requeued.json()["job"]["requeued_from"] == dlq_id
    assert requeued.json()["job"]["payload"] == {"n": 2}
    assert code(await api.open.post(f"{API}/dlq/items/{dlq_id}/requeue"), 409) == "DLQ_REQUEUE_CONFLICT"
    assert code(await api.open.post(f"{API}/dlq/items/nope/requeue"), 404) == "DLQ_ITEM_NOT_FOUND"


async def test_a_discard_needs_two_people_not_two_tokens(api: Api) -> None:
    ann, ann_too = await api.person("ann", "reviewer"), await api.person("ann", "admin")
    bob = await api.person("bob", "reviewer")
    dlq_id = await make_dead_letter(api, ann_too)
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
    entries = (await ann_too.get(f"{API}/audit", params={"subject": dlq_id})).json()["items"]
    assert [(entry["actor"], entry["act"]) for entry in entries] == [
        ("bob", "dlq.discard"),
        ("ann", "dlq.discard.propose"),
    ]


async def test_an_open_api_counts_as_one_person(api: Api) -> None:
    path = f"{API}/dlq/items/{await make_dead_letter(api)}/discard"
    assert (await api.open.post(path, json={"reason": "old"})).status_code == 202
    assert code(await api.open.post(path, json={"reason": "old"}), 400) == "APPROVAL_REQUIRED"


async def test_more_dead_letters_than_a_page_are_requeued_by_their_ids(api: Api) -> None:
    await make_dead_letter(api)
    (item,) = (await api.open.get(f"{API}/dlq/items")).json()["items"]
    ids = [item["dlq_id"], *(f"gone-{number}" for number in range(700))]
    done = await api.open.post(f"{API}/dlq/requeue", json={"ids": ids, "dry_run": False})
    assert (done.json()["matched"], done.json()["done"]) == (1, 1)


async def test_bulk_requeue_and_discard_with_dry_run(api: Api) -> None:
    for number in range(3):
        await make_dead_letter(api, queue="a" if number else "b")
    dry = (await api.open.post(f"{API}/dlq/requeue", json={"queue": "a"})).json()
    assert (dry["dry_run"], dry["matched"], dry["done"], dry["job_ids"]) == (True, 2, 0, [])
    done = (await api.open.post(f"{API}/dlq/requeue", json={"queue": "a", "dry_run": False})).json()
    assert done["done"] == 2 and len(done["job_ids"]) == 2
    left = (await api.open.get(f"{API}/dlq/items", params={"status": "open"})).json()["items"]
    assert [item["queue"] for item in left] == ["b"]
    for_two = (await api.open.post(f"{API}/dlq/discard", json={"reason": "old", "dry_run": False})).json()
    assert for_two["done"] == 0 and for_two["for_two"] == 1
    assert code(await api.open.post(f"{API}/dlq/discard", json={"reason": " "}), 422) == "INPUT_INVALID"
