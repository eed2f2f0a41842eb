"""The endpoints of the dashboard: overview, series, job detail, bulk actions, approvals, verification."""

from typing import Any

import pytest

from detent.core.job import Failure, LogLine, Step
from detent.core.outcome import Failed, Snoozed, Succeeded
from detent.engine import Submission
from detent.engine.execution.steps import record_progress
from detent.engine.metrics.time_series import SeriesRecorder
from detent.observability.job_logs import store_lines
from detent.ports.metrics import SlotSums, SubjectSlot
from support.waiting import until
from support.web.api import API, Api, code

pytestmark = pytest.mark.anyio


async def get_json(api: Api, path: str, **query: Any) -> dict[str, Any]:
    response = await api.open.get(f"{API}/{path}", params=query)
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


async def claim_and_settle(api: Api, job_type: str, outcome: Any) -> None:
    request = api.engine.claim_request("w", 1, job_types=[job_type])
    [claimed] = await api.engine.claim(request)
    await api.engine.settle(claimed.id, claimed.token, outcome)


@pytest.mark.usefixtures("fast_counts")
async def test_the_overview_counts_jobs(api: Api) -> None:
    for _ in range(3):
        await api.submit(queue="a")
    await api.submit(queue="b", contract="gate-b2", job_type="other")
    await claim_and_settle(api, "mail", Succeeded("{}"))
    overview = await get_json(api, "overview")
    assert overview["jobs"] == 4 and overview["phases"] == {"claimable": 3, "leased": 0, "blocked": 0, "final": 1}
    assert {row["queue"]: row["due"] for row in overview["queues"]} == {"a": 2, "b": 1}
    assert overview["dead_letters"] == {} and overview["workers"] == {"live": 0, "busy": 0, "slots": 0}
    assert sum(sum(statuses.values()) for statuses in overview["statuses"].values()) == 4


async def test_the_series_counts_every_event_once(api: Api) -> None:
    """Also with two recorders, one of which runs twice."""
    for _ in range(4):
        await api.submit()
    await claim_and_settle(api, "mail", Succeeded("{}"))
    await claim_and_settle(api, "mail", Failed(Failure("BROKEN", "for good", retryable=False)))
    first, second = SeriesRecorder(api.engine), SeriesRecorder(api.engine)
    for recorder in (first, second, first):
        assert await recorder.catch_up()
    for span, points in (("5m", 30), ("15m", 30), ("hour", 60), ("6h", 72), ("day", 96), ("week", 84), ("30d", 90)):
        series = await get_json(api, "series", span=span)
        assert len(series["points"]) == points and series["points"][-1]["at"] < series["at"]
    groups = await get_json(api, "series/groups", span="30d", by="tenant")
    assert groups["by"] == "tenant" and len(groups["items"]) <= 1
    assert code(await api.open.get(f"{API}/series?span=year"), 422) == "INPUT_INVALID"
    assert code(await api.open.get(f"{API}/series?queue=a&job_type=b"), 422) == "INPUT_INVALID"

    async def read(tx: Any) -> Any:
        return await tx.series.read_slots(10, 0, 1 << 50, "all", None)

    slots = await api.engine.store.read(read)
    assert 1 <= len(slots) <= 2, "one or two intervals"
    sums = SlotSums()
    for slot in slots:
        sums.add(slot.sums)
    assert (sums.submitted, sums.succeeded, sums.failed, sums.retried) == (4, 1, 1, 0)
    assert sum(sums.waits.values()) == sum(sums.runs.values()) == 2 and sums.waited > 0 and sums.ran > 0


async def test_a_tenant_sees_only_its_own_series(api: Api) -> None:
    """Queues and types are shared with others."""
    boss = await api.person("boss", "admin")
    for tenant in ("a", "b", "b"):
        await api.submit(boss, tenant_id=tenant)
    await SeriesRecorder(api.engine).catch_up()
    bound = await api.person("tina", "viewer", tenant="a")

    async def submitted(**query: str) -> int:
        response = await bound.get(f"{API}/series", params={"span": "30d", **query})
        assert response.status_code == 200 and response.json()["name"] == "a"
        return sum(slot.sums.submitted for slot in await _slots(api, response.json()["by"], response.json()["name"]))

    assert await submitted() == await submitted(tenant_id="a") == 1
    for query in ("tenant_id=b", "queue=default", "job_type=mail"):
        assert code(await bound.get(f"{API}/series?{query}"), 403) == "TENANT_SCOPE_VIOLATION"
    assert code(await bound.get(f"{API}/series/groups?by=tenant"), 403) == "TENANT_SCOPE_VIOLATION"


