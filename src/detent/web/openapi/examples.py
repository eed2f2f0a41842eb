"""Examples for the OpenAPI document and its page: of request bodies by operation, which the tests send to a server, and
of answers, which are made from their schemas."""

from collections.abc import Mapping
from typing import Any

from detent.core.contract.builtin import CONTRACTS, DEFAULT
from detent.core.contract.model import Phase

_LEASE = {"job_id": "01a1dd37-0000-7000-8000-000000000000", "token": "the-token-from-claim"}
EXAMPLES: dict[str, Any] = {
    "submitJob": {"job_type": "charge", "queue": "billing", "payload": {"order_id": 7}, "idempotency_key": "order-7"},
    "submitJobs": {"jobs": [{"job_type": "mail", "payload": {"to": "ann"}}, {"job_type": "mail", "priority": 10}]},
    "submitTask": {"task_id": "invoice-2030-01", "payload": {"month": "2030-01"}},
    "cancelJob": {"reason": "ordered twice", "force": False},
    "signalJob": {"name": "paid", "data": {"amount": 12}},
    "requeueJob": {"payload": {"order_id": 7}, "reason": "wrong order number"},
    "approveJob": {"reason": "checked with the customer"},
    "cancelJobs": {"queue": "billing", "phase": "claimable", "dry_run": True},
    "requeueJobs": {"job_type": "charge", "phase": "final", "dry_run": True},
    "requeueDeadLetters": {"error_code": "TIMEOUT", "rate": 5, "take_steps": True, "dry_run": True},
    "discardDeadLetters": {"queue": "mail", "reason": "addresses were deleted", "dry_run": True},
    "createSchedule": {
        "name": "nightly-report",
        "job_type": "report",
        "cron": "0 3 * * *",
        "timezone": "Europe/Vienna",
    },
    "updateSchedule": {"cron": "0 4 * * *", "version": 1},
    "previewTiming": {"cron": "*/15 9-17 * * mon-fri", "timezone": "Asia/Shanghai"},
    "backfillSchedule": {"first": "2030-01-01T00:00:00Z", "last": "2030-01-02T00:00:00Z", "dry_run": True},
    "pauseQueue": {"reason": "the bank is down"},
    "setLimit": {"queue": "billing", "per": "tenant", "concurrency": 2, "rate": 10, "period_seconds": 1},
    "setQuota": {"weight": 3, "max_backlog": 10_000},
    "createToken": {"name": "biller", "role": "worker", "queues": ["billing"], "job_types": ["charge"]},
    "claimJobs": {"worker": "biller-1", "job_types": ["charge"], "limit": 5, "lease_seconds": 30, "wait_seconds": 0},
    "extendLeases": {"worker": "biller-1", "held": {_LEASE["job_id"]: "the-token-from-claim"}, "lease_seconds": 30},
    "settleJob": {**_LEASE, "outcome": "succeed", "result": {"receipt": "r-1"}},
    "deregisterWorker": {"worker": "biller-1"},
    "listRecordedSteps": _LEASE,
    "recordStep": {**_LEASE, "name": "reserve", "digest": "9f86d081884c7d65", "result": {"seat": "12A"}},
    "listSignals": _LEASE,
    "enqueueChildren": {**_LEASE, "children": [{"name": "pack 1", "job_type": "pack", "payload": {"item": 1}}]},
    "reportProgress": {**_LEASE, "share": 0.4, "message": "4,000 of 10,000 rows"},
    "addLogLines": {**_LEASE, "lines": [{"message": "the bank does not answer", "level": "WARNING"}]},
    "requeueDeadLetter": {"payload": {"order_id": 7}, "take_steps": True, "reason": "wrong order number"},
    "discardDeadLetter": {"reason": "the address was deleted"},
    "removeLimit": {"queue": "billing", "per": "tenant"},
    "acknowledgeAlert": {"rule": "backlog_age", "subject": "billing", "reason": "the bank is down"},
    "silenceAlerts": {"rule": "backlog_age", "subject": "billing", "seconds": 3_600, "reason": "migration"},
    "addWebhook": {"name": "crm", "url": "https://crm.example/hooks", "queue": "billing", "phases": ["final"]},
    "updateWebhook": {"url": "https://crm.example/v2/hooks", "reason": "moved"},
    "replayWebhook": {"since": "2030-01-31T12:00:00Z", "reason": "the receiver lost them"},
    "saveView": {"query": "status=failed&queue=billing"},
    "rotateToken": {"token": "the-token-to-replace"},
    "createSession": {"token": "the-token-of-a-person"},
}

