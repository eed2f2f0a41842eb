"""The OpenAPI document: generated from the routes; the schema of a job submission from the tables of the contracts."""

import json
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from detent.core.contract.builtin import DEFAULT
from detent.core.contract.men import MEN
from detent.core.contract.model import Contract, Move
from detent.core.options.job_options import JobOptions
from detent.core.options.option import NAME, REST, JsonSchema, options_of
from detent.version import __version__

from .examples import EXAMPLES, answer_example
from .schemas import HEADERS, IDEMPOTENCY_KEY, PROBLEM_MEDIA, PROBLEMS, ROLES, Problem

SUBMISSION_OPTIONS = options_of(JobOptions, REST)

_RATE = ("RateLimit", "RateLimit-Policy")
_PROBLEM_HEADERS: dict[int | str, tuple[str, ...]] = {
    401: ("WWW-Authenticate",),
    429: (*_RATE, "Retry-After"),
    503: (*_RATE, "Retry-After"),
}
_NAME_A_CONTRACT = (
    "ScheduleCreateRequest", "ScheduleUpdateRequest", "WebhookCreateRequest", "WebhookUpdateRequest", "ChildSubmission",
)  # fmt: skip
"""Schemas of bodies that are refused if they name a contract that does not exist."""
_CREATES = ("submitJob", "submitTask")
_PARAMETERS = {
    "tenant_id": "Only of this tenant.",
    "queue": "Only of this queue.",
    "contract": "Only under this contract.",
    "job_type": "Only of this job type.",
    "job_id": "Only of this job.",
    "status": "Only in this status.",
    "phase": "Only in this phase: claimable (queued), leased (running), blocked (waiting) or final (finished).",
    "max_duration_seconds": "As min_duration_seconds, at most this long.",
    "max_attempts": "At most this many executions so far.",
    "limit": "The most items of a page.",
    "format": "Lines of JSON, or CSV with a header.",
    "q": "A name, an id, or the beginning of one.",
    "last-event-id": "The id of the last event that the client has; it goes before `after`.",
}
"""Descriptions of parameters whose fields have none."""
ABOUT = (
    "Detent is a durable job engine; the contract of a job defines its statuses and legal transitions. "
    "Authentication: send a token as `Authorization: Bearer TOKEN`. Errors are application/problem+json with a stable "
    "`code`. Lists are {items, next_cursor}; unknown fields and query parameters are refused. An X-Request-Id is "
    "echoed and is in errors and logs. HEAD works wherever GET does. Names in paths are percent-encoded, `/` as %2F."
)


