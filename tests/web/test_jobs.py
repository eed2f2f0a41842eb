"""Jobs over HTTP: submit, get, list, events, errors, idempotency keys."""

import asyncio

import pytest

from detent.engine.reads import listing
from detent.ports.listing import Filter
from support.web.api import API, Api, code

pytestmark = pytest.mark.anyio
UNKNOWN_ID = "01900000-0000-7000-8000-000000000000"


async def test_a_new_job_is_201_and_an_existing_one_200(api: Api) -> None:
    body = {"job_type": "mail", "payload": {"to": "ann"}, "idempotency_key": "k"}
    first = await api.open.post(f"{API}/jobs", json=body)
    again = await api.open.post(f"{API}/jobs", json=body)
    assert (first.status_code, again.status_code) == (201, 200)
    assert not first.json()["idempotent_hit"] and again.json()["idempotent_hit"]
    assert first.json()["job"]["id"] == again.json()["job"]["id"]
    other = await api.open.post(f"{API}/jobs", json={**body, "payload": {"to": "bob"}})
    assert code(other, 409) == "IDEMPOTENCY_CONFLICT" and other.json()["conflict_fields"] == ["payload"]


async def test_a_men_job_shows_its_task(api: Api) -> None:
    created = (await api.open.post(f"{API}/jobs", json={"contract": "men", "task_id": "t1"})).json()
    assert created["task"]["task_id"] == "t1" and created["job"]["job_type"] == "task" and len(created["task"]) == 13


async def test_an_invalid_submission_is_422_and_creates_nothing(api: Api) -> None:
    for body, error_code in (
        ({"job_type": "x", "contract": "gate-b2", "max_retries": 5}, "MAX_RETRIES_FROZEN"),
        ({"job_type": "x", "contract": "nope"}, "CONTRACT_UNKNOWN"),
        ({"job_type": "x", "contract": "men", "schedule_type": "cron"}, "TASK_INVALID_SCHEDULE"),
        ({"job_type": "x", "colour": "red"}, "FIELD_UNKNOWN"),
        ({"job_type": "x", "contract": "gate-b2", "deadline": 30}, "DEADLINE_UNSUPPORTED"),
        ({"job_type": "x", "deadline": True}, "DEADLINE_INVALID"),
        ({"job_type": "x", "deadline": "2020-01-01T00:00:00Z"}, "DEADLINE_PASSED"),
        ({"job_type": "x", "limit_key": 7}, "NAME_INVALID"),
        ({"payload": {}}, "INPUT_INVALID"),
        ([], "INPUT_INVALID"),
    ):
        assert code(await api.open.post(f"{API}/jobs", json=body), 422) == error_code, body
    assert (await api.open.get(f"{API}/jobs")).json() == {"items": [], "next_cursor": None, "searched_until": None}


async def test_the_time_zone_of_a_schedule_has_one_name_in_requests_and_answers(api: Api) -> None:
    """tz is accepted as another name of it."""
    base = {"job_type": "mail", "cron": "0 3 * * *"}
    for number, name in enumerate(("timezone", "tz")):
        path = f"{API}/schedules/n{number}"
        created = await api.open.post(f"{API}/schedules", json={**base, "name": f"n{number}", name: "Europe/Berlin"})
        assert created.status_code == 201 and created.json()["timezone"] == "Europe/Berlin"
        assert (await api.open.patch(path, json={name: "Asia/Shanghai"})).json()["timezone"] == "Asia/Shanghai"
        assert (await api.open.patch(path, json={"priority": 3})).json()["timezone"] == "Asia/Shanghai"
        assert (await api.open.patch(path, json={name: None})).json()["timezone"] == "UTC", "null resets it"
        preview = await api.open.post(f"{API}/schedules/preview", json={"cron": "0 3 * * *", name: "Asia/Shanghai"})
        assert preview.json()["timezone"] == "Asia/Shanghai"
        wrong = {**base, "name": "wrong", name: "Mars/Base"}
        for refused in (
            await api.open.post(f"{API}/schedules", json=wrong),
            await api.open.patch(path, json={name: "Mars/Base"}),
            await api.open.post(f"{API}/schedules/preview", json={"cron": "0 3 * * *", name: "Mars/Base"}),
        ):
            assert code(refused, 422) == "SCHEDULE_INVALID" and refused.json()["field"] == name
    both = await api.open.patch(f"{API}/schedules/n0", json={"timezone": "UTC", "tz": "Asia/Shanghai"})
    assert code(both, 422) == "INPUT_INVALID"


