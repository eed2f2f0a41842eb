"""A request for a schedule and its checks; converts requests to schedule rows and rows back to requests for edits."""

import json
from collections.abc import Collection, Mapping
from dataclasses import MISSING, dataclass, fields, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, TypeVar

from detent.core.access import Scope
from detent.core.contract.model import Contract, Move
from detent.core.cron import cron_of, local_instant, zone_of
from detent.core.errors import DetentError, InvalidInput, InvalidSchedule, NotFound, check_number
from detent.core.job import Micros
from detent.core.options.schedule_options import MISFIRES, ScheduleOptions
from detent.core.schedule import (
    MAX_INTERVAL,
    MIN_INTERVAL,
    Misfire,
    Overlap,
    Schedule,
    ScheduleKind,
    fire_key,
    format_interval,
    invalid_interval,
    next_fire,
    parse_interval,
)
from detent.core.times import SECOND, from_iso, iso
from detent.engine.runtime import Runtime
from detent.engine.submit.submission import Submission, check_name, check_submission, deadline_of
from detent.ports.tx import Tx

E = TypeVar("E", bound=Enum)
MAX_SECONDS = 86_400 * 366


@dataclass
class ScheduleName:
    __slots__ = ()
    name: str


@dataclass(slots=True)
class ScheduleRequest(ScheduleOptions, ScheduleName):
    """A schedule as a caller defines it: one of cron, every and at, and the job that each fire creates. Immutable."""


CHANGEABLE = frozenset(field.name for field in fields(ScheduleRequest)) - {"name", "tenant_id"}
_DEFAULTS = {field.name: field.default for field in fields(ScheduleRequest) if field.default is not MISSING}
_TIMING_OPTIONS = ("cron", "every", "at")


def build_schedule(runtime: Runtime, request: ScheduleRequest, now: Micros, *, schedule_id: str) -> Schedule:
    """The row of a new schedule; raises InvalidInput with the contract's error code if the request is invalid."""
    contract = runtime.contract(request.contract)
    try:
        return _build_schedule(runtime, contract, request, now, schedule_id)
    except InvalidInput as error:
        code = contract.code("invalid_schedule") if error.code == InvalidSchedule.code else error.code
        raise InvalidInput(error.message, code=code, **error.extra) from None


def _build_schedule(
    runtime: Runtime, contract: Contract, request: ScheduleRequest, now: Micros, schedule_id: str
) -> Schedule:
    check_name(request.name, "name")
    payload = check_submission(contract, submission_of(request, contract.name), runtime.max_payload)
    timing = check_timing(request, utc_only=contract.utc_only)
    if timing["overlap"] == Overlap.CANCEL and not contract.has(Move.CANCEL):
        text = f"{contract.name} jobs cannot be cancelled; use overlap 'skip' or 'allow', or another contract"
        raise InvalidSchedule(text, field="overlap")
    schedule = Schedule(
        id=schedule_id,
        name=request.name,
        **request.job_options(payload=payload, contract=contract.name),
        **timing,
        anchor=now - now % SECOND if timing["starts_at"] is None else timing["starts_at"],
        deadline=_deadline(contract, request, now),
        declared=None,
        paused_at=None,
        version=1,
        created_at=now,
        updated_at=now,
        next_fire_at=None,
    )
    return replace(schedule, next_fire_at=next_fire(schedule, now))


