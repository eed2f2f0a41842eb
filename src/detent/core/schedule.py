"""Schedules: when they fire, what a fire that was missed means, and how far a job may be shifted. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple

from .cron import cron_of
from .errors import InvalidInput
from .job import Micros
from .times import SECOND, from_iso, iso

COUNTED_AT_MOST = 1_000
"""Missed fires are counted up to here at a time; behind a long outage the number is a lower bound."""


class Kind(StrEnum):
    AT = "at"
    CRON = "cron"
    EVERY = "every"


class Misfire(StrEnum):
    """What becomes of fires whose moment passed while nobody was there."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


class Overlap(StrEnum):
    """What becomes of a fire while a job of an earlier one has not ended."""

    ALLOW = "allow"
    SKIP = "skip"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class Schedule:
    """One row: when to fire, the job a fire makes, and how far it has come."""

    id: str
    tenant_id: str
    name: str
    kind: str
    expression: str
    timezone: str
    anchor: Micros
    """The moment intervals are counted from."""
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
    queue: str
    priority: int
    max_retries: int | None
    timeout_ms: int | None
    limit_key: str
    declared: str | None
    """The declaration in code this row was made from, as text; None: only people made it."""
    paused_at: Micros | None
    version: int
    """Raised by every change people or code make, never by a fire."""
    created_at: Micros
    updated_at: Micros
    next_fire_at: Micros | None
    """The fire nobody has handled yet; None: paused, or there is none left."""
    last_fire_at: Micros | None = None
    last_job_id: str | None = None
    fires: int = 0
    misfires: int = 0
    last_misfire_at: Micros | None = None
    overlapped: int = 0
    """Fires that made no job because an earlier one had not ended."""
    last_error: str | None = None
    deadline: Micros | None = None
    """How long after it is due a job of it may begin."""
    retry_at: Micros | None = None
    """A fire that had no room is tried again then; its moment stays next_fire_at."""


class Fire(NamedTuple):
    """A fire that made a job; (schedule, moment) exists once."""

    schedule_id: str
    fire_at: Micros
    job_id: str
    made_at: Micros


class Plan(NamedTuple):
    """What is to be done with a schedule whose moment has come."""

    fires: tuple[Micros, ...]
    missed: int
    last_missed: Micros | None
    next: Micros | None


def next_fire(schedule: Schedule, after: Micros) -> Micros | None:
    """The first fire behind this moment, from the start to the end of the schedule."""
    if schedule.starts_at is not None:
        after = max(after, schedule.starts_at - 1)
    moment = _next(schedule, after)
    if moment is None or (schedule.ends_at is not None and moment > schedule.ends_at):
        return None
    return moment


def _next(schedule: Schedule, after: Micros) -> Micros | None:
    if schedule.kind == Kind.CRON:
        return cron_of(schedule.expression, schedule.timezone).next(after)
    if schedule.kind == Kind.EVERY:
        every = read_every(schedule.expression)
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
    """The latest due fire is on time within the grace; every other one that is due was missed."""
    assert schedule.next_fire_at is not None and schedule.next_fire_at <= now, "a plan is made for what is due"
    latest = _latest(schedule, schedule.next_fire_at, now, _wanted(schedule))
    newest = latest[-1]
    on_time = now - newest <= schedule.misfire_grace
    due = sum(1 for _ in islice(fires_between(schedule, schedule.next_fire_at, now), COUNTED_AT_MOST))
    missed = due - on_time
    fires = tuple(latest) if on_time or schedule.misfire != Misfire.SKIP else ()
    last_missed = None
    if missed:
        last_missed = _latest(schedule, schedule.next_fire_at, newest - 1, 1)[0] if on_time else newest
    return Plan(fires, missed, last_missed, next_fire(schedule, now))


def first_of(schedule: Schedule, planned: Plan) -> Plan:
    """The first of several fires alone; the others stay due."""
    assert schedule.next_fire_at is not None, "it was planned"
    first, second = planned.fires[:2]
    passed = islice(fires_between(schedule, schedule.next_fire_at, second - 1), COUNTED_AT_MOST)
    return Plan((first,), sum(1 for _ in passed), first, second)


def _wanted(schedule: Schedule) -> int:
    return schedule.misfire_limit if schedule.misfire == Misfire.ALL else 1


def _latest(schedule: Schedule, first: Micros, until: Micros, wanted: int) -> list[Micros]:
    """The last fires from `first`, which is one, to `until`."""
    found: list[Micros] = []
    while len(found) < wanted and until >= first:
        found.append(_last(schedule, first, until))
        until = found[-1] - 1
    return found[::-1]


def _last(schedule: Schedule, known: Micros, until: Micros) -> Micros:
    """The last fire up to a moment, found by halves: an outage of a year is not walked through fire by fire."""
    beyond = until
    while known < beyond:
        middle = (known + beyond) // 2
        moment = next_fire(schedule, middle)
        if moment is not None and moment <= until:
            known = moment
        else:
            beyond = middle
    return known


def shift(schedule: Schedule, fire: Micros) -> Micros:
    """How much later than its fire a job is due: drawn once for all, so that everyone draws the same."""
    if not schedule.jitter:
        return 0
    drawn = blake2b(f"{schedule.id}/{fire}".encode(), digest_size=8).digest()
    return int.from_bytes(drawn, "big") % (schedule.jitter + 1)


def fire_key(schedule_id: str, fire: Micros) -> str:
    """The idempotency key of the job a fire makes."""
    return f"{FIRE_KEY}{schedule_id}:{iso(fire)}"


FIRE_KEY = "schedule:"
_UNITS = {"w": 7 * 86_400 * SECOND, "d": 86_400 * SECOND, "h": 3_600 * SECOND, "m": 60 * SECOND, "s": SECOND}
_EVERY = re.compile(r"(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d{1,6})?)s)?", re.ASCII)
SHORTEST: Micros = SECOND
LONGEST: Micros = 3_660 * 86_400 * SECOND


def read_every(text: str) -> Micros:
    """A span like 90s, 5m, 1h30m, 2d."""
    found = _EVERY.fullmatch(text.strip().lower()) if isinstance(text, str) else None
    if found is None or not any(found.groups()):
        raise bad_every(text)
    sizes = zip(found.groups(), _UNITS.values(), strict=True)
    span = sum(round(float(number) * size) if "." in number else int(number) * size for number, size in sizes if number)
    if not SHORTEST <= span <= LONGEST:
        raise bad_every(text)
    return span


def write_every(span: Micros) -> str:
    """The same span as short as it can be said."""
    said = ""
    for unit, size in _UNITS.items():
        number, span = divmod(span, size)
        said += f"{number}{unit}" if number and unit != "s" else ""
        if unit == "s" and (number or span):
            said += f"{number + span / SECOND:f}".rstrip("0").rstrip(".") + "s"
    return said


def bad_every(value: object) -> InvalidInput:
    return InvalidInput(
        f"every {str(value)[:80]!r} is no span from 1s to ten years; write it like 30s, 5m, 1h30m or 2d",
        code="SCHEDULE_INVALID",
        field="every",
    )