async def _slots(api: Api, kind: str, name: str) -> list[SubjectSlot]:
    return await api.engine.store.read(lambda tx: tx.series.read_slots(7_200, 0, 1 << 50, kind, name))


async def test_exactly_the_listed_actions_succeed(api: Api) -> None:
    every = ("cancel", "abort", "approve", "reject", "reopen", "requeue")
    for contract, options in (("standard", {}), ("standard", {"hold": True}), ("gate-b2", {}), ("men", {})):
        for act in every:
            job = await api.submit(contract=contract, **options)
            detail = await get_json(api, f"jobs/{job['id']}/detail")
            listed = {action["act"] for action in detail["acts"]}
            response = await api.open.post(f"{API}/jobs/{job['id']}/{act}", json={"reason": "x"})
            assert response.is_success == (act in listed), (contract, options, act, listed, response.text)
            after = await get_json(api, f"jobs/{job['id']}/detail")
            ended = (await get_json(api, f"jobs/{job['id']}"))["phase"] == "final"
            assert ("requeue" in {action["act"] for action in after["acts"]}) == ended


async def test_a_requeued_job_names_its_newest_copy(api: Api) -> None:
    job = await api.submit()
    assert (await get_json(api, f"jobs/{job['id']}/detail"))["requeued_as"] is None
    assert (await api.open.post(f"{API}/jobs/{job['id']}/cancel", json={"reason": "x"})).is_success
    for _ in range(2):
        answer = (await api.open.post(f"{API}/jobs/{job['id']}/requeue", json={})).json()
        copy = answer["job"]["id"]
        assert (await get_json(api, f"jobs/{job['id']}/detail"))["requeued_as"] == copy
    assert (await get_json(api, f"jobs/{copy}/detail"))["requeued_from"] == {"kind": "job", "id": job["id"]}


async def test_the_listed_actions_depend_on_the_role(api: Api) -> None:
    boss = await api.person("boss", "admin")
    job = await api.submit(boss, hold=True)
    for role, expected in (("viewer", set()), ("reviewer", {"approve", "reject"}), ("operator", {"cancel", "signal"})):
        client = await api.person(f"one-{role}", role)
        detail = (await client.get(f"{API}/jobs/{job['id']}/detail")).json()
        assert {action["act"] for action in detail["acts"]} == expected


async def test_bulk_actions_by_filter_and_by_id(api: Api) -> None:
    jobs = [await api.submit(queue="a") for _ in range(3)]
    other = await api.submit(queue="b")
    dry = (await api.open.post(f"{API}/bulk/cancel", json={"queue": "a"})).json()
    assert (dry["dry_run"], dry["matched"], dry["fitting"], dry["done"]) == (True, 3, 3, 0)
    assert (await get_json(api, f"jobs/{jobs[0]['id']}"))["phase"] == "claimable", "a dry run changes nothing"
    body = {"ids": [jobs[0]["id"], "no-such-job"], "dry_run": False, "reason": "by id"}
    assert (await api.open.post(f"{API}/bulk/cancel", json=body)).json()["done"] == 1
    rest = (await api.open.post(f"{API}/bulk/cancel", json={"queue": "a", "dry_run": False})).json()
    assert (rest["matched"], rest["fitting"], rest["done"], rest["next_cursor"]) == (3, 2, 2, None)
    assert (await get_json(api, f"jobs/{other['id']}"))["phase"] == "claimable"
    again = (await api.open.post(f"{API}/bulk/requeue", json={"queue": "a", "dry_run": False})).json()
    assert again["done"] == 3 and len((await get_json(api, "jobs", queue="a", phase="claimable"))["items"]) == 3
    both = {"ids": [other["id"]], "queue": "a"}
    assert code(await api.open.post(f"{API}/bulk/cancel", json=both), 422) == "INPUT_INVALID"


