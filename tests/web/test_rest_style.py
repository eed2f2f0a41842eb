"""What every route has in common: lists, query parameters, tenants in filters, names in the OpenAPI document."""

import json
import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from detent.core.job import ApprovalRequest, Wait
from detent.core.outcome import Waits
from detent.observability.settings import WebhookSettings
from detent.observability.webhook_sender import WebhookSender
from detent.web.http.route import ApiRoute
from detent.web.openapi.examples import EXAMPLES
from support.web.api import API, Api, code
from support.web.openapi_file import PATH

pytestmark = pytest.mark.anyio
DOCUMENT = json.loads(PATH.read_text("utf-8"))
SCHEMAS = DOCUMENT["components"]["schemas"]


def operations() -> dict[str, dict[str, Any]]:
    """GET /path -> operation"""
    return {f"{method.upper()} {path}": row for path, rows in DOCUMENT["paths"].items() for method, row in rows.items()}


def answer_schema(operation: dict[str, Any]) -> Any:
    content = operation["responses"]["200"]["content"].get("application/json", {"schema": {}})
    reference = content["schema"].get("$ref", "")
    return SCHEMAS.get(reference.rpartition("/")[2], {})


def test_operations_have_unique_names_like_listJobs_and_a_summary() -> None:
    names = [row["operationId"] for row in operations().values()]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[a-z]+([A-Z][a-z0-9]*)+", name) for name in names), names
    assert all(row["summary"] and row["description"] for row in operations().values())


def test_every_parameter_has_a_description() -> None:
    bare = [
        f"{name} {parameter['name']}"
        for name, operation in operations().items()
        for parameter in operation.get("parameters", ())
        if not parameter.get("description")
    ]
    assert bare == []


def test_every_list_has_items_a_cursor_and_fields() -> None:
    lists = {name: row for name, row in operations().items() if row["operationId"].startswith("list")}
    assert len(lists) >= 15
    for name, row in operations().items():
        if not name.startswith("GET /api") or "content" not in row["responses"]["200"]:
            continue
        properties = answer_schema(row).get("properties", {})
        assert ("next_cursor" in properties) == ("items" in properties), name
        assert "items" in properties or name not in lists
        if "items" in properties:
            (fields,) = [part for part in row["parameters"] if part["name"] == "fields"]
            (item,) = properties["items"]["items"].values()
            (choices,) = [part["items"]["enum"] for part in fields["schema"]["anyOf"] if "items" in part]
            assert set(choices) == SCHEMAS[item.rpartition("/")[2]]["properties"].keys(), name


def test_objects_say_whether_they_are_open_and_times_have_a_format() -> None:
    """Without additionalProperties, openapi-typescript generates a type that accepts no member at all."""

    def check(path: str, schema: Any) -> None:
        if isinstance(schema, list):
            for number, part in enumerate(schema):
                check(f"{path}/{number}", part)
        if not isinstance(schema, dict):
            return
        if schema.get("type") in ("object", ["object", "null"]):
            assert "properties" in schema or "additionalProperties" in schema, path
        for name, part in schema.items():
            check(f"{path}/{name}", part)

    check("", SCHEMAS)
    job = SCHEMAS["Job"]["properties"]
    assert job["created_at"]["format"] == "date-time" and job["due_at"]["anyOf"][0]["format"] == "date-time"
    assert SCHEMAS["Submission.standard"]["properties"]["payload"]["additionalProperties"] is True


def test_no_field_has_a_default_in_its_schema() -> None:
    """openapi-typescript makes such fields required."""
    for name, schema in SCHEMAS.items():
        for field, part in schema.get("properties", {}).items():
            assert "default" not in part, f"{name}.{field}"
    assert "Default: 30.0." in SCHEMAS["ClaimRequest"]["properties"]["lease_seconds"]["description"]


