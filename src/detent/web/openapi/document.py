"""The OpenAPI document: generated from the routes; the schema of a job submission from the tables of the contracts."""

from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from detent.core.contract.builtin import DEFAULT
from detent.core.contract.model import Contract, Move
from detent.engine.submit.submission import MAX_RETRIES, MAX_SPAN_MS, PRIORITIES
from detent.version import __version__

from .schemas import PRINTABLE, Problem

ABOUT = (
    "Detent is a durable job engine; the contract of a job defines its statuses and legal transitions. "
    "Authentication: send a token as `Authorization: Bearer TOKEN`. Errors are application/problem+json with a stable "
    "`code`. Every POST accepts an Idempotency-Key header: a repeated request gets the stored response and changes "
    "nothing again; 422 if the key was used with another request, 409 while the first request runs. "
    "GET /api/v1/events/stream sends all status changes as server-sent events and resumes after Last-Event-ID."
)
_NAME = {"type": ["string", "null"], "minLength": 1, "maxLength": 200, "pattern": PRINTABLE}
_YEAR = "([0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})"
_UTC = rf"^{_YEAR}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{{1,6}})?Z$"
_DEADLINE = {
    "anyOf": [
        {"type": "null"},
        {"type": "number", "minimum": 0.001, "maximum": MAX_SPAN_MS // 1_000},
        {"type": "string", "pattern": _UTC},
    ],
    "description": "Seconds from now, or a time in the future. A job that has not started by then is ended.",
}


def document(app: FastAPI, contracts: Mapping[str, Contract], *, is_open: bool) -> dict[str, Any]:
    """The OpenAPI document for these contracts.

    contracts: the built-in ones and those stored in the database. is_open: leave out `security`, no token is needed.
    """
    openapi = get_openapi(title="Detent", version=__version__, description=ABOUT, routes=app.routes)
    schemas = openapi.setdefault("components", {}).setdefault("schemas", {})
    schemas["Problem"] = Problem.model_json_schema()
    schemas["Submission"] = submission_schema(contracts)
    schemas |= _variants(contracts)
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    openapi["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    for operation in _operations(openapi):
        operation["responses"].pop("default", None)
        if is_open:
            operation.pop("security", None)
    return openapi


def _operations(openapi: dict[str, Any]) -> Iterable[dict[str, Any]]:
    for methods in openapi["paths"].values():
        yield from methods.values()


def submission_schema(contracts: Mapping[str, Contract]) -> dict[str, Any]:
    names = sorted(contracts)
    return {
        "description": "A job to submit. Which fields are allowed depends on the contract.",
        "oneOf": [{"$ref": f"#/components/schemas/{_variant(name)}"} for name in names],
    }


def _variant(name: str) -> str:
    return "Submission." + "".join(char if char.isalnum() or char in "-._" else "_" for char in name)


def _variants(contracts: Mapping[str, Contract]) -> dict[str, dict[str, Any]]:
    return {_variant(name): _fields(contract) for name, contract in contracts.items()}


def _fields(contract: Contract) -> dict[str, Any]:
    """The schema of a submission under this contract, from its rules for keys, retries, tasks, holds and deadlines."""
    default = contract.name == DEFAULT
    contract_name: dict[str, Any] = {"enum": [contract.name, None]} if default else {"const": contract.name}
    retries: dict[str, Any] = {"type": ["integer", "null"], "minimum": 0, "maximum": MAX_RETRIES}
    if contract.retry.frozen:
        retries = {"enum": [contract.retry.max_retries, None]}
    fields: dict[str, Any] = {
        "job_type": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": PRINTABLE},
        "payload": {"type": ["object", "null"]},
        "contract": contract_name,
        "queue": _NAME,
        "tenant_id": _NAME,
        "idempotency_key": {"type": ["string", "null"], "minLength": 1, "maxLength": contract.keys.max_length,
                            "pattern": r"^[^\x00]*[^\x00-\x20\s][^\x00]*$"},
        "idempotency_scope": _NAME,
        "schedule_type": {"enum": ["at", None]},
        "scheduled_at": {"type": ["string", "null"], "pattern": _UTC, "examples": ["2030-01-31T12:00:00Z"]},
        "timeout_ms": {"type": ["integer", "null"], "minimum": 1, "maximum": MAX_SPAN_MS},
        "max_retries": retries,
        "priority": {"type": ["integer", "null"], "minimum": PRIORITIES[0], "maximum": PRIORITIES[1]},
        "trace_id": _NAME,
        "limit_key": {**_NAME, "minLength": 0, "pattern": f"^$|{PRINTABLE}"},
    }  # fmt: skip
    if not contract.names_tasks or contract.keys.task_id_is_key or contract.task_attempts:
        fields["task_id"] = _NAME
    if contract.edge(None, Move.HOLD):
        fields["hold"] = {"type": ["boolean", "null"]}
    if contract.can_cancel_before_start:
        fields["deadline"] = _DEADLINE
    required = [] if contract.keys.task_id_is_key else ["job_type"]
    return {
        "type": "object",
        "description": f"A job to submit under the contract {contract.name}.",
        "required": required if default else [*required, "contract"],
        "additionalProperties": False,
        "properties": fields,
    }
