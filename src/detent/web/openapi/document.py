"""The OpenAPI document: generated from the routes; the schema of a job submission from the tables of the contracts."""

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from detent.core.contract.builtin import DEFAULT
from detent.core.contract.model import Contract, Move
from detent.core.options.job_options import JobOptions
from detent.core.options.option import NAME, REST, JsonSchema, options_of
from detent.version import __version__

from .schemas import PROBLEM_MEDIA, PROBLEMS, Problem

SUBMISSION_OPTIONS = options_of(JobOptions, REST)

ABOUT = (
    "Detent is a durable job engine; the contract of a job defines its statuses and legal transitions. "
    "Authentication: send a token as `Authorization: Bearer TOKEN`. Errors are application/problem+json with a stable "
    "`code`. Every POST accepts an Idempotency-Key header: a repeated request gets the stored response and changes "
    "nothing again; 422 if the key was used with another request, 409 while the first request runs. "
    "GET /api/v1/events/stream sends all status changes as server-sent events and resumes after Last-Event-ID."
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
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    openapi["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    _use_references(openapi)
    for operation in (operation for methods in openapi["paths"].values() for operation in methods.values()):
        operation["responses"].pop("default", None)
        if is_open:
            operation.pop("security", None)
    return openapi


def _use_references(openapi: dict[str, Any]) -> None:
    """Declare each error response once, and leave out the titles that pydantic makes of the names of fields."""
    components = openapi["components"]
    components["responses"] = {f"Problem{status}": response for status, response in PROBLEMS.items()}
    for path in openapi["paths"].values():
        for operation in path.values():
            responses = operation["responses"]
            for status in responses:
                if PROBLEM_MEDIA in responses[status].get("content", {}):
                    responses[status] = {"$ref": f"#/components/responses/Problem{status}"}
    _drop_titles(openapi["paths"])
    for schema in components["schemas"].values():
        _drop_titles(schema)


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
    fields: dict[str, Any] = {"job_type": NAME}
    fields |= {name: {**nullable(row.schema), "description": row.help} for name, row in SUBMISSION_OPTIONS.items()}
    fields["contract"] = {"enum": [contract.name, None]} if default else {"const": contract.name}
    fields["idempotency_key"]["maxLength"] = contract.keys.max_length
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


def nullable(schema: JsonSchema) -> dict[str, Any]:
    """The schema that also allows null."""
    if "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    if "anyOf" in schema:
        return {**schema, "anyOf": [{"type": "null"}, *schema["anyOf"]]}
    return {**schema, "type": [schema["type"], "null"]}