async def test_deadlines_and_limit_keys_of_jobs_and_schedules(api: Api) -> None:
    created = await api.submit(deadline=30, limit_key="smtp-7")
    stored_job = await api.engine.jobs.get(created["id"])
    assert stored_job.deadline_at == stored_job.created_at + 30_000_000 and stored_job.limit_key == "smtp-7"
    body = {"name": "tick", "job_type": "mail", "every": "1h", "deadline": 2.5}
    added = (await api.open.post(f"{API}/schedules", json=body)).json()
    assert added["deadline_seconds"] == 2.5 and added["retry_at"] is None
    changed = await api.open.patch(f"{API}/schedules/tick", json={"deadline": 90})
    assert changed.json()["deadline_seconds"] == 90
    refused = await api.open.patch(f"{API}/schedules/tick", json={"contract": "gate-b2"})
    assert code(refused, 422) == "DEADLINE_UNSUPPORTED"
    plain = (await api.open.patch(f"{API}/schedules/tick", json={"deadline": None})).json()
    assert plain["deadline_seconds"] is None and plain["expression"] == added["expression"]
    refused = await api.open.patch(f"{API}/schedules/tick", json={"every": None})
    assert code(refused, 422) == "SCHEDULE_INVALID"


async def test_bulk_submit_is_atomic(api: Api) -> None:
    created = await api.open.post(f"{API}/jobs/bulk", json={"jobs": [{"job_type": "a"}, {"job_type": "b"}]})
    assert created.status_code == 201 and [item["job"]["job_type"] for item in created.json()["items"]] == ["a", "b"]
    bad = await api.open.post(f"{API}/jobs/bulk", json={"jobs": [{"job_type": "c"}, {"job_type": ""}]})
    assert code(bad, 422) == "NAME_INVALID"
    assert len((await api.open.get(f"{API}/jobs")).json()["items"]) == 2


async def test_pages_contain_every_job_once(api: Api) -> None:
    ids = [(await api.submit(queue="odd" if n % 2 else "even"))["id"] for n in range(7)]
    seen, cursor = [], ""
    while cursor is not None:
        page = (await api.open.get(f"{API}/jobs?limit=3{cursor}")).json()
        seen += [job["id"] for job in page["items"]]
        cursor = page["next_cursor"] and f"&cursor={page['next_cursor']}"
    assert seen == ids[::-1]
    odd = (await api.open.get(f"{API}/jobs", params={"queue": "odd", "limit": 2})).json()
    assert [job["id"] for job in odd["items"]] == [ids[5], ids[3]] and odd["next_cursor"] == ids[3]
    rest = (await api.open.get(f"{API}/jobs", params={"queue": "odd", "cursor": ids[3]})).json()
    assert [job["id"] for job in rest["items"]] == [ids[1]] and rest["next_cursor"] is None
    assert code(await api.open.get(f"{API}/jobs?cursor=forged"), 422) == "INPUT_INVALID"
    assert code(await api.open.get(f"{API}/jobs?stauts=x"), 422) == "INPUT_INVALID"


async def test_a_job_is_304_until_it_changes(api: Api) -> None:
    path = f"{API}/jobs/{(await api.submit())['id']}"
    tag = (await api.open.get(path)).headers["etag"]
    same = await api.open.get(path, headers={"If-None-Match": f'"other", W/{tag}'})
    assert same.status_code == 304 and same.content == b"" and same.headers["etag"] == tag
    assert (await api.open.post(f"{path}/cancel", json={"reason": "no"})).json()["status"] == "cancelled"
    assert (await api.open.get(path, headers={"If-None-Match": tag})).status_code == 200


