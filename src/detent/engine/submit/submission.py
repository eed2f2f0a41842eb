"""A request for a job, checked field by field: what is wrong is refused with a code before anything is written."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from detent.core.contract.model import Contract
from detent.core.errors import InvalidInput, NotSupported
from detent.core.job import Micros
from detent.core.times import from_iso

MAX_PAYLOAD = 1 << 20
MAX_NAME = 200
MAX_RETRIES = 1_000
MAX_SPAN_MS = 10**12
PRIORITIES = (-100, 100)
_TRACEPARENT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Submission:
    """What a caller asks for. None means: not said, so the contract's default holds."""

    job_type: str
    payload: Mapping[str, Any] | None = None
    contract: str | None = None
    queue: str = "default"
    tenant_id: str = "default"
    idempotency_key: str | None = None
    idempotency_scope: str | None = None
    task_id: str | None = None
    schedule_type: str | None = None
    scheduled_at: datetime | str | None = None
    delay: float = 0.0
    timeout_ms: int | None = None
    max_retries: int | None = None
    priority: int = 0
    trace_id: str | None = None
    parent_id: str | None = None
    limit_key: str = ""
    deadline: datetime | str | float | None = None
    """A moment, or seconds from now: if nobody has begun the job by then, it ends."""
    hold: bool = False
    actor: str | None = None
    id: str | None = None
    """Made by the client before the call, so that the call may be repeated after a lost reply."""
    requeued_from: str | None = None
    effect_root: str | None = None
    traceparent: str | None = None
    """The W3C trace context it is submitted in: 00-<trace>-<span>-<flags>."""


def check_submission(contract: Contract, ask: Submission, max_payload: int = MAX_PAYLOAD) -> str:
    """Refuse a bad request; returns the payload as JSON text."""
    for field in ("job_type", "queue", "tenant_id"):
        check_name(getattr(ask, field), field)
    for field in ("idempotency_scope", "task_id", "trace_id", "parent_id", "id"):
        if getattr(ask, field) is not None:
            check_name(getattr(ask, field), field)
    if ask.traceparent is not None and not _TRACEPARENT.fullmatch(ask.traceparent):
        told = "traceparent is not of the W3C form 00-<32 hex>-<16 hex>-<2 hex>; leave it out, or pass it on as it came"
        raise InvalidInput(told, code="TRACEPARENT_INVALID", field="traceparent")
    if ask.limit_key != "":
        check_name(ask.limit_key, "limit_key")
    _check_key(contract, ask)
    _check_number(ask.timeout_ms, "timeout_ms", 1, MAX_SPAN_MS, "TIMEOUT_INVALID")
    _check_number(ask.max_retries, "max_retries", 0, MAX_RETRIES, "MAX_RETRIES_INVALID")
    _check_number(ask.priority, "priority", *PRIORITIES, "PRIORITY_INVALID", required=True)
    _check_frozen(contract, ask)
    if ask.schedule_type not in (None, "at"):
        raise InvalidInput(
            f"schedule_type {ask.schedule_type!r} does not make a job; use 'at' here and a schedule for cron or every",
            code=contract.code("invalid_schedule"),
            field="schedule_type",
        )
    if not isinstance(ask.delay, int | float) or not 0 <= ask.delay * 1_000 <= MAX_SPAN_MS:
        raise InvalidInput("delay must be a number of seconds of at least 0", code="DELAY_INVALID", field="delay")
    return payload_text(ask.payload, max_payload)


def payload_text(payload: Any, max_payload: int = MAX_PAYLOAD) -> str:
    """A payload as it is stored: one JSON object, exact, within the size limit."""
    if payload is None or payload == {}:
        return "{}"
    if not isinstance(payload, Mapping):
        raise InvalidInput(
            f'the payload must be a JSON object, not {type(payload).__name__}; wrap the value, e.g. {{"value": ...}}',
            code="PAYLOAD_NOT_OBJECT",
        )
    text = json_text(dict(payload), "PAYLOAD_NOT_JSON", "the payload")
    size = len(text) if text.isascii() else len(text.encode())
    if size > max_payload:
        raise InvalidInput(
            f"the payload has {size} bytes, the limit is {max_payload}; store the data elsewhere and pass a reference",
            code="PAYLOAD_TOO_LARGE",
            size=size,
            limit=max_payload,
        )
    return text


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")).encode
"""A value that contains itself ends in a RecursionError, so nobody need look out for one."""