def document(app: FastAPI, contracts: Mapping[str, Contract], *, is_open: bool) -> dict[str, Any]:
    """The OpenAPI document for these contracts.

    contracts: the built-in ones and those stored in the database. is_open: leave out `security`, no token is needed.
    """
    openapi = get_openapi(title="Detent", version=__version__, description=ABOUT, routes=app.routes)
    schemas = openapi.setdefault("components", {}).setdefault("schemas", {})
    schemas["Problem"] = Problem.model_json_schema()
    variants = {_variant(name): _fields(contracts[name]) for name in sorted(contracts)}
    schemas["Submission"] = {
        "description": "A job to submit. Which fields are allowed depends on the contract.",
        "oneOf": [{"$ref": f"#/components/schemas/{variant}"} for variant in variants],
    }
    schemas |= variants
    task = variants[_variant(MEN.name)]
    schemas["TaskSubmission"] = {**task, "required": [name for name in task["required"] if name != "contract"]}
    schemas["ChildSubmission"] = {
        "type": "object",
        "description": "A job to submit as the child of another; its name is unique among the children of that job.",
        "required": ["name", "job_type"],
        "additionalProperties": False,
        "properties": {"name": NAME, "job_type": NAME, **_option_fields()},
    }
    for name in _NAME_A_CONTRACT:
        contract = schemas[name]["properties"]["contract"]
        schemas[name]["properties"]["contract"] = {
            "enum": [*sorted(contracts), None],
            **({"description": contract["description"]} if "description" in contract else {}),
        }
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    openapi["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    _use_references(openapi)
    for operation in (operation for methods in openapi["paths"].values() for operation in methods.values()):
        operation["responses"].pop("default", None)
        _add_headers(operation)
        for parameter in operation.get("parameters", ()):
            if "description" not in parameter:
                parameter["description"] = _PARAMETERS[parameter["name"]]
        if operation["operationId"] in EXAMPLES:
            operation["requestBody"]["content"]["application/json"]["example"] = EXAMPLES[operation["operationId"]]
        _add_answer_examples(operation, schemas)
        if is_open:
            operation.pop("security", None)
    return openapi


def _use_references(openapi: dict[str, Any]) -> None:
    """Declare each error response once, and leave out the titles that pydantic makes of the names of fields."""
    components = openapi["components"]
    components["headers"] = HEADERS
    components["responses"] = {
        f"Problem{status}": {**response, "headers": _headers("X-Request-Id", *_PROBLEM_HEADERS.get(status, _RATE))}
        for status, response in PROBLEMS.items()
    }
    for path in openapi["paths"].values():
        for operation in path.values():
            responses = operation["responses"]
            for status in responses:
                if PROBLEM_MEDIA in responses[status].get("content", {}):
                    responses[status] = {"$ref": f"#/components/responses/Problem{status}"}
    _drop_titles(openapi["paths"])
    for schema in components["schemas"].values():
        _drop_titles(schema)
        for field in schema.get("properties", {}).values():
            _describe_default(field)


def _add_headers(operation: dict[str, Any]) -> None:
    """Document the headers of the responses that are no errors."""
    names = ["X-Request-Id"]
    if operation[ROLES]:
        names += [*_RATE, "Detent-Token-Expires"]
    if any(parameter["name"] == IDEMPOTENCY_KEY["name"] for parameter in operation.get("parameters", ())):
        names.append("Idempotency-Replayed")
    for status, response in operation["responses"].items():
        if "$ref" not in response:
            more = ["ETag"] if "304" in operation["responses"] else []
            more += ["Location"] if status in ("200", "201") and operation["operationId"] in _CREATES else []
            response["headers"] = _headers(*names, *more)


def _add_answer_examples(operation: dict[str, Any], schemas: Mapping[str, Any]) -> None:
    for response in operation["responses"].values():
        contents = response.get("content", {})
        if contents.get("application/json") == {"schema": {}}:
            del contents["application/json"]  # FastAPI adds it to answers that are not JSON
        for media, content in contents.items():
            content.setdefault("example", answer_example(media, content.get("schema", {}), schemas))


def _headers(*names: str) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _describe_default(field: dict[str, Any]) -> None:
    """Move the default of a field to its description: openapi-typescript makes fields with a default required."""
    default = field.pop("default", None)
    if default is not None:
        field["description"] = f"{field.get('description', '')} Default: {json.dumps(default)}.".strip()


def _drop_titles(part: Any) -> None:
    if isinstance(part, dict):
        if isinstance(part.get("title"), str):
            del part["title"]
        part = part.values()
    if not isinstance(part, str | int | float | bool | None):
        for inner in part:
            _drop_titles(inner)


def _variant(name: str) -> str:
    return "Submission." + "".join(char if char.isalnum() or char in "-._" else "_" for char in name)


def _fields(contract: Contract) -> dict[str, Any]:
    """The schema of a submission under this contract, from its rules for keys, retries, tasks, holds and deadlines."""
    default = contract.name == DEFAULT
    fields: dict[str, Any] = {"job_type": NAME, **_option_fields()}
    fields["contract"] = {"enum": [contract.name, None]} if default else {"const": contract.name}
    fields["idempotency_key"]["maxLength"] = contract.keys.max_length
    if contract.keys.blank_is_absent:
        fields["idempotency_key"] |= {"minLength": 0, "pattern": r"^[^\x00]*$"}
    if contract.retry.frozen:
        fields["max_retries"] = {"enum": [contract.retry.max_retries, None]}
        del fields["backoff"]
    if contract.names_tasks and not contract.keys.task_id_is_key and not contract.task_attempts:
        del fields["task_id"]
    if not contract.edge(None, Move.HOLD):
        del fields["hold"]
    if not contract.can_cancel_before_start:
        del fields["deadline"]
    required = [] if contract.keys.task_id_is_key else ["job_type"]
    return {
        "type": "object",
        "description": f"A job to submit under the contract {contract.name}.",
        "required": required if default else [*required, "contract"],
        "additionalProperties": False,
        "properties": fields,
    }


def _option_fields() -> dict[str, Any]:
    return {name: {**nullable(row.schema), "description": row.help} for name, row in SUBMISSION_OPTIONS.items()}


def nullable(schema: JsonSchema) -> dict[str, Any]:
    """The schema that also allows null."""
    if "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    if "anyOf" in schema:
        return {**schema, "anyOf": [{"type": "null"}, *schema["anyOf"]]}
    return {**schema, "type": [schema["type"], "null"]}