async def test_events_why_and_verify(api: Api) -> None:
    job = await api.submit()
    path = f"{API}/jobs/{job['id']}"
    await api.open.post(f"{path}/cancel")
    assert code(await api.open.post(f"{path}/cancel"), 409) == "JOB_TRANSITION_INVALID"
    log = (await api.open.get(f"{path}/events")).json()
    assert [(e["seq"], e["event"], e["note"]) for e in log["items"]] == [
        (1, "job.created", False), (2, "job.cancelled", False), (2, "move.refused", True)]  # fmt: skip
    page = (await api.open.get(f"{path}/events?limit=2")).json()
    assert page["next_cursor"] == "2" and len((await api.open.get(f"{path}/events?cursor=2")).json()["items"]) == 1
    assert (await api.open.get(f"{path}/why")).json()["reason"] == "FINISHED"
    assert (await api.open.get(f"{path}/verify")).json()["ok"]
    for tail in ("", "/events", "/why", "/verify"):
        assert code(await api.open.get(f"{API}/jobs/{UNKNOWN_ID}{tail}"), 404) == "JOB_NOT_FOUND"


async def test_an_idempotency_key_replays_the_response(api: Api) -> None:
    key, body = {"Idempotency-Key": "once"}, {"job_type": "mail"}
    two_keys = await api.open.post(f"{API}/jobs", json=body, headers=[*key.items(), ("Idempotency-Key", "twice")])
    assert code(two_keys, 422) == "IDEMPOTENCY_KEY_INVALID"
    first = await api.open.post(f"{API}/jobs", json=body, headers=key)
    again = await api.open.post(f"{API}/jobs", json=body, headers=key)
    assert again.status_code == 201 and again.content == first.content
    assert again.headers["idempotency-replayed"] == "true" and first.json()["job"]["idempotency_key"] is None
    other = await api.open.post(f"{API}/jobs", json={"job_type": "other"}, headers=key)
    assert code(other, 422) == "IDEMPOTENCY_KEY_REUSED"
    path = f"{API}/jobs/{first.json()['job']['id']}/cancel"
    refused = [await api.open.post(path, headers={"Idempotency-Key": f"c{n}"}) for n in (1, 2, 2)]
    assert [response.status_code for response in refused] == [200, 409, 409]
    assert refused[1].content == refused[2].content


async def test_concurrent_requests_with_one_key_create_one_job(api: Api) -> None:
    requests = [
        api.open.post(f"{API}/jobs", json={"job_type": "mail"}, headers={"Idempotency-Key": "race"}) for _ in range(12)
    ]
    responses = await asyncio.gather(*requests)
    assert {response.status_code for response in responses} <= {201, 409}
    assert {response.json()["code"] for response in responses if response.status_code == 409} <= {
        "IDEMPOTENCY_KEY_IN_FLIGHT"
    }
    assert len((await api.open.get(f"{API}/jobs")).json()["items"]) == 1


async def test_a_filter_with_few_matches_reads_a_bounded_number_of_jobs(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages may be short or empty, but together they contain every match once."""
    monkeypatch.setattr(listing, "_WINDOW", 4)
    ids = [(await api.submit(queue="rare" if n in (0, 9) else "common"))["id"] for n in range(12)]
    seen, pages, cursor = [], 0, None
    while True:
        filter = Filter(queue="rare", before=cursor, limit=5)
        page, cursor = await api.engine.jobs.page(filter, seconds=0.0)
        seen += [job.id for job in page]
        pages += 1
        if cursor is None:
            break
    assert seen == [ids[9], ids[0]] and pages >= 3
    whole = (await api.open.get(f"{API}/jobs", params={"queue": "rare"})).json()
    assert [job["id"] for job in whole["items"]] == seen and whole["next_cursor"] is None
