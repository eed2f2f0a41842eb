"""A request for a schedule, checked field by field; made into a row, or read back from one to be changed."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from detent.core.contract.model import Contract, Move
from detent.core.cron import cron_of, local_instant, zone_of
from detent.core.errors import DetentError, InvalidInput
from detent.core.job import Micros
from detent.core.schedule import (
    LONGEST,
    SHORTEST,
    Kind,
    Misfire,
    Overlap,
    Schedule,
    bad_every,
    fire_key,
    next_fire,
    read_every,
    write_every,
)
from detent.core.times import SECOND, from_datetime, from_iso, iso
from detent.engine.submit.submission import Submission, check_name, check_submission, deadline_of

if TYPE_CHECKING:
    from detent.engine.engine import Engine

INVALID = "SCHEDULE_INVALID"
MAX_MISFIRES = 100
MAX_SECONDS = 86_400 * 366


@dataclass(frozen=True, slots=True)
class ScheduleRequest:
    """What a caller asks for: one of cron, every and at, and the job each fire makes."""

    name: str
    job_type: str
    cron: str | None = None
    every: str | float | timedelta | None = None
    """A span like 5m or 1h30m, or seconds."""
    at: str | datetime | None = None
    tz: str | None = None
    """The zone cron times are meant in; UTC unless said."""
    payload: Mapping[str, Any] | None = None
    contract: str | None = None
    queue: str = "default"
    tenant_id: str = "default"
    priority: int = 0
    max_retries: int | None = None
    timeout_ms: int | None = None
    limit_key: str = ""
    starts_at: str | datetime | None = None
    ends_at: str | datetime | None = None
    jitter: float = 0.0
    """Seconds; each job is due up to so much later than its fire."""
    misfire: str = Misfire.ONCE
    misfire_limit: int = 10
    """How many missed fires `all` makes up for."""
    misfire_grace: float = 60.0
    """Seconds a fire may be late and still be on time."""
    overlap: str = Overlap.ALLOW
    deadline: float | None = None
    """Seconds after a job is due: if nobody has begun it by then, it ends."""


CHANGEABLE = frozenset(field.name for field in fields(ScheduleRequest)) - {"name", "tenant_id"}
_UNSAID = {field.name: field.default for field in fields(ScheduleRequest) if field.default is not MISSING}
_WHEN = ("cron", "every", "at")


def make(engine: "Engine", ask: ScheduleRequest, now: Micros, *, schedule_id: str) -> Schedule:
    """The row of a new schedule, or the refusal of a bad one, with the contract's own code."""
    contract = engine.contract(ask.contract)
    try:
        return _make(engine, contract, ask, now, schedule_id)
    except InvalidInput as error:
        code = contract.code("invalid_schedule") if error.code == INVALID else error.code
        raise InvalidInput(error.message, code=code, **error.extra) from None


def _make(engine: "Engine", contract: Contract, ask: ScheduleRequest, now: Micros, schedule_id: str) -> Schedule:
    check_name(ask.name, "name")
    payload = check_submission(contract, submission_of(ask, contract.name), engine.max_payload)
    timing = check_timing(ask)
    if timing["overlap"] == Overlap.CANCEL and not any(edge.move is Move.CANCEL for edge in contract.edges):
        told = f"{contract.name} jobs cannot be cancelled; use overlap 'skip' or 'allow', or another contract"
        raise InvalidInput(told, code=INVALID, field="overlap")
    made = Schedule(
        id=schedule_id,
        tenant_id=ask.tenant_id,
        name=ask.name,
        **timing,
        anchor=now - now % SECOND if timing["starts_at"] is None else timing["starts_at"],
        job_type=ask.job_type,
        payload=payload,
        contract=contract.name,
        queue=ask.queue,
        priority=ask.priority,
        max_retries=ask.max_retries,
        timeout_ms=ask.timeout_ms,
        limit_key=ask.limit_key,
        deadline=_deadline(contract, ask, now),
        declared=None,
        paused_at=None,
        version=1,
        created_at=now,
        updated_at=now,
        next_fire_at=None,
    )
    return replace(made, next_fire_at=next_fire(made, now))


def check_timing(ask: ScheduleRequest) -> dict[str, Any]:
    """The columns that say when it fires and what holds for its fires; what is wrong is refused."""
    kind, expression = _when(ask)
    starts_at, ends_at = _moment(ask.starts_at, "starts_at", ask.tz), _moment(ask.ends_at, "ends_at", ask.tz)
    if starts_at is not None and ends_at is not None and ends_at < starts_at:
        raise InvalidInput("ends_at lies before starts_at; swap them", code=INVALID, field="ends_at")
    limit = ask.misfire_limit
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_MISFIRES:
        told = f"misfire_limit must be a whole number from 1 to {MAX_MISFIRES}, got {limit!r}"
        raise InvalidInput(told, code=INVALID, field="misfire_limit")
    return {
        "kind": kind,
        "expression": expression,
        "timezone": zone_of(ask.tz or "UTC").key,
        "starts_at": starts_at,
        "ends_at": ends_at,
        "jitter": _seconds(ask.jitter, "jitter"),
        "misfire": _choice(Misfire, ask.misfire, "misfire"),
        "misfire_limit": limit,
        "misfire_grace": _seconds(ask.misfire_grace, "misfire_grace"),
        "overlap": _choice(Overlap, ask.overlap, "overlap"),
    }