def test_headers_and_the_event_stream_are_in_the_document() -> None:
    rows = operations()
    headers = {name: {part["name"] for part in row.get("parameters", ())} for name, row in rows.items()}
    assert "Idempotency-Key" in headers["POST /api/v1/jobs"] and "Idempotency-Key" not in headers["POST /api/v1/tokens"]
    assert "If-None-Match" in headers["GET /api/v1/jobs/{job_id}"]
    assert "ETag" in rows["GET /api/v1/jobs/{job_id}"]["responses"]["200"]["headers"]
    assert {"RateLimit", "RateLimit-Policy", "X-Request-Id"} <= rows["GET /api/v1/jobs"]["responses"]["200"][
        "headers"
    ].keys()
    stream = rows["GET /api/v1/events/stream"]
    assert "text/event-stream" in stream["responses"]["200"]["content"]
    assert any(part["in"] == "header" and part["name"] == "last-event-id" for part in stream["parameters"])


async def test_the_examples_of_the_document_are_accepted(api: Api) -> None:
    bodies = {
        name: row["requestBody"]["content"]["application/json"]["example"]
        for name, row in operations().items()
        if "example" in row.get("requestBody", {}).get("content", {}).get("application/json", {})
    }
    assert len(bodies) == len(EXAMPLES) >= 20
    job = await api.submit()
    boss = await api.person("boss", "admin")
    values = {"job_id": job["id"], "name": "billing", "tenant": "acme", "reference": "nightly-report"}
    values |= {"dlq_id": job["id"], "webhook_id": "crm", "page": "jobs"}
    held = (
        *("heartbeat", "settle", "approve", "signal", "requeue", "discard", "backfill", "acknowledge", "session"),
        *("rotate", "/worker/steps", "/steps/record", "/signals", "/worker/children", "/progress", "/worker/logs"),
    )
    order = sorted(bodies, key=lambda name: name.count("/"))  # what an example refers to is created first
    for name in order:
        method, path = name.split()
        answer = await boss.request(method, path.format(**values), json=bodies[name])
        allowed = (200, 201) if not path.endswith(held) else (200, 201, 400, 401, 404, 409, 422)
        assert answer.status_code in allowed, (name, answer.text)
        assert answer.json().get("code") != "INPUT_INVALID", (name, answer.text)


def test_every_body_with_more_than_a_reason_has_an_example() -> None:
    reasons = ("ReasonRequest", "DecisionRequest")
    for name, row in operations().items():
        content = row.get("requestBody", {}).get("content", {}).get("application/json", {"example": None})
        if not any(reason in json.dumps(content["schema"]) for reason in reasons if "schema" in content):
            assert "example" in content, name


def test_every_answer_has_an_example_that_its_schema_allows() -> None:
    examples = 0
    for name, row in operations().items():
        answers = [row["responses"][status] for status in ("200", "201") if status in row["responses"]]
        assert answers or set(row["responses"]) & {"204", "202"}, name
        for media, content in ((m, c) for answer in answers for m, c in answer.get("content", {}).items()):
            assert content["example"] not in (None, "", {}), (name, media)
            examples += 1
            if media == "application/json":
                schema = {**content["schema"], "components": DOCUMENT["components"]}
                errors = [error.message for error in Draft202012Validator(schema).iter_errors(content["example"])]
                assert not errors, (name, errors)
    assert examples >= len(operations()) - 2


async def test_the_page_of_the_document_shows_an_answer_for_every_operation(api: Api) -> None:
    page = (await api.open.get("/docs")).text
    assert page.count('<pre class="answer">') >= len(operations()) - 2


async def test_unknown_and_repeated_query_parameters_are_refused_everywhere(api: Api) -> None:
    job = await api.submit()
    for route in api.app.router.routes:
        if not isinstance(route, ApiRoute) or not route.include_in_schema:
            continue
        path = re.sub(r"\{\w+(:path)?\}", job["id"], route.path)
        for method in route.methods:
            response = await api.open.request(method, f"{path}?nonsense=1")
            assert code(response, 422) == "INPUT_INVALID", (method, path)
            assert response.json()["field"] == "nonsense"
    repeated = await api.open.get(f"{API}/jobs?limit=1&limit=2")
    assert code(repeated, 422) == "INPUT_INVALID" and repeated.json()["field"] == "limit"


