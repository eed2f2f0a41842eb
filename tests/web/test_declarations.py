"""POST /jobs: the options and the payload of types that workers declared, and types that none has declared."""

from enum import StrEnum
from typing import Any

import pytest

from detent.handler.handler import Options, inspect_handler
from detent.web.app import create_app
from detent.web.http.settings import Settings
from support.web.api import API, Api, code

pytestmark = pytest.mark.anyio


class Currency(StrEnum):
    EUR = "EUR"


def charge(order_id: int, currency: Currency = Currency.EUR) -> None: ...


async def publish(api: Api, **options: Any) -> None:
    handler = inspect_handler("charge", charge, Options(**options), "auto")
    await api.engine.declarations.publish([handler.declaration()])


async def post(api: Api, **body: Any) -> Any:
    return await api.open.post(f"{API}/jobs", json={"job_type": "charge", "payload": {"order_id": 7}, **body})


async def test_declared_options_apply_where_the_body_has_none(api: Api) -> None:
    await publish(api, queue="billing", max_retries=5, timeout=120, priority=3, backoff=[1, 5])
    job = (await post(api)).json()["job"]
    stored = await api.engine.jobs.get(job["id"])
    assert (stored.queue, stored.max_retries, stored.timeout_ms, stored.priority) == ("billing", 5, 120_000, 3)
    assert stored.backoff == "1,5"
    given = (await post(api, max_retries=1, queue="slow", timeout_ms=None)).json()["job"]
    stored = await api.engine.jobs.get(given["id"])
    assert (stored.queue, stored.max_retries, stored.timeout_ms) == ("slow", 1, 120_000)
    frozen = (await post(api, contract="gate-b2")).json()["job"]
    assert (await api.engine.jobs.get(frozen["id"])).max_retries == 3, "declared for another contract"


async def test_a_payload_that_the_handler_refuses_is_refused(api: Api) -> None:
    await publish(api)
    for payload, problem in (
        ({}, "order_id is missing"),
        ({"order_id": "many"}, "order_id must be integer"),
        ({"order_id": 7, "m": 1}, "m is not known"),
        ({"order_id": 7, "currency": "JPY"}, "currency must be one of EUR"),
    ):
        response = await post(api, payload=payload)
        assert code(response, 422) == "PAYLOAD_INVALID" and response.json()["detail"] == f"charge: {problem}"
    bulk = [{"job_type": "charge", "payload": {"order_id": 7}}, {"job_type": "charge"}]
    assert code(await api.open.post(f"{API}/jobs/bulk", json={"jobs": bulk}), 422) == "PAYLOAD_INVALID"
    assert (await api.open.get(f"{API}/jobs")).json()["items"] == []
    assert (await post(api, payload={"order_id": "7"})).status_code == 201, "the handler takes a text, too"


async def test_a_schedule_has_the_declared_options_and_a_checked_payload(api: Api) -> None:
    await publish(api, queue="billing", max_retries=5, priority=3)
    request = {"name": "nightly", "job_type": "charge", "cron": "0 3 * * *", "max_retries": 1}
    refused = await api.open.post(f"{API}/schedules", json=request)
    assert code(refused, 422) == "PAYLOAD_INVALID" and refused.json()["detail"] == "charge: order_id is missing"
    added = (await api.open.post(f"{API}/schedules", json={**request, "payload": {"order_id": 7}})).json()
    assert (added["queue"], added["max_retries"], added["priority"]) == ("billing", 1, 3)
    assert [row["name"] for row in (await api.open.get(f"{API}/schedules")).json()["items"]] == ["nightly"]


async def test_a_type_out_of_reach_is_refused_before_its_declaration_is_read(api: Api) -> None:
    await publish(api)
    producer = await api.person("shop", "producer", job_types=["mail"])
    for job_type in ("charge", "unknown"):
        refused = await producer.post(f"{API}/jobs", json={"job_type": job_type, "payload": {"order_id": "many"}})
        assert code(refused, 403) == "TOKEN_SCOPE_VIOLATION"
    assert code(await producer.post(f"{API}/jobs", json={"job_type": ["mail"]}), 422)


async def test_an_unknown_type_is_accepted_with_a_warning(api: Api) -> None:
    response = await post(api)
    assert response.status_code == 201
    assert [warning["code"] for warning in response.json()["warnings"]] == ["JOB_TYPE_UNKNOWN"]
    await publish(api)
    assert "warnings" not in (await post(api)).json()
    assert code(await post(api, job_type=["charge"]), 422) == "NAME_INVALID"


async def test_known_types_only(api: Api) -> None:
    strict = Api(
        api.engine, create_app(api.engine, Settings(open_without_tokens=True, known_types_only=True)), api.place
    )
    assert code(await post(strict), 422) == "JOB_TYPE_UNKNOWN"
    await publish(api)
    assert (await post(strict)).status_code == 201
    for client in strict.clients:
        await client.aclose()
    await strict.app.state.web.close()


async def test_declarations_are_written_when_they_change(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    writes = 0
    write = api.engine.store.write

    async def counted(act: Any) -> Any:
        nonlocal writes
        writes += 1
        return await write(act)

    monkeypatch.setattr(api.engine.store, "write", counted)
    await publish(api)
    await publish(api)
    assert writes == 1
    await publish(api, queue="billing")
    assert writes == 2
    assert (await post(api)).json()["job"]["queue"] == "billing"


async def test_declarations_are_listed_to_those_who_may_submit(api: Api) -> None:
    await publish(api, queue="billing")
    assert (await api.open.get(f"{API}/declarations?fields=job_type&fields=options")).json()["items"] == [
        {"job_type": "charge", "options": {"queue": "billing"}}
    ]
    producer = await api.person("shop", "producer", tenant="t")
    (declared,) = (await producer.get(f"{API}/declarations?job_type=charge")).json()["items"]
    assert declared["payload_schema"]["required"] == ["order_id"]
    assert declared["payload_schema"]["properties"]["order_id"]["type"] == "integer"
    assert (await producer.get(f"{API}/declarations?job_type=unknown")).json()["items"] == []
    limited = await api.person("mailer", "producer", job_types=["mail"])
    for path in ("declarations", "declarations?job_type=charge"):
        assert (await limited.get(f"{API}/{path}")).json()["items"] == []
    assert code(await (await api.person("vic", "viewer")).get(f"{API}/declarations"), 403) == "FORBIDDEN"