async def test_bulk_actions_stay_within_the_tenant_of_the_token(api: Api) -> None:
    boss = await api.person("boss", "admin")
    own, foreign = await api.submit(boss, tenant_id="own"), await api.submit(boss, tenant_id="foreign")
    bound = await api.person("bound", "operator", tenant="own")
    for body in ({"ids": [own["id"], foreign["id"]]}, {"phase": "claimable"}):
        done = (await bound.post(f"{API}/bulk/cancel", json={**body, "dry_run": True})).json()
        assert done["matched"] == 1
    assert code(await bound.post(f"{API}/bulk/cancel", json={"tenant": "foreign"}), 403) == "TENANT_SCOPE_VIOLATION"


async def test_the_inbox_is_paged_oldest_first(api: Api) -> None:
    first, second = await api.submit(hold=True), await api.submit(hold=True)
    page = await get_json(api, "approvals", limit=1)
    assert [item["job_id"] for item in page["items"]] == [first["id"]]
    rest = await get_json(api, "approvals", cursor=page["next_cursor"])
    assert [item["job_id"] for item in rest["items"]] == [second["id"]] and rest["next_cursor"] is None
    await api.open.post(f"{API}/jobs/{first['id']}/approve", json={})
    assert [item["job_id"] for item in (await get_json(api, "approvals"))["items"]] == [second["id"]]


async def test_verification_runs_in_the_background(api: Api) -> None:
    await api.submit()
    assert (await get_json(api, "verification"))["report"] is None
    started = await api.open.post(f"{API}/verification")
    assert started.status_code == 202

    async def ended_state() -> Any:
        state = await get_json(api, "verification")
        return None if state["under_way"] else state

    state = await until(ended_state)
    assert state["report"]["ok"] and state["report"]["jobs"] == 1
    assert state["started_by"] == "local"


async def pages(api: Api, path: str, **query: Any) -> list[list[dict[str, Any]]]:
    """All pages of a list."""
    rows, cursor = [], query.pop("cursor", None)
    while True:
        page = await get_json(api, path, **query, **({"cursor": cursor} if cursor else {}))
        rows.append(page["items"])
        cursor = page["next_cursor"]
        if cursor is None:
            return rows


async def test_the_children_of_a_job_in_pages(api: Api) -> None:
    parent = (await api.submit())["id"]
    submissions = [Submission("mail", queue=f"q{number % 2}", parent_id=parent) for number in range(25)]
    children = [submitted.job.id for submitted in await api.engine.jobs.submit_many(submissions)]
    await claim_and_settle(api, "mail", Succeeded("{}"))
    path = f"jobs/{parent}/children"
    shown = await pages(api, path, limit=10)
    assert [len(page) for page in shown] == [10, 10, 5]
    assert [child["id"] for page in shown for child in page] == sorted(children)
    assert shown[0][0]["name"] == "mail" and shown[0][0]["after"] == [] and shown[0][0]["progress"] is None
    detail = await get_json(api, f"jobs/{parent}/detail")
    counts = {row["phase"]: row["count"] for row in detail["children"]["counts"]}
    assert detail["children"]["total"] == 25 and sum(counts.values()) == 25
    for phase, number in counts.items():
        assert len((await get_json(api, path, phase=phase))["items"]) == number
    assert code(await api.open.get(f"{API}/{path}?phase=sleepy"), 422) == "INPUT_INVALID"


async def test_the_log_of_a_job_newest_first(api: Api) -> None:
    """Page by page the reverse of the log, without what has lists of its own, while entries are added."""
    job = await api.submit(max_retries=6)
    for number in range(4):
        [claimed] = await api.engine.claim(api.engine.claim_request("w", 1, job_types=["mail"]))
        row = await api.engine.jobs.get(job["id"])
        notes = [row.note(f"note-{number}-{place}", row.updated_at, "w", {}) for place in range(3)]
        await api.engine.store.write(lambda tx, notes=notes: tx.log.add_notes(notes))  # type: ignore[misc]
        await api.engine.settle(claimed.id, claimed.token, Snoozed(0))
    oldest_first = (await get_json(api, f"jobs/{job['id']}/events"))["items"]
    names = [entry["event"] for entry in oldest_first]
    assert len(names) > 16
    for limit in (1, 3, 5, 100):
        shown = await pages(api, f"jobs/{job['id']}/events", limit=limit, order="desc")
        assert [entry["event"] for page in shown for entry in page] == names[::-1]
        assert [entry["target"] for page in shown for entry in page] == [e["target"] for e in oldest_first][::-1]
        assert all(len(page) == limit for page in shown[:-1])
    changes = [entry for entry in oldest_first if not entry["note"]]
    for order, expected in (("asc", changes), ("desc", changes[::-1])):
        shown = await pages(api, f"jobs/{job['id']}/events", limit=4, order=order, notes="false")
        assert [entry for page in shown for entry in page] == expected
    assert code(await api.open.get(f"{API}/jobs/{job['id']}/events?cursor=1.2.3"), 422) == "INPUT_INVALID"