async def test_fields_leaves_out_the_others(api: Api) -> None:
    job = await api.submit(payload={"n": 1})
    for query in ("fields=id,status", "fields=id&fields=status"):
        answer = (await api.open.get(f"{API}/jobs?{query}")).json()
        assert answer["items"] == [{"id": job["id"], "status": "queued"}] and answer["next_cursor"] is None
    (whole,) = (await api.open.get(f"{API}/jobs")).json()["items"]
    assert whole["payload"] == {"n": 1}
    (event,) = (await api.open.get(f"{API}/jobs/{job['id']}/events?fields=event")).json()["items"]
    assert event == {"event": "job.created"}
    queues = (await api.open.get(f"{API}/queues?fields=queue,due")).json()
    assert queues["items"] == [{"queue": "default", "due": 1}] and "limits" in queues
    (contract, *_) = (await api.open.get(f"{API}/contracts?fields=name")).json()["items"]
    assert contract.keys() == {"name"}
    unknown = await api.open.get(f"{API}/jobs?fields=id,secret")
    assert code(unknown, 422) == "INPUT_INVALID" and "'error_code'" in unknown.json()["detail"]
    blind = await api.person("blind", "viewer", payloads=False)
    (row,) = (await blind.get(f"{API}/jobs?fields=payload")).json()["items"]
    assert row == {"payload": None}


async def test_a_tenant_filter_has_two_names(api: Api) -> None:
    job = await api.submit(tenant_id="acme")
    await api.submit(tenant_id="other")
    for query in ("tenant_id=acme", "tenant=acme", "tenant=acme&tenant_id=acme"):
        assert [row["id"] for row in (await api.open.get(f"{API}/jobs?{query}")).json()["items"]] == [job["id"]], query
    assert code(await api.open.get(f"{API}/jobs?tenant=acme&tenant_id=other"), 422) == "INPUT_INVALID"
    counted = await api.open.post(f"{API}/bulk/cancel", json={"tenant_id": "acme"})
    assert counted.json()["matched"] == 1
    bound = await api.person("bound", "viewer", tenant="acme")
    for name in ("tenant", "tenant_id"):
        assert code(await bound.get(f"{API}/jobs?{name}=other"), 403) == "TENANT_SCOPE_VIOLATION"
        assert code(await bound.get(f"{API}/events/stream?{name}=acme&{name}=other"), 403) == "TENANT_SCOPE_VIOLATION"


async def test_unknown_names_of_statuses_and_phases_are_refused(api: Api) -> None:
    unknown = await api.open.get(f"{API}/jobs?status=nowhere")
    assert code(unknown, 422) == "STATUS_UNKNOWN" and "queued" in unknown.json()["detail"]
    phase = await api.open.get(f"{API}/jobs?phase=nowhere")
    assert code(phase, 422) == "INPUT_INVALID" and "'claimable'" in phase.json()["detail"]
    assert code(await api.open.post(f"{API}/bulk/cancel", json={"status": "nowhere"}), 422) == "STATUS_UNKNOWN"
    parent = await api.submit()
    children = await api.open.get(f"{API}/jobs/{parent['id']}/children?status=nowhere")
    assert code(children, 422) == "STATUS_UNKNOWN"
    assert (await api.open.get(f"{API}/jobs?status=queued")).status_code == 200


async def test_progress_cannot_be_asked_for_in_envelopes(api: Api) -> None:
    statuses = {"progress=true": 422, "progress=false": 200, "": 200}
    for query, status in statuses.items():
        answer = await api.open.head(f"{API}/events/stream?format=envelope&{query}")
        assert answer.status_code == status, query


async def test_a_stream_cannot_begin_after_the_end_of_the_log(api: Api) -> None:
    """Its reader would see nothing, for example after the database was restored."""
    await api.submit()
    end = str(await api.engine.store.read(lambda tx: tx.log.tail_end()))
    for after, status in ((end, 200), ("0", 200), ("9" * 18, 422)):
        assert (await api.open.head(f"{API}/events/stream?after={after}")).status_code == status
        assert (await api.open.head(f"{API}/events/stream", headers={"Last-Event-ID": after})).status_code == status