_JOB_ID, _OTHER_ID = _LEASE["job_id"], "01a1dd37-0000-7000-8000-000000000001"
_STATUS = {phase: status for status, phase in reversed(list(CONTRACTS[DEFAULT].statuses.items()))}
_TIME = "2030-01-31T12:00:00.000000Z"
_NULL = {
    *("next_cursor", "searched_until", "command", "error", "last_error", "error_code", "error_message", "result"),
    *("finished_at", "scheduled_at", "schedule_type", "idempotency_scope", "backoff", "deadline", "task_id"),
    *("parent_id", "dlq_id", "requeued_from", "failing_since", "retry_at", "revoked_at"),
}
"""Fields that are null in examples of answers, where their schema allows it: the job of the examples runs."""
_VALUES: dict[str, Any] = {
    **dict.fromkeys(("id", "job_id", "last_job_id", "requeued_as", "effect_root", "last_id"), _JOB_ID),
    **dict.fromkeys(("parent_id", "requeued_from", "dlq_id", "event_id", "delivery", "job_ids"), _OTHER_ID),
    **dict.fromkeys(("actor", "created_by", "acknowledged_by", "proposed_by", "started_by"), "ann"),
    **dict.fromkeys(("job_type", "job_types", "kinds"), "charge"),
    **dict.fromkeys(("queue", "queues"), "billing"),
    **dict.fromkeys(("timezone", "tz"), "Europe/Vienna"),
    **dict.fromkeys(("execution_no", "version", "seq", "number", "total"), 1),
    "address": "203.0.113.7",
    "contract": "standard",
    "cron": "0 3 * * *",
    "digest": "9f86d081884c7d65",
    "error_class": "TimeoutError",
    "error_code": "TIMEOUT",
    "error_message": "no answer within 30 s",
    **dict.fromkeys(("event", "events"), "job.claimed"),
    "expression": "0 3 * * *",
    "host": "worker-7",
    "idempotency_key": "order-7",
    "key": "customer-7",
    "message": "4,000 of 10,000 rows",
    "payload": {"order_id": 7},
    **dict.fromkeys(("phase", "phases"), "leased"),
    "limit_key": "",
    "name": "biller",
    "priority": 0,
    "sentence": "worker biller-1 runs the job since 12:00",
    "summary": "the oldest job waits for 12 minutes",
    "timeout_ms": 30_000,
    "reason": "checked with the customer",
    "result": {"receipt": "r-1"},
    "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    "source": _STATUS[Phase.CLAIMABLE],
    "status": _STATUS[Phase.LEASED],
    "target": _STATUS[Phase.LEASED],
    "task_id": "invoice-2030-01",
    "tenant_id": "default",
    "token": "the-token-from-claim",
    "trace_id": "checkout-7",
    "url": "https://shop.example/hooks",
    "worker": "biller-1",
}
"""Field -> the value that examples of answers have in it, unless its schema has another type."""
_TEXTS = {
    "application/x-ndjson": f'{{"id":"{_JOB_ID}","job_type":"charge","queue":"billing"}}\n',
    "text/csv": f"id,job_type,queue\r\n{_JOB_ID},charge,billing\r\n",
    "text/html": "<!doctype html>",
    "text/plain": "detent_alerts 1\n",
}
_TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "null": type(None),
}
_DEFAULTS: dict[str, Any] = {"string": "…", "number": 0.5, "boolean": True, "null": None}


def answer_example(media: str, schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Any:
    """An example of an answer with this schema. schemas: those that it refers to, by name."""
    return _TEXTS[media] if media in _TEXTS else _example(schema, schemas, "", ())


def _example(schema: Mapping[str, Any], schemas: Mapping[str, Any], name: str, within: tuple[str, ...]) -> Any:
    """within: the schemas around this one; a schema that contains itself ends with an empty list or null."""
    if "$ref" in schema:
        target = schema["$ref"].rpartition("/")[2]
        return _example(schemas[target], schemas, name, (*within, target))
    variants = schema.get("anyOf") or schema.get("oneOf") or [schema]
    if name in _NULL and {"type": "null"} in variants:
        return None
    if name in _VALUES and any(_fits(_VALUES[name], variant) for variant in variants):
        return _VALUES[name]
    if variants != [schema]:
        open_ends = [part for part in variants if part.get("$ref", "").rpartition("/")[2] not in within]
        return _example(min(open_ends, key=lambda part: part.get("type") == "null"), schemas, name, within)
    for keyword in ("const", "enum", "examples"):
        if keyword in schema:
            return schema[keyword] if keyword == "const" else schema[keyword][0]
    kind = schema.get("type", "null")
    if kind == "object":
        return {field: _example(part, schemas, field, within) for field, part in schema.get("properties", {}).items()}
    if kind == "array":
        item = schema.get("items", {})
        is_endless = item.get("$ref", "").rpartition("/")[2] in within
        return [] if is_endless else [_example(item, schemas, name, within)]
    return _TIME if schema.get("format") == "date-time" else _DEFAULTS.get(kind, schema.get("minimum", 3))


def _fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether the value has the type of the schema and its choice, if it has one."""
    if "enum" in schema or "const" in schema:
        return value in schema.get("enum", [schema.get("const")])
    if "type" not in schema:
        return "$ref" not in schema and "anyOf" not in schema
    return schema.get("format") != "date-time" and isinstance(value, _TYPES.get(schema["type"], ()))
