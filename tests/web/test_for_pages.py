"""The routes that were made for the pages: overview, series, detail, bulk acts, approvals, verification."""

from typing import Any

import pytest

from detent.core.job import Failure
from detent.core.outcome import Failed, Succeeded
from detent.engine.metrics.time_series import Recorder
from web.conftest import API, Api, code

pytestmark = pytest.mark.anyio


async def told(api: Api, path: str, **query: Any) -> dict[str, Any]:
    answer = await api.open.get(f"{API}/{path}", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def run(api: Api, job_type: str, outcome: Any) -> None:
    request = api.engine.claim_request("w", 1, job_types=[job_type])
    [claimed] = await api.engine.claim(request)
    await api.engine.settle(claimed.id, claimed.token, outcome)


async def test_the_overview_counts_what_there_is(api: Api) -> None:
    for _ in range(3):
        await api.submit(queue="a")
    await api.submit(queue="b", contract="gate-b2", job_type="other")
    await run(api, "mail", Succeeded("{}"))
    found = await told(api, "overview")
    assert found["jobs"] == 4 and found["phases"] == {"claimable": 3, "leased": 0, "blocked": 0, "final": 1}
    assert {row["queue"]: row["due"] for row in found["queues"]} == {"a": 2, "b": 1}
    assert found["dead_letters"] == {} and found["workers"] == {"live": 0, "busy": 0, "slots": 0}
    assert sum(sum(one.values()) for one in found["statuses"].values()) == 4


async def test_the_series_adds_up_the_log_once(api: Api) -> None:
    """Two that record at once, and one that comes again, count every event one time."""
    for _ in range(4):
        await api.submit()
    await run(api, "mail", Succeeded("{}"))
    await run(api, "mail", Failed(Failure("BROKEN", "for good", retryable=False)))
    first, second = Recorder(api.engine), Recorder(api.engine)
    for recorder in (first, second, first):
        assert await recorder.catch_up()
    rows = await _series(api)
    assert len(rows) <= 2, "a few seconds"
    sums = [sum(column) for column in zip(*[row[1:] for row in rows], strict=True)]
    submitted, succeeded, failed, retried, waits, waited, runs, ran = sums
    assert (submitted, succeeded, failed, retried, waits, runs) == (4, 1, 1, 0, 2, 2)
    assert waited > 0 and ran > 0
    for span, points in (("hour", 120), ("day", 96), ("week", 84)):
        found = await told(api, "series", span=span)
        assert len(found["points"]) == points and found["points"][-1]["at"] < found["at"]
    assert code(await api.open.get(f"{API}/series?span=year"), 422) == "INPUT_INVALID"


async def _series(api: Api) -> list[Any]:
    async def look(tx: Any) -> list[Any]:
        found: list[Any] = await tx.query("series", width=1, first=0, last=1 << 50)
        return found

    return await api.engine.store.read(look)


async def test_the_acts_are_those_the_status_allows(api: Api) -> None:
    """What is offered is done when asked for; what is not offered is refused."""
    every = ("cancel", "abort", "approve", "reject", "reopen", "requeue")
    for contract, options in (("standard", {}), ("standard", {"hold": True}), ("gate-b2", {}), ("men", {})):
        for act in every:
            job = await api.submit(contract=contract, **options)
            detail = await told(api, f"jobs/{job['id']}/detail")
            offered = {one["act"] for one in detail["acts"]}
            answer = await api.open.post(f"{API}/jobs/{job['id']}/{act}", json={"reason": "x"})
            assert answer.is_success == (act in offered), (contract, options, act, offered, answer.text)
            after = await told(api, f"jobs/{job['id']}/detail")
            ended = (await told(api, f"jobs/{job['id']}"))["phase"] == "final"
            assert ("requeue" in {one["act"] for one in after["acts"]}) == ended


async def test_a_viewer_is_offered_nothing(api: Api) -> None:
    boss = await api.person("boss", "admin")
    job = await api.submit(boss, hold=True)
    for role, offered in (("viewer", set()), ("reviewer", {"approve", "reject"}), ("operator", {"cancel", "signal"})):
        client = await api.person(f"one-{role}", role)
        detail = (await client.get(f"{API}/jobs/{job['id']}/detail")).json()
        assert {one["act"] for one in detail["acts"]} == offered


async def test_many_jobs_by_filter_and_by_name(api: Api) -> None:
    jobs = [await api.submit(queue="a") for _ in range(3)]
    other = await api.submit(queue="b")
    dry = (await api.open.post(f"{API}/bulk/cancel", json={"queue": "a"})).json()
    assert (dry["dry_run"], dry["matched"], dry["fitting"], dry["done"]) == (True, 3, 3, 0)
    assert (await told(api, f"jobs/{jobs[0]['id']}"))["phase"] == "claimable", "a dry run changes nothing"
    body = {"ids": [jobs[0]["id"], "no-such-job"], "dry_run": False, "reason": "by name"}
    assert (await api.open.post(f"{API}/bulk/cancel", json=body)).json()["done"] == 1
    rest = (await api.open.post(f"{API}/bulk/cancel", json={"queue": "a", "dry_run": False})).json()
    assert (rest["matched"], rest["fitting"], rest["done"], rest["next_cursor"]) == (3, 2, 2, None)
    assert (await told(api, f"jobs/{other['id']}"))["phase"] == "claimable"
    again = (await api.open.post(f"{API}/bulk/requeue", json={"queue": "a", "dry_run": False})).json()
    assert again["done"] == 3 and len((await told(api, "jobs", queue="a", phase="claimable"))["jobs"]) == 3
    both = {"ids": [other["id"]], "queue": "a"}
    assert code(await api.open.post(f"{API}/bulk/cancel", json=both), 422) == "INPUT_INVALID"


async def test_a_bound_token_acts_on_its_own_only(api: Api) -> None:
    boss = await api.person("boss", "admin")
    own, foreign = await api.submit(boss, tenant_id="own"), await api.submit(boss, tenant_id="foreign")
    bound = await api.person("bound", "operator", tenant="own")
    for body in ({"ids": [own["id"], foreign["id"]]}, {"phase": "claimable"}):
        done = (await bound.post(f"{API}/bulk/cancel", json={**body, "dry_run": True})).json()
        assert done["matched"] == 1
    assert code(await bound.post(f"{API}/bulk/cancel", json={"tenant": "foreign"}), 403) == "TENANT_SCOPE_VIOLATION"


async def test_the_inbox(api: Api) -> None:
    first, second = await api.submit(hold=True), await api.submit(hold=True)
    found = await told(api, "approvals", limit=1)
    assert [one["job_id"] for one in found["items"]] == [first["id"]]
    rest = await told(api, "approvals", cursor=found["next_cursor"])
    assert [one["job_id"] for one in rest["items"]] == [second["id"]] and rest["next_cursor"] is None
    await api.open.post(f"{API}/jobs/{first['id']}/approve", json={})
    assert [one["job_id"] for one in (await told(api, "approvals"))["items"]] == [second["id"]]


async def test_verification_runs_aside(api: Api) -> None:
    await api.submit()
    assert (await told(api, "verification"))["report"] is None
    started = await api.open.post(f"{API}/verification")
    assert started.status_code == 202
    await api.app.state.web.verifier.wait()
    found = await told(api, "verification")
    assert not found["under_way"] and found["report"]["ok"] and found["report"]["jobs"] == 1
    assert found["started_by"] == "local"