def request_of(schedule: Schedule) -> ScheduleRequest:
    """The request that would make this row: what an edit starts from."""
    return ScheduleRequest(
        name=schedule.name,
        job_type=schedule.job_type,
        **{schedule.kind: schedule.expression},
        tz=schedule.timezone,
        payload=json.loads(schedule.payload),
        contract=schedule.contract,
        queue=schedule.queue,
        tenant_id=schedule.tenant_id,
        priority=schedule.priority,
        max_retries=schedule.max_retries,
        timeout_ms=schedule.timeout_ms,
        limit_key=schedule.limit_key,
        starts_at=iso(schedule.starts_at),
        ends_at=iso(schedule.ends_at),
        jitter=schedule.jitter / SECOND,
        misfire=schedule.misfire,
        misfire_limit=schedule.misfire_limit,
        misfire_grace=schedule.misfire_grace / SECOND,
        overlap=schedule.overlap,
        deadline=None if schedule.deadline is None else schedule.deadline / SECOND,
    )


def edited(ask: ScheduleRequest, changes: Mapping[str, Any]) -> ScheduleRequest:
    """Another way to say when takes the place of the one before; None: as if it had not been said."""
    unknown = sorted(set(changes) - CHANGEABLE)
    if unknown:
        told = f"a schedule's {', '.join(unknown)} cannot be changed; these can: {', '.join(sorted(CHANGEABLE))}"
        raise InvalidInput(told, code="OPTION_UNKNOWN", field=unknown[0])
    if any(changes.get(name) is not None for name in _WHEN):
        changes = {**dict.fromkeys(_WHEN), **changes}
    fresh: dict[str, Any] = {name: _UNSAID.get(name) if value is None else value for name, value in changes.items()}
    return replace(ask, **fresh)


def submission_of(ask: ScheduleRequest, contract: str) -> Submission:
    """The job of a fire, so that what no fire could make is refused now. The key stands for that of any fire."""
    return Submission(
        job_type=ask.job_type,
        payload=ask.payload,
        contract=contract,
        queue=ask.queue,
        tenant_id=ask.tenant_id,
        idempotency_key=fire_key("0" * 36, 0),
        timeout_ms=ask.timeout_ms,
        max_retries=ask.max_retries,
        priority=ask.priority,
        limit_key=ask.limit_key,
    )


def _deadline(contract: Contract, ask: ScheduleRequest, now: Micros) -> Micros | None:
    """A span, unlike a job's own: no moment would do for every fire."""
    if ask.deadline is not None and not isinstance(ask.deadline, int | float):
        told = "a schedule's deadline is a number of seconds after each of its jobs is due"
        raise InvalidInput(told, code="DEADLINE_INVALID", field="deadline")
    moment = deadline_of(contract, replace(submission_of(ask, contract.name), deadline=ask.deadline), now)
    return None if moment is None else moment - now


def _when(ask: ScheduleRequest) -> tuple[Kind, str]:
    said = [name for name in _WHEN if getattr(ask, name) is not None]
    if len(said) != 1:
        told = f"say when with one of cron, every and at, not {' and '.join(said) or 'none of them'}"
        raise InvalidInput(told, code=INVALID, field="cron")
    if ask.cron is not None:
        if not isinstance(ask.cron, str):
            raise InvalidInput(f"cron {ask.cron!r} is no text", code=INVALID, field="cron")
        expression = " ".join(ask.cron.split())
        zone_of(ask.tz or "UTC")
        if cron_of(expression, ask.tz or "UTC").next(0) is None:
            raise InvalidInput(f"cron {expression!r} never fires", code=INVALID, field="cron")
        return Kind.CRON, expression
    if ask.every is not None:
        return Kind.EVERY, _span(ask.every)
    return Kind.AT, iso(_moment(ask.at, "at", ask.tz)) or ""


def _span(every: str | float | timedelta) -> str:
    if isinstance(every, str):
        return write_every(read_every(every))
    if isinstance(every, bool) or not isinstance(every, int | float | timedelta):
        raise bad_every(every)
    seconds = every.total_seconds() if isinstance(every, timedelta) else every
    if not SHORTEST / SECOND <= seconds <= LONGEST / SECOND:
        raise bad_every(every)
    return write_every(round(seconds * SECOND))


def _moment(value: str | datetime | None, field: str, tz: str | None) -> Micros | None:
    """A moment without an offset is meant in the schedule's zone, if that was said."""
    if value is None:
        return None
    try:
        if isinstance(value, datetime):
            value = value.isoformat()
        if tz is not None and isinstance(value, str) and datetime.fromisoformat(value).tzinfo is None:
            return local_instant(value, tz)
        return from_iso(value, field=field)
    except DetentError as error:
        raise InvalidInput(error.message, code=INVALID, field=error.extra.get("field", field)) from None
    except (ValueError, OverflowError):
        told = f"{field} {str(value)[:80]!r} is not an ISO-8601 time; write it like 2026-02-25T12:00:00Z"
        raise InvalidInput(told, code=INVALID, field=field) from None


def moment_of(value: str | datetime, field: str, tz: str | None = None) -> Micros:
    """An end of a range people name."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return from_datetime(value)
    found = _moment(value, field, tz)
    if found is None:
        raise InvalidInput(f"{field} is missing; write it like 2026-02-25T12:00:00Z", code=INVALID, field=field)
    return found


def _seconds(value: Any, field: str) -> Micros:
    number = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= MAX_SECONDS:
        told = f"{field} must be a number of seconds from 0 to {MAX_SECONDS}, got {str(value)[:40]!r}"
        raise InvalidInput(told, code=INVALID, field=field)
    return round(number * SECOND)


def _choice(kind: type[Any], value: Any, field: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(str(one) for one in kind)
        told = f"{field} {str(value)[:40]!r} is not known; choose one of {known}"
        raise InvalidInput(told, code=INVALID, field=field) from None