async def test_a_webhook_is_shown_with_its_backlog(api: Api) -> None:
    """Also in the answer of a pause."""
    created = (await api.open.post(f"{API}/webhooks", json={"name": "crm", "url": "http://127.0.0.1:9/"})).json()
    await api.submit()
    await WebhookSender(api.engine, WebhookSettings()).drain()
    path = f"{API}/webhooks/{created['id']}"
    shown = (await api.open.get(path)).json()
    assert shown == (await api.open.get(f"{API}/webhooks")).json()["items"][0]
    assert shown["backlog"] == 1 and "secret" not in shown
    paused = (await api.open.post(f"{path}/pause")).json()
    assert (paused["state"], paused["backlog"]) == ("paused", 1)
    assert (await api.open.post(f"{path}/resume")).json()["backlog"] == 1
    assert code(await api.open.get(f"{API}/webhooks/nowhere"), 404) == "WEBHOOK_NOT_FOUND"


async def test_limits_and_tokens_take_a_tenant_under_either_name(api: Api) -> None:
    for name, queue in (("tenant", "a"), ("tenant_id", "b")):
        limit = await api.open.put(f"{API}/limits", json={"queue": queue, name: "acme", "concurrency": 1})
        assert limit.status_code == 200 and limit.json()["tenant_id"] == "acme", limit.text
        removed = await api.open.post(f"{API}/limits/remove", json={"queue": queue, name: "acme"})
        assert removed.json()["tenant_id"] == "acme"
    both = {"tenant": "acme", "tenant_id": "other"}
    assert code(await api.open.put(f"{API}/limits", json={**both, "concurrency": 1}), 422) == "INPUT_INVALID"
    boss = await api.person("boss", "admin")
    for name in ("tenant", "tenant_id"):
        token = (await boss.post(f"{API}/tokens", json={"name": name, "role": "viewer", name: "acme"})).json()
        assert token["tenant_id"] == "acme"
        assert (await api.client(token["token"]).get(f"{API}/me")).json()["tenant_id"] == "acme"
    refused = await boss.post(f"{API}/tokens", json={"name": "x", "role": "viewer", **both})
    assert code(refused, 422) == "INPUT_INVALID"


def test_names_and_lists_have_one_style() -> None:
    """`tenant` is only another name on input; a list that is the answer is `items`; names are snake_case."""
    aliases = {"JobBulkRequest", "DeadLetterBulkRequeueRequest", "DeadLetterBulkDiscardRequest"}
    aliases |= {"LimitRequest", "LimitScope", "TokenCreateRequest"}
    assert {name for name, schema in SCHEMAS.items() if "tenant" in schema.get("properties", {})} == aliases
    for name, row in operations().items():
        answered = row["responses"].get("200", row["responses"].get("201", {})).get("content", {})
        schema = answered.get("application/json", {}).get("schema", {})
        properties = SCHEMAS.get(schema.get("$ref", "").rpartition("/")[2], schema).get("properties", {})
        lists = [field for field, part in properties.items() if "$ref" in part.get("items", {})]
        assert schema.get("type") != "array" and (len(lists) != 1 or lists[0] in {"items", *NAMED_LISTS}), (name, lists)
        assert all(re.fullmatch(r"[a-z][a-z0-9_]*", field) for field in properties), name
        units = [field for field in properties if re.search(r"_(ms|minutes|hours|millis)$", field)]
        assert set(units) <= {"timeout_ms"}, (name, units)


NAMED_LISTS = {
    "jobs": "what a claim hands out, named as in the worker protocol",
    "history": "the log beside a dead letter",
    "last_fires": "the runs beside a schedule",
    "edges": "the table of a contract",
    "points": "the time series",
    "approvals": "the approvals beside a job",
    "running_jobs": "the jobs beside a queue or type",
    "violations": "the findings of a verification",
    "warnings": "what the author of a submission should know",
    "paused": "what is paused, beside counts",
    "acts": "the actions that are possible on a job",
    "refusals": "the jobs that a bulk action refused",
}
"""Lists within an answer that is no list -> what they are."""


