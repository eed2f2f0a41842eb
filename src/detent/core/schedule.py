"""Schedules: fire times, handling of missed fires, and jitter. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import NamedTuple

from .cron import next_cron_fire
from .errors import InvalidInput, InvalidSchedule
from .job import Micros
from .options.job_options import RunOptions
from .options.spans import SPAN_UNITS, parse_span
from .retry import deterministic_jitter
from .times import SECOND, from_iso, iso

MAX_COUNTED_FIRES = 1_000
"""Missed fires are counted up to this number per plan; after a long outage the count is a lower bound."""


class ScheduleKind(StrEnum):
    AT = "at"
    CRON = "cron"
    EVERY = "every"


class Misfire(StrEnum):
    """What to do with fires that were missed because no process ran: skip them, fire once, or fire all."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


class Overlap(StrEnum):
    """What to do with a fire while a job of an earlier fire has not ended."""

    ALLOW = "allow"
    SKIP = "skip"
    CANCEL = "cancel"


@dataclass
class RequiredScheduleColumns:
    """The columns that every schedule has from the start."""

    __slots__ = ()
    id: str
    name: str
    kind: str
    expression: str
    timezone: str
    anchor: Micros
    """The time from which intervals are counted."""
    starts_at: Micros | None
    ends_at: Micros | None
    jitter: Micros
    misfire: str
    misfire_limit: int
    misfire_grace: Micros
    overlap: str
    job_type: str
    payload: str
    contract: str
    max_retries: int | None
    declared: str | None
    """The declaration in application code that this row was made from, as text; None: not declared in code."""
    paused_at: Micros | None
    version: int
    """Incremented by every change of the schedule, never by a fire."""
    created_at: Micros
    updated_at: Micros
    next_fire_at: Micros | None
    """The next fire that is not handled yet; None: paused, or no fire is left."""


@dataclass(slots=True)
class Schedule(RunOptions, RequiredScheduleColumns):
    """One row: when to fire, the job that a fire submits, and the progress so far. Immutable."""

    last_fire_at: Micros | None = None
    last_job_id: str | None = None
    fires: int = 0
    misfires: int = 0
    last_misfire_at: Micros | None = None
    overlapped: int = 0
    """Fires that submitted no job because an earlier job had not ended."""
    last_error: str | None = None
    deadline: Micros | None = None
    """How long after its due time a job of this schedule may start."""
    retry_at: Micros | None = None
    """When to try a fire again that exceeded a quota; next_fire_at stays the time of the fire."""


class Fire(NamedTuple):
    """A fire that submitted a job; (schedule_id, fire_at) is unique."""

    schedule_id: str
    fire_at: Micros
    job_id: str
    made_at: Micros


class Plan(NamedTuple):
    """What to do with a schedule that is due: the fires to submit, the missed ones, and the next fire."""

    fires: tuple[Micros, ...]
    missed: int
    last_missed: Micros | None
    next: Micros | None


class Advance(NamedTuple):
    """A handled fire: the schedule as it was read, and what its row becomes."""

    before: Schedule
    plan: Plan
    error: str | None
    made: int = 0
    """Submitted jobs."""
    overlapped: int = 0
    last: tuple[Micros, str] | None = None
    """The newest fire that submitted a job, and the id of that job."""


def next_fire(schedule: Schedule, after: Micros) -> Micros | None:
    """The first fire after this time, between the start and the end of the schedule."""
    if schedule.starts_at is not None:
        after = max(after, schedule.starts_at - 1)
    moment = _next(schedule, after)
    if moment is None or (schedule.ends_at is not None and moment > schedule.ends_at):
        return None
    return moment


