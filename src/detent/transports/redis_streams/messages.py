"""Converts messages to stream fields and back. An invalid message is returned with its problem, never raised."""

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from detent.core.contract.streams import ResultStatus
from detent.core.job import DeadLetter
from detent.core.times import iso
from detent.ports.stream import Delivery, Result, TaskMessage

TASK_FIELDS = (b"task_id", b"tool_name", b"payload", b"retry_count", b"idempotency_key", b"trace_id")
_REQUIRED_FIELDS = TASK_FIELDS[:5]
_MAX_COUNT = 10**6
_NO_FIELDS: Mapping[bytes, bytes] = {}


def fields_of(task: TaskMessage) -> list[Any]:
    """A task as the field and value arguments of XADD."""
    return [*chain.from_iterable(zip(TASK_FIELDS, task, strict=True))]


def dead_letter_fields(dead_letter: DeadLetter) -> list[Any]:
    fields = {
        "task_id": dead_letter.job_id,
        "tool_name": dead_letter.job_type,
        "payload": dead_letter.payload,
        "error": f"{dead_letter.error_code}: {dead_letter.error_message or ''}".rstrip(": "),
        "retry_count": dead_letter.retries,
        "failed_at": iso(dead_letter.created_at),
        "dlq_id": dead_letter.id,
    }
    return [*chain.from_iterable(fields.items())]


def delivery_of(entry: Sequence[Any], max_bytes: int) -> Delivery:
    """One entry of the task stream. An entry that was deleted while pending has no fields."""
    message_id = entry[0].decode()
    pairs = entry[1]
    if pairs is None:
        return Delivery(message_id, "", 0, b"", _NO_FIELDS, "the message was deleted from the stream")
    fields = dict(zip(pairs[::2], pairs[1::2], strict=True))
    try:
        payload = fields[b"payload"]
        count = int(fields[b"retry_count"])
        task_id = fields[b"task_id"].decode("ascii")
        if not 0 <= count < _MAX_COUNT or not task_id or b"tool_name" not in fields or b"idempotency_key" not in fields:
            raise ValueError
    except (KeyError, ValueError):
        return Delivery(message_id, _text(fields.get(b"task_id")), 0, b"", fields, _problem(fields))
    if len(payload) > max_bytes:
        problem = f"the payload has {len(payload)} bytes, the limit is {max_bytes}"
        return Delivery(message_id, task_id, count, payload, fields, problem)
    return Delivery(message_id, task_id, count, payload, fields)


def _problem(fields: Mapping[bytes, bytes]) -> str:
    missing = [name.decode() for name in _REQUIRED_FIELDS if not fields.get(name)]
    if missing:
        return f"missing fields: {', '.join(missing)}"
    return "retry_count must be a whole number of at least 0, and task_id an id"


def payload_problem(payload: bytes) -> str | None:
    """Why a payload is not a JSON object; None if it is one."""
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError) as error:
        return f"the payload is not JSON: {error}"
    return None if isinstance(value, dict) else "the payload is not a JSON object"


def result_of(entry: Sequence[Any], max_bytes: int) -> Result:
    own_id, pairs = entry[0].decode(), entry[1] or []
    fields = dict(zip(pairs[::2], pairs[1::2], strict=True))
    status = _text(fields.get(b"status"))
    output = fields.get(b"output")
    problem = None
    missing = [name.decode() for name in (b"task_id", b"message_id", b"status") if not fields.get(name)]
    if missing:
        problem = f"missing fields: {', '.join(missing)}"
    elif status not in list(ResultStatus):
        problem = f"status {status[:80]!r} must be one of {', '.join(ResultStatus)}"
    elif output and (len(output) > max_bytes or not _is_json(output)):
        problem = f"the output is not JSON, or over {max_bytes} bytes"
    readable = output.decode() if output and problem is None else None
    retryable = _text(fields.get(b"retryable")).strip().lower() not in ("false", "0", "no")
    return Result(
        own_id,
        _text(fields.get(b"task_id")),
        _text(fields.get(b"message_id")),
        status,
        readable,
        _text(fields.get(b"error"))[:2_000],
        _text(fields.get(b"error_code"))[:200],
        retryable,
        _text(fields.get(b"worker"))[:200],
        fields,
        problem,
        fields.get(b"settled") == b"true",
    )


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text, parse_constant=_refuse_constant)
        text.decode()
    except (ValueError, RecursionError):
        return False
    return True


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _text(value: bytes | None) -> str:
    """Text that both databases can store: no invalid UTF-8, no NUL."""
    return "" if value is None else value.decode("utf-8", "backslashreplace").replace("\x00", "\\x00")