def json_text(value: Any, code: str, what: str) -> str:
    try:
        text = _encode(value)
        _ = text.isascii() or text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{what} is not JSON: {error}; use objects, lists, text, numbers", code=code) from None
    return text


def moment_of(contract: Contract, ask: Submission, now: Micros) -> tuple[Micros, Micros | None]:
    """(when the job is due, the moment that was asked for or None)."""
    moment = ask.scheduled_at
    if moment is None:
        return now + round(ask.delay * 1_000_000), None
    if isinstance(moment, datetime) and moment.tzinfo is not None:
        moment = moment.isoformat()
    if not isinstance(moment, str):
        raise InvalidInput(
            "scheduled_at must be a datetime with a zone, or ISO-8601 text", code="TIME_INVALID", field="scheduled_at"
        )
    asked = from_iso(moment, field="scheduled_at", utc_only=contract.utc_only)
    return asked, asked


def deadline_of(contract: Contract, ask: Submission, now: Micros) -> Micros | None:
    """The moment from which on the job may not begin; a contract that cannot end it then does not take one."""
    asked = ask.deadline
    if asked is None:
        return None
    if not contract.ends_late:
        raise NotSupported(
            f"the contract {contract.name} cannot end a job nobody has begun, so it takes no deadline; use standard",
            code="DEADLINE_UNSUPPORTED",
            field="deadline",
        )
    if isinstance(asked, datetime) and asked.tzinfo is not None:
        asked = asked.isoformat()
    if isinstance(asked, str):
        moment = from_iso(asked, field="deadline", utc_only=contract.utc_only)
    elif isinstance(asked, int | float) and not isinstance(asked, bool) and 0 < asked * 1_000 <= MAX_SPAN_MS:
        moment = now + int(asked * 1_000_000)
    else:
        raise InvalidInput(
            "deadline must be seconds above 0, a datetime with a zone, or ISO-8601 text",
            code="DEADLINE_INVALID",
            field="deadline",
        )
    if moment <= now:
        raise InvalidInput(
            "the deadline has already passed; the job would never begin", code="DEADLINE_PASSED", field="deadline"
        )
    return moment


def check_name(value: Any, field: str) -> None:
    if type(value) is str and value.isascii() and value.isprintable() and value.strip() and len(value) <= MAX_NAME:
        return
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_NAME or _CONTROL.search(value):
        raise InvalidInput(
            f"{field} must be 1 to {MAX_NAME} printable characters, got {str(value)[:80]!r}",
            code="NAME_INVALID",
            field=field,
        )
    if not _is_unicode(value):
        raise InvalidInput(f"{field} is not valid Unicode text", code="NAME_INVALID", field=field)


def _check_key(contract: Contract, ask: Submission) -> None:
    key, rule = ask.idempotency_key, contract.keys
    if key is None or (rule.blank_is_absent and isinstance(key, str) and not key.strip()):
        return
    if isinstance(key, str) and len(key) > rule.max_length:
        raise InvalidInput(
            f"idempotency_key has {len(key)} characters, {contract.name} allows {rule.max_length}; use a digest",
            code="KEY_TOO_LONG",
            limit=rule.max_length,
        )
    if not isinstance(key, str) or not key.strip() or "\x00" in key or not _is_unicode(key):
        raise InvalidInput("idempotency_key must be text of at least one character", code="KEY_INVALID")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_number(value: Any, field: str, low: int, high: int, code: str, *, required: bool = False) -> None:
    if value is None and not required:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidInput(
            f"{field} must be a whole number from {low} to {high}, got {value!r}", code=code, field=field
        )


def _check_frozen(contract: Contract, ask: Submission) -> None:
    rule = contract.retry
    if rule.frozen and ask.max_retries not in (None, rule.max_retries):
        raise InvalidInput(
            f"{contract.name} freezes max_retries at {rule.max_retries}; leave it out, or use another contract",
            code="MAX_RETRIES_FROZEN",
            field="max_retries",
        )
