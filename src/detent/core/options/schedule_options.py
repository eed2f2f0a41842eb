"""The options of a schedule; those of its jobs are in job_options."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypedDict

from detent.core.schedule import Misfire, Overlap

from .backoff import Backoff
from .job_options import MAX_SPAN_MS, RequestOptions, Seconds
from .option import LINE, integer, number, option

MISFIRES = integer(1, 100)


@dataclass
class ScheduleTiming:
    """When a schedule runs. Exactly one of cron, every and at is needed."""

    __slots__ = ()
    cron: str | None = option(None, "Five fields, six with seconds first, or a macro like @daily.", LINE)
    every: str | float | timedelta | None = option(
        None, "Interval like 30s, 5m or 1h30m, or a number of seconds.", {"anyOf": [LINE, {"type": "number"}]}
    )
    at: str | datetime | None = option(None, "Run once at this time: 2030-01-31T12:00:00Z.", LINE)
    tz: str | None = option(None, "Time zone of cron and of times without one, like Europe/Berlin; default UTC.", LINE)
    starts_at: str | datetime | None = option(None, "No run before this time; the anchor of every.", LINE)
    ends_at: str | datetime | None = option(None, "No run after this time.", LINE)
    jitter: float = option(0.0, "Each job is due up to this many seconds after its run.", number(0))


@dataclass
class ScheduleOptions(ScheduleTiming, RequestOptions):
    """When a schedule runs, and the job that each run creates."""

    __slots__ = ()
    deadline: float | None = option(
        None,
        "A job that has not started this many seconds after it is due is ended.",
        number(0.001, MAX_SPAN_MS / 1_000),
    )
    misfire: str = option(
        Misfire.ONCE,
        "Missed runs: skip them, create one job (once, the default), or one for each (all), up to misfire_limit.",
        {"enum": [*map(str, Misfire)]},
    )
    misfire_limit: int = option(10, "How many missed runs to make up for with misfire all.", MISFIRES)
    misfire_grace: float = option(60.0, "A run up to this many seconds late does not count as missed.", number(0))
    overlap: str = option(
        Overlap.ALLOW,
        "If an earlier job has not finished: allow both (the default), skip the run, or cancel the earlier job.",
        {"enum": [*map(str, Overlap)]},
    )


class ScheduleKeywords(TypedDict, total=False):
    """The options of `Detent.schedule`, described there, for type checkers."""

    cron: str | None
    every: str | float | timedelta | None
    at: str | datetime | None
    tz: str | None
    starts_at: str | datetime | None
    ends_at: str | datetime | None
    jitter: float
    misfire: str
    misfire_limit: int
    misfire_grace: float
    overlap: str
    contract: str | None
    queue: str
    tenant: str
    priority: int
    max_retries: int | None
    timeout: Seconds | None
    limit_key: str
    backoff: Backoff | None
    deadline: float | None