async def test_numbers_that_are_whole_are_integers(api: Api) -> None:
    """In JSON schema 2.0 is an integer, and clients of some languages write it so."""
    limit = await api.open.put(f"{API}/limits", json={"queue": "q", "concurrency": 2.0})
    assert limit.status_code == 200 and limit.json()["concurrency"] == 2
    assert code(await api.open.put(f"{API}/limits", json={"queue": "q", "concurrency": 2.5}), 422) == "INPUT_INVALID"
    job = await api.submit(payload={"n": 2.0}, priority=5.0)
    assert job["priority"] == 5 and isinstance(job["payload"]["n"], float)


async def test_an_export_with_a_wrong_filter_is_refused_before_it_begins(api: Api) -> None:
    assert code(await api.open.get(f"{API}/jobs/export?status=nowhere"), 422) == "STATUS_UNKNOWN"


async def test_the_allowed_methods_are_those_of_the_longest_route(api: Api) -> None:
    refused = await api.open.delete(f"{API}/queues/mail/pause")
    assert code(refused, 405) == "METHOD_NOT_ALLOWED" and refused.headers["allow"] == "POST"
    assert (await api.open.delete(f"{API}/queues/mail")).headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize("query", ["error_code=X", "since=2030-01-01T00:00:00Z", "until=2000-01-01T00:00:00Z"])
async def test_schedules_refuse_filters_that_they_do_not_have(api: Api, query: str) -> None:
    refused = await api.open.get(f"{API}/schedules?{query}")
    assert code(refused, 422) == "INPUT_INVALID" and refused.json()["field"] == query.partition("=")[0]


async def test_a_list_of_ids_has_no_filters(api: Api) -> None:
    job = await api.submit()
    for path, kept in ((f"{API}/jobs?id={job['id']}", "id"), (f"{API}/dlq/items?id={job['id']}", "dlq_id")):
        for other in ("queue=other", "limit=1", f"cursor={job['id']}"):
            assert code(await api.open.get(f"{path}&{other}"), 422) == "INPUT_INVALID"
        assert (await api.open.get(f"{path}&fields={kept}")).status_code == 200


async def test_series_take_both_names_of_a_tenant(api: Api) -> None:
    for name in ("tenant", "tenant_id"):
        series = (await api.open.get(f"{API}/series?{name}=acme/europe")).json()
        assert (series["by"], series["name"]) == ("tenant", "acme/europe")
    assert code(await api.open.get(f"{API}/series?tenant=a&tenant_id=b"), 422) == "INPUT_INVALID"


async def test_errors_have_the_headers_of_the_document(api: Api) -> None:
    producer, viewer = await api.person("shop", "producer"), await api.person("ann", "viewer")
    for client, path, status in ((producer, "/jobs", 403), (viewer, "/jobs/none", 404), (viewer, "/jobs?x=1", 422)):
        refused = await client.get(API + path)
        documented = DOCUMENT["components"]["responses"][f"Problem{status}"]["headers"].keys()
        assert refused.status_code == status and {"RateLimit", "RateLimit-Policy", "X-Request-Id"} <= documented
        assert all(name in refused.headers for name in documented)


async def test_a_server_that_is_not_ready_answers_a_problem(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def no() -> bool:
        return False

    monkeypatch.setattr(api.app.state.web, "store_readable", no)
    response = await api.open.get("/readyz")
    assert code(response, 503) == "STORE_UNAVAILABLE" and response.headers["retry-after"]


async def test_open_approvals_have_the_fields_of_the_document(api: Api) -> None:
    await api.submit(hold=True)
    running = await api.submit(job_type="ask")
    (job,) = (await api.open.post(f"{API}/worker/claim", json={"worker": "w", "job_types": ["ask"]})).json()["jobs"]
    wait = Wait("approval", "approval", None, approval=ApprovalRequest("refund", "null", "d" * 64))
    await api.engine.settle(job["id"], job["token"], Waits(wait))
    items = (await api.open.get(f"{API}/approvals")).json()["items"]
    assert {item["job_id"] for item in items} >= {running["id"]} and len(items) == 2
    for item in items:
        assert item.keys() <= SCHEMAS["PendingApproval"]["properties"].keys()
        assert item.keys() >= set(SCHEMAS["PendingApproval"]["required"])