async def test_steps_progress_and_log_lines(api: Api) -> None:
    job = await api.submit()
    [claimed] = await api.engine.claim(api.engine.claim_request("w", 1, job_types=["mail"]))
    now = api.engine.store.now()
    for number in range(5):
        step = Step(job["id"], f"s{number}", "d", f'{{"n": {number}}}', True, 1, now, now - 1_000_000 * (5 - number))
        assert await api.engine.store.record_step(step, claimed.token)
    await record_progress(api.engine, claimed, 0.25, "a quarter")
    lines = [LogLine(1, n, now, "INFO", "lib", f"line {n}") for n in range(1, 6)]
    assert await api.engine.store.write(lambda tx: store_lines(tx.output, claimed, lines, 1))
    detail = await get_json(api, f"jobs/{job['id']}/detail")
    assert detail["steps"] == 5 and detail["has_logs"] and detail["progress"]["share"] == 0.25
    [listed] = (await get_json(api, "jobs"))["items"]
    assert (listed["progress"]["share"], listed["progress"]["message"]) == (0.25, "a quarter")
    shown = await pages(api, f"jobs/{job['id']}/steps", limit=2)
    assert [step["name"] for page in shown for step in page] == ["s0", "s1", "s2", "s3", "s4"]
    assert shown[0][0]["started_at"] < shown[0][0]["finished_at"] and shown[0][1]["result"] == {"n": 1}
    [step] = (await get_json(api, f"jobs/{job['id']}/steps", name="s3"))["items"]
    assert step["result"] == {"n": 3}
    [page] = await pages(api, f"jobs/{job['id']}/steps", results="false")
    assert [step["result"] for step in page] == [None] * 5
    newest = await get_json(api, f"jobs/{job['id']}/logs", limit=2)
    assert [line["n"] for line in newest["items"]] == [4, 5] and newest["next_cursor"] is None
    followed = await pages(api, f"jobs/{job['id']}/logs", limit=2, cursor="1.0")
    assert [line["message"] for page in followed for line in page] == [f"line {n}" for n in range(1, 6)]
    blind = await api.person("blind", "viewer", payloads=False)
    for part in ("/steps", "/logs", "/detail", "/children", "", "?limit=5"):
        path = "jobs" if part.startswith("?") else f"jobs/{job['id']}"
        answer = await blind.get(f"{API}/{path}{part}")
        assert answer.status_code == 200
        assert all(secret not in answer.text for secret in ("quarter", "line 1", '"n":1}')), part


async def test_a_browser_gets_a_page_for_an_unknown_address(api: Api) -> None:
    browser = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    page = await api.open.get("/no-such-page", headers=browser)
    assert page.status_code == 404 and page.headers["content-type"].startswith("text/html")
    assert "There is no page at this address" in page.text and 'href="./jobs"' in page.text
    assert 'href="../../jobs"' in (await api.open.get("/no/such/page", headers=browser)).text
    for path, headers in (("/no-such-page", {}), (f"{API}/no-such-route", browser), ("/static/no.js", {})):
        response = await api.open.get(path, headers=headers)
        assert response.status_code == 404 and response.headers["content-type"] == "application/problem+json", path
    posted = await api.open.post("/no-such-page", headers=browser)
    assert posted.headers["content-type"] == "application/problem+json"
    await api.person("ann", "viewer")
    assert (await api.client().get("/no-such-page", headers=browser)).status_code == 303, "to the sign-in first"