async def find_schedule(runtime: Runtime, tx: Tx, reference: str, scope: Scope | None = None) -> Schedule:
    """Look up a schedule by id or name; a name that several tenants use needs the tenant."""
    tenant = runtime.tenant_of(scope)
    matches = [schedule for schedule in await tx.schedules.schedules_matching(reference) if runtime.sees(schedule)]
    allowed = [schedule for schedule in matches if tenant is None or schedule.tenant_id == tenant]
    if len(allowed) == 1:
        return allowed[0]
    if allowed:
        raise InvalidInput(
            f"{len(allowed)} tenants have a schedule {reference!r}; name the tenant, or use the schedule's id",
            code="SCHEDULE_AMBIGUOUS",
            tenants=sorted(schedule.tenant_id for schedule in allowed),
        )
    for schedule in matches:
        if schedule.id == reference:
            runtime.require_tenant(schedule.tenant_id, scope, f"schedule {reference}", schedule_id=reference)
    message = f"schedule {reference!r} does not exist; `detent schedules list` lists all schedules"
    raise NotFound(message, code="SCHEDULE_NOT_FOUND", schedule=reference)


def check_timing(request: ScheduleRequest, *, utc_only: bool = False) -> dict[str, Any]:
    """The checked columns for the times and rules of its fires; raises InvalidInput. utc_only: refuse other offsets."""
    kind, expression = _kind_and_expression(request, utc_only)
    starts_at, ends_at = (
        _moment(request.starts_at, "starts_at", request.tz, utc_only),
        _moment(request.ends_at, "ends_at", request.tz, utc_only),
    )
    if starts_at is not None and ends_at is not None and ends_at < starts_at:
        raise InvalidSchedule("ends_at must not be before starts_at", field="ends_at")
    check_number(request.misfire_limit, "misfire_limit", MISFIRES["minimum"], MISFIRES["maximum"], InvalidSchedule.code)
    return {
        "kind": kind,
        "expression": expression,
        "timezone": str(zone_of(request.tz or "UTC")),
        "starts_at": starts_at,
        "ends_at": ends_at,
        "jitter": _seconds(request.jitter, "jitter"),
        "misfire": _enum_member(Misfire, request.misfire, "misfire"),
        "misfire_limit": request.misfire_limit,
        "misfire_grace": _seconds(request.misfire_grace, "misfire_grace"),
        "overlap": _enum_member(Overlap, request.overlap, "overlap"),
    }


def request_of(schedule: Schedule) -> ScheduleRequest:
    """The request that gives this row; edits start from it."""
    timing: dict[str, Any] = {schedule.kind: schedule.expression}
    return ScheduleRequest(
        name=schedule.name,
        **schedule.job_options(payload=json.loads(schedule.payload)),
        **timing,
        tz=schedule.timezone,
        starts_at=iso(schedule.starts_at),
        ends_at=iso(schedule.ends_at),
        jitter=schedule.jitter / SECOND,
        misfire=schedule.misfire,
        misfire_limit=schedule.misfire_limit,
        misfire_grace=schedule.misfire_grace / SECOND,
        overlap=schedule.overlap,
        deadline=None if schedule.deadline is None else schedule.deadline / SECOND,
    )


def apply_changes(request: ScheduleRequest, changes: Mapping[str, Any]) -> ScheduleRequest:
    """The request with these changes. A new cron, every or at replaces the old one; None sets the default."""
    unknown = sorted(set(changes) - CHANGEABLE)
    if unknown:
        message = f"a schedule's {', '.join(unknown)} cannot be changed; change one of {', '.join(sorted(CHANGEABLE))}"
        raise InvalidInput(message, code="OPTION_UNKNOWN", field=unknown[0])
    if any(changes.get(name) is not None for name in _TIMING_OPTIONS):
        changes = {**dict.fromkeys(_TIMING_OPTIONS), **changes}
    values: dict[str, Any] = {name: _DEFAULTS.get(name) if value is None else value for name, value in changes.items()}
    return replace(request, **values)


async def with_declared_options(runtime: Runtime, request: ScheduleRequest, given: Collection[str]) -> ScheduleRequest:
    """The request with the options that workers have declared for its job type, where none are given."""
    submission, _ = await runtime.declarations.apply(submission_of(request, request.contract), given)
    return replace(request, **{name: getattr(submission, name) for name in request.job_options()})