def _next(schedule: Schedule, after: Micros) -> Micros | None:
    if schedule.kind == ScheduleKind.CRON:
        return next_cron_fire(schedule.expression, schedule.timezone, after)
    if schedule.kind == ScheduleKind.EVERY:
        every = parse_interval(schedule.expression)
        return schedule.anchor + ((after - schedule.anchor) // every + 1) * every
    moment = from_iso(schedule.expression, field="at")
    return moment if moment > after else None


def fires_between(schedule: Schedule, first: Micros, last: Micros) -> Iterator[Micros]:
    """Every fire from `first` to `last`, both included."""
    moment = next_fire(schedule, first - 1)
    while moment is not None and moment <= last:
        yield moment
        moment = next_fire(schedule, moment)


def plan(schedule: Schedule, now: Micros) -> Plan:
    """Plan the due fires. The latest one is on time within misfire_grace; all other due fires were missed."""
    assert schedule.next_fire_at is not None and schedule.next_fire_at <= now, "only a due schedule is planned"
    following = next_fire(schedule, schedule.next_fire_at)
    if following is None or following > now:  # the usual case, without a search for the latest fire
        return _plan_one(schedule, schedule.next_fire_at, now, following)
    latest = _latest(schedule, schedule.next_fire_at, now, _max_fires(schedule))
    newest = latest[-1]
    on_time = now - newest <= schedule.misfire_grace
    due = sum(1 for _ in islice(fires_between(schedule, schedule.next_fire_at, now), MAX_COUNTED_FIRES))
    missed = due - on_time
    fires = tuple(latest) if on_time or schedule.misfire != Misfire.SKIP else ()
    last_missed = None
    if missed:
        last_missed = _latest(schedule, schedule.next_fire_at, newest - 1, 1)[0] if on_time else newest
    return Plan(fires, missed, last_missed, next_fire(schedule, now))


def _plan_one(schedule: Schedule, fire: Micros, now: Micros, following: Micros | None) -> Plan:
    if now - fire <= schedule.misfire_grace:
        return Plan((fire,), 0, None, following)
    return Plan(() if schedule.misfire == Misfire.SKIP else (fire,), 1, fire, following)


def first_fire_only(schedule: Schedule, planned: Plan) -> Plan:
    """A plan with the first of several fires only; the others stay due."""
    assert schedule.next_fire_at is not None, "only a due schedule is planned"
    first, second = planned.fires[:2]
    passed = islice(fires_between(schedule, schedule.next_fire_at, second - 1), MAX_COUNTED_FIRES)
    return Plan((first,), sum(1 for _ in passed), first, second)


def _max_fires(schedule: Schedule) -> int:
    return schedule.misfire_limit if schedule.misfire == Misfire.ALL else 1


def _latest(schedule: Schedule, first: Micros, until: Micros, limit: int) -> list[Micros]:
    """The last `limit` fires between `first`, which is a fire, and `until`."""
    fires: list[Micros] = []
    while len(fires) < limit and until >= first:
        fires.append(_last(schedule, first, until))
        until = fires[-1] - 1
    return fires[::-1]


def _last(schedule: Schedule, first: Micros, until: Micros) -> Micros:
    """The last fire up to `until`, by bisection: after an outage of a year there may be millions of fires."""
    last, upper = first, until
    while last < upper:
        middle = (last + upper) // 2
        moment = next_fire(schedule, middle)
        if moment is not None and moment <= until:
            last = moment
        else:
            upper = middle
    return last


def jitter_delay(schedule: Schedule, fire: Micros) -> Micros:
    """The jitter of one fire. Derived from a hash, so that every process computes the same delay."""
    return deterministic_jitter(schedule.id, fire, schedule.jitter) if schedule.jitter else 0


def fire_key(schedule_id: str, fire: Micros) -> str:
    """The idempotency key of the job that a fire submits."""
    return f"{FIRE_KEY}{schedule_id}:{iso(fire)}"


FIRE_KEY = "schedule:"
MIN_INTERVAL: Micros = SECOND
MAX_INTERVAL: Micros = 3_660 * 86_400 * SECOND


def parse_interval(text: str) -> Micros:
    """Parse an interval like 90s, 5m, 1h30m, 2d; raises InvalidInput."""
    span = parse_span(text) if isinstance(text, str) else None
    if span is None or not MIN_INTERVAL <= span <= MAX_INTERVAL:
        raise invalid_interval(text)
    return span


def format_interval(span: Micros) -> str:
    """The shortest text for an interval."""
    text = ""
    for unit, size in SPAN_UNITS.items():
        number, span = divmod(span, size)
        text += f"{number}{unit}" if number and unit != "s" else ""
        if unit == "s" and (number or span):
            text += f"{number + span / SECOND:f}".rstrip("0").rstrip(".") + "s"
    return text


def invalid_interval(value: object) -> InvalidInput:
    text = f"every {str(value)[:80]!r} must be an interval from 1s to ten years, for example 30s, 5m, 1h30m or 2d"
    return InvalidSchedule(text, field="every")
