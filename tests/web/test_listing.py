"""Lists over REST: filters, how far a search looked, saved views, exports, the search of the palette, error groups."""

import csv
import io
import json
from typing import Any

import pytest

from detent.engine import Submission
from support.web.api import API, Api, code

pytestmark = pytest.mark.anyio


async def listed(api: Api, query: str) -> list[str]:
    answer = (await api.open.get(f"{API}/jobs?{query}")).json()
    assert answer["next_cursor"] is None and answer["searched_until"] is None
    return [job["id"] for job in answer["items"]]


async def fail(api: Api, client: Any = None, **body: Any) -> dict[str, Any]:
    job = await api.submit(client, contract="gate-b2", **body)
    done = (await (client or api.open).post(f"{API}/internal/jobs/{job['id']}/run?force_fail=true")).json()
    return {**job, "dlq_id": done["dlq_id"]}


async def submit_child(api: Api, parent_id: str, **options: Any) -> dict[str, Any]:
    """Only a running handler has children, so this is no request."""
    job = (await api.engine.jobs.submit(Submission("mail", parent_id=parent_id, **options))).job
    return {"id": job.id}


async def test_filters(api: Api) -> None:
    parent = await api.submit()
    child = await submit_child(api, parent["id"], trace_id="checkout")
    failed = await fail(api)
    error = (await api.open.get(f"{API}/jobs/{failed['id']}")).json()["error_code"]
    assert await listed(api, f"parent_id={parent['id']}") == [child["id"]]
    assert await listed(api, "trace_id=checkout") == [child["id"]]
    assert await listed(api, "roots=true") == [failed["id"], parent["id"]]
    assert await listed(api, f"error_code={error}") == [failed["id"]]
    assert await listed(api, "status=queued&status=failed") == [failed["id"], child["id"], parent["id"]]
    assert await listed(api, "min_attempts=1") == [failed["id"]]
    assert await listed(api, "max_duration_seconds=60") == [failed["id"]]
    assert await listed(api, "since=2999-01-01T00:00:00Z") == []
    assert await listed(api, "until=2020-01-01T00:00:00Z") == []
    assert await listed(api, "since=2020-01-01T00:00:00Z&worker=nobody") == []
    assert await listed(api, f"id={parent['id']}&id={failed['id']}") == [failed["id"], parent["id"]]
    for query in ("since=yesterday", "min_attempts=-1", "phase=x", "id=x", "colour=red", "roots=perhaps"):
        assert (await api.open.get(f"{API}/jobs?{query}")).status_code == 422, query


async def test_an_action_on_many_takes_the_same_filters(api: Api) -> None:
    parent = await api.submit()
    await submit_child(api, parent["id"])
    body = {"parent_id": parent["id"], "status": ["queued", "retrying"], "dry_run": False}
    assert (await api.open.post(f"{API}/bulk/cancel", json=body)).json()["done"] == 1
    assert (await api.open.get(f"{API}/jobs/{parent['id']}")).json()["status"] == "queued"