def submission_of(request: ScheduleRequest, contract: str | None) -> Submission:
    """The submission of a fire, so that it is checked with the schedule. The key is a placeholder."""
    return Submission(**request.job_options(contract=contract), idempotency_key=fire_key("0" * 36, 0))


def _deadline(contract: Contract, request: ScheduleRequest, now: Micros) -> Micros | None:
    """The deadline as time after the due time; a job's deadline may be a moment, a schedule's may not."""
    if request.deadline is not None and not isinstance(request.deadline, int | float):
        message = "a schedule's deadline must be a number of seconds after the due time of each job"
        raise InvalidInput(message, code="DEADLINE_INVALID", field="deadline")
    moment = deadline_of(contract, replace(submission_of(request, contract.name), deadline=request.deadline), now)
    return None if moment is None else moment - now


def _kind_and_expression(request: ScheduleRequest, utc_only: bool) -> tuple[ScheduleKind, str]:
    names = [name for name in _TIMING_OPTIONS if getattr(request, name) is not None]
    if len(names) != 1:
        text = f"give exactly one of cron, every and at, not {' and '.join(names) or 'none of them'}"
        raise InvalidSchedule(text, field="cron")
    if request.cron is not None:
        if not isinstance(request.cron, str):
            raise InvalidSchedule(f"cron must be text, got {request.cron!r}", field="cron")
        expression = " ".join(request.cron.split())
        zone_of(request.tz or "UTC")
        if cron_of(expression, request.tz or "UTC").next(0) is None:
            raise InvalidSchedule(f"cron {expression!r} never fires", field="cron")
        return ScheduleKind.CRON, expression
    if request.every is not None:
        return ScheduleKind.EVERY, _span(request.every)
    return ScheduleKind.AT, iso(_moment(request.at, "at", request.tz, utc_only)) or ""


def _span(every: str | float | timedelta) -> str:
    if isinstance(every, str):
        return format_interval(parse_interval(every))
    if isinstance(every, bool) or not isinstance(every, int | float | timedelta):
        raise invalid_interval(every)
    seconds = every.total_seconds() if isinstance(every, timedelta) else every
    if not MIN_INTERVAL / SECOND <= seconds <= MAX_INTERVAL / SECOND:
        raise invalid_interval(every)
    return format_interval(round(seconds * SECOND))


def _moment(value: str | datetime | None, field: str, tz: str | None, utc_only: bool = False) -> Micros | None:
    """A time without an offset is in the schedule's time zone, if it has one. utc_only: refuse other offsets."""
    if value is None:
        return None
    try:
        if isinstance(value, datetime):
            value = value.isoformat()
        if tz is not None and isinstance(value, str) and datetime.fromisoformat(value).tzinfo is None:
            return local_instant(value, tz)
        return from_iso(value, field=field, utc_only=utc_only)
    except DetentError as error:
        raise InvalidSchedule(error.message, field=error.extra.get("field", field)) from None
    except (ValueError, OverflowError):
        text = f"{field} {str(value)[:80]!r} is not an ISO-8601 time; write it like 2026-02-25T12:00:00Z"
        raise InvalidSchedule(text, field=field) from None


def moment_of(value: str | datetime, field: str, tz: str | None = None) -> Micros:
    """A required time, such as the start or end of a range."""
    moment = _moment(value, field, tz)
    if moment is None:
        raise InvalidSchedule(f"{field} is missing; write it like 2026-02-25T12:00:00Z", field=field)
    return moment


def _seconds(value: Any, field: str) -> Micros:
    number = value.total_seconds() if isinstance(value, timedelta) else value
    check_number(number, field, 0, MAX_SECONDS, InvalidSchedule.code, whole=False)
    return round(number * SECOND)


def _enum_member(kind: type[E], value: Any, field: str) -> E:
    try:
        return kind(value)
    except ValueError:
        names = ", ".join(str(member) for member in kind)
        raise InvalidSchedule(f"{field} must be one of {names}, got {str(value)[:40]!r}", field=field) from None