async def test_a_search_says_how_far_it_looked(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detent.engine.reads.listing._WINDOW", 2)
    monkeypatch.setattr("detent.engine.reads.listing._MAX_WINDOW", 2)
    monkeypatch.setattr("detent.engine.jobs.Jobs.page.__kwdefaults__", {"seconds": 0.0})
    first = await api.submit(queue="rare")
    for _ in range(5):
        await api.submit()
    found, cursor, pages = [], None, 0
    while True:
        query = {"queue": "rare", **({"cursor": cursor} if cursor else {})}
        answer = (await api.open.get(f"{API}/jobs", params=query)).json()
        found += answer["items"]
        pages, cursor = pages + 1, answer["next_cursor"]
        assert (answer["searched_until"] is None) == (cursor is None)
        if cursor is None:
            break
        assert answer["searched_until"][:10] == first["created_at"][:10]
    assert [job["id"] for job in found] == [first["id"]] and pages > 2


async def test_an_export_has_every_match(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detent.web.routes.jobs.export._PAGE", 2)
    jobs = [await api.submit(queue="q", payload={"text": '=1+1,"x"\n'}) for _ in range(5)]
    await api.submit(queue="other")
    lines = (await api.open.get(f"{API}/jobs/export?queue=q")).text.splitlines()
    assert [json.loads(line)["id"] for line in lines] == [job["id"] for job in reversed(jobs)]
    assert json.loads(lines[0]) == (await api.open.get(f"{API}/jobs/{jobs[-1]['id']}")).json()
    answer = await api.open.get(f"{API}/jobs/export?format=csv&queue=q&limit=3")
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.headers["content-disposition"] == 'attachment; filename="jobs.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["id"] for row in rows] == [job["id"] for job in jobs[:1:-1]]
    assert json.loads(rows[0]["payload"]) == {"text": '=1+1,"x"\n'}
    assert api.app.state.web.streams.total() == 0, "finished exports are no longer counted"


async def test_a_formula_in_a_csv_cell_is_text(api: Api) -> None:
    for start in ("=cmd|' /C calc'!A0", "+1", "-1", "@SUM(1)", "＝1", "＋1", "－1", "＠SUM(1)"):
        await api.submit(idempotency_key=start)
    rows = csv.DictReader(io.StringIO((await api.open.get(f"{API}/jobs/export?format=csv")).text))
    assert all(row["idempotency_key"].startswith("'") for row in rows)


async def test_an_export_hides_payloads(api: Api) -> None:
    boss = await api.person("boss", "admin")
    await api.submit(boss, payload={"card": "4111"})
    blind = await api.person("blind", "viewer", payloads=False)
    for format in ("ndjson", "csv"):
        text = (await blind.get(f"{API}/jobs/export?format={format}")).text
        assert "mail" in text and "4111" not in text
    assert code(await api.client().get(f"{API}/jobs/export"), 401) == "UNAUTHORIZED"


async def test_people_save_views_of_their_own(api: Api) -> None:
    ann = await api.person("ann", "viewer")
    bo = await api.person("bo", "viewer")
    elsewhere = await api.person("ann", "viewer", tenant="b")
    saved = await ann.put(f"{API}/views/jobs/late%20mail", json={"query": "q=queue%3Amail"})
    assert saved.status_code == 200 and saved.json()["name"] == "late mail"
    await ann.put(f"{API}/views/jobs/late%20mail", json={"query": "q=queue%3Apost"})
    (view,) = (await ann.get(f"{API}/views")).json()["items"]
    assert (view["page"], view["name"], view["query"]) == ("jobs", "late mail", "q=queue%3Apost")
    assert (await bo.get(f"{API}/views")).json()["items"] == []
    assert (await elsewhere.get(f"{API}/views")).json()["items"] == [], "another ann"
    assert code(await bo.delete(f"{API}/views/jobs/late%20mail"), 404) == "VIEW_NOT_FOUND"
    assert (await ann.delete(f"{API}/views/jobs/late%20mail")).json() == {"deleted": "late mail"}
    assert (await ann.get(f"{API}/views")).json()["items"] == []
    assert (await ann.put(f"{API}/views/nothing/x", json={"query": ""})).status_code == 422


async def test_views_are_limited(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detent.web.routes.admin.views.MAX_VIEWS", 1)
    assert (await api.open.put(f"{API}/views/jobs/a", json={"query": ""})).status_code == 200
    assert (await api.open.put(f"{API}/views/jobs/a", json={"query": "x"})).status_code == 200
    assert code(await api.open.put(f"{API}/views/jobs/b", json={"query": ""}), 422) == "VIEWS_FULL"


async def test_the_palette_finds_by_id_key_task_and_name(api: Api) -> None:
    job = await api.submit(idempotency_key="order-77", queue="billing", job_type="charge")
    task = await api.submit(contract="men", task_id="report-9")
    schedule = {"name": "nightly", "job_type": "charge", "every": "1h"}
    await api.open.post(f"{API}/schedules", json=schedule)
    dead = await fail(api)

    async def found(text: str) -> dict[str, Any]:
        return (await api.open.get(f"{API}/search", params={"q": text})).json()  # type: ignore[no-any-return]

    for text in (job["id"], job["id"][:18], job["id"].upper(), "order-77"):
        assert job["id"] in [one["id"] for one in (await found(text))["jobs"]], text
    assert [one["id"] for one in (await found("report-9"))["jobs"]] == [task["id"]]
    assert (await found("BILL"))["queues"] == ["billing"]
    assert (await found("charg"))["job_types"] == ["charge"]
    assert [one["name"] for one in (await found("night"))["schedules"]] == ["nightly"]
    assert [one["dlq_id"] for one in (await found(dead["dlq_id"]))["dead_letters"]] == [dead["dlq_id"]]
    assert not any((await found("nothing like it")).values())


async def test_the_palette_stays_within_the_limits_of_a_token(api: Api) -> None:
    boss = await api.person("boss", "admin")
    job = await api.submit(boss, tenant_id="a", queue="secret", idempotency_key="order-77")
    other = await api.person("tina", "viewer", tenant="b")
    limited = await api.person("lou", "viewer", queues=["public"])
    for client in (other, limited):
        for text in (job["id"], job["id"][:13], "order-77", "secret"):
            answer = (await client.get(f"{API}/search", params={"q": text})).json()
            assert not any(answer.values()), (text, answer)


async def test_groups_of_dead_letters(api: Api) -> None:
    boss = await api.person("boss", "admin")
    first, second = await fail(api, boss), await fail(api, boss)
    answer = (await boss.get(f"{API}/dlq/groups")).json()
    (group,) = answer["items"]
    assert (group["count"], group["last_id"], sum(group["slots"])) == (2, second["dlq_id"], 2)
    assert (
        answer["searched_until"] is None
        and answer["more_groups"] == 0
        and answer["slot_seconds"] == pytest.approx(3600)
    )
    item = (await boss.get(f"{API}/dlq/items/{first['dlq_id']}")).json()
    assert item["error_group"] == group["group"]
    listed = (await boss.get(f"{API}/dlq/items", params={"error_group": group["group"]})).json()["items"]
    assert len(listed) == 2
    await boss.post(f"{API}/dlq/items/{first['dlq_id']}/requeue")
    counts = {"": 1, "?status=open": 1, "?status=requeued": 1, "?status=all": 2}
    for status, count in counts.items():
        (group,) = (await boss.get(f"{API}/dlq/groups{status}")).json()["items"]
        assert group["count"] == count, status
    blind = await api.person("blind", "viewer", payloads=False)
    (hidden,) = (await blind.get(f"{API}/dlq/groups")).json()["items"]
    assert (hidden["count"], hidden["group"], hidden["pattern"]) == (1, None, None)
    assert (await blind.get(f"{API}/dlq/items/{first['dlq_id']}")).json()["error_group"] is None
    assert code(await blind.get(f"{API}/dlq/items?error_group=x"), 422) == "FILTER_INVALID"


async def test_two_people_discard_many(api: Api) -> None:
    ana, ben = await api.person("ana", "operator"), await api.person("ben", "operator")
    letters = [await fail(api, await api.person("boss", "admin")) for _ in range(2)]
    body = {"reason": "old", "dry_run": False}
    proposed = (await ana.post(f"{API}/dlq/discard", json=body)).json()
    assert (proposed["done"], proposed["proposed"]) == (0, 2)
    again = (await ana.post(f"{API}/dlq/discard", json=body)).json()
    assert (again["done"], again["refused"]) == (0, 2)
    count = (await ben.post(f"{API}/dlq/discard", json={"reason": "x", "proposed_by": "ana"})).json()
    assert (count["matched"], count["to_confirm"], count["done"]) == (2, 2, 0)
    confirmed = (await ben.post(f"{API}/dlq/discard", json={**body, "proposed_by": "ana"})).json()
    assert (confirmed["done"], confirmed["proposed"], confirmed["refused"]) == (2, 0, 0)
    for letter in letters:
        assert (await ben.get(f"{API}/dlq/items/{letter['dlq_id']}")).json()["status"] == "discarded"
    ids = {"reason": "x", "ids": [letters[0]["dlq_id"]], "queue": "default"}
    assert code(await ben.post(f"{API}/dlq/discard", json=ids), 422) == "INPUT_INVALID"


async def test_a_running_job_is_listed_with_its_progress(api: Api) -> None:
    boss = await api.person("boss", "admin")
    job = await api.submit(boss)
    (held,) = (await boss.post(f"{API}/worker/claim", json={"worker": "w", "job_types": ["mail"]})).json()["jobs"]
    body = {"job_id": job["id"], "token": held["token"], "share": 0.4, "message": "row 40"}
    assert (await boss.post(f"{API}/worker/progress", json=body)).status_code == 200
    blind = await api.person("blind", "viewer", payloads=False)
    for client, message in ((boss, "row 40"), (blind, "")):
        for query in ("", f"?id={job['id']}"):
            (listed,) = (await client.get(f"{API}/jobs{query}")).json()["items"]
            assert (listed["progress"]["share"], listed["progress"]["message"]) == (0.4, message)
    other = await api.submit(boss)
    assert (await boss.get(f"{API}/jobs?id={other['id']}")).json()["items"][0]["progress"] is None
