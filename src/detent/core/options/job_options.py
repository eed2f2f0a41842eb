"""The options of a job. The row of a job and its requests inherit them, so a new option is one new field here.

To add an option: a field in RunOptions (jobs and schedules store it), JobRunOptions (jobs store it) or JobOptions (not
stored unchanged), a column in the SQL schema if it is stored, and a name in UsingOptions if `using` takes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, TypedDict

from .backoff import FORMS, PATTERN, Backoff, backoff_text
from .option import COMMAND, FLAG, NAME, NAME_OR_EMPTY, OBJECT, PYTHON, REST, integer, number, option
from .spans import seconds_of

MAX_RETRIES = 1_000
MAX_SPAN_MS = 10**12
_KEY = {"type": "string", "minLength": 1, "pattern": r"^[^\x00]*[^\x00\x1c-\x1f\x85\s][^\x00]*$"}
Seconds = float | timedelta | str
"""A span of time in Python: a number of seconds, a timedelta, or text like "90s" or "5m"."""
_MOMENT = {"type": "string", "format": "date-time"}


@dataclass
class RunOptions:
    """The options that the rows of jobs and of schedules store unchanged."""

    __slots__ = ()
    queue: str = option("default", "The queue.", NAME)
    tenant_id: str = option("default", "The tenant.", NAME, name="tenant")
    priority: int = option(0, "-100 to 100; higher runs first.", integer(-100, 100), code="PRIORITY_INVALID")
    timeout_ms: int | None = option(
        None,
        "Timeout of one attempt in milliseconds.",
        integer(1, MAX_SPAN_MS),
        name="timeout",
        code="TIMEOUT_INVALID",
        convert=lambda value: int(seconds_of(value, "timeout", low=0.001, code="TIMEOUT_INVALID") * 1_000),
    )
    limit_key: str = option("", "The key for limits per key.", NAME_OR_EMPTY)
    backoff: str | None = option(
        None,
        f"Seconds before each retry, instead of the contract's; the last one repeats: {FORMS}.",
        {"type": "string", "pattern": PATTERN},
        convert=backoff_text,
    )

    def job_options(self, **changes: Any) -> dict[str, Any]:
        """The job of this row or request as keyword arguments: handler, payload, contract and options."""
        return {name: getattr(self, name) for name in _JOB_OF_SCHEDULES} | changes


@dataclass
class JobRunOptions(RunOptions):
    """The options that the row of a job stores unchanged and that a requeue keeps."""

    __slots__ = ()
    trace_id: str | None = option(None, "The trace id.", NAME)


@dataclass
class JobKeys(JobRunOptions):
    """What the row of a job stores unchanged and what identifies this one job, so that a requeue does not keep it."""

    __slots__ = ()
    idempotency_key: str | None = option(None, "Idempotency key: the same key creates no second job.", _KEY, name="key")
    idempotency_scope: str | None = option(
        None, "Scope in which the key is unique, for contracts that use scopes.", NAME, name="scope"
    )
    task_id: str | None = option(None, "The task id, for contracts that have tasks.", NAME)
    parent_id: str | None = None
    requeued_from: str | None = None
    """The dead letter (or job) that this job was requeued from, or None."""
    effect_root: str | None = None
    """The id that effect keys are derived from: the first job in a chain of requeues."""
    traceparent: str | None = None
    """The W3C trace context of the submitting code, 00-<trace>-<span>-<flags>, or None without tracing."""


@dataclass
class JobToRun:
    """The handler to call, its arguments, and the contract."""

    __slots__ = ()
    job_type: str
    payload: Mapping[str, Any] | None = option(
        None, "The arguments as a JSON object.", OBJECT, interfaces=(COMMAND, REST)
    )
    contract: str | None = option(None, "The contract; default standard.", NAME)


@dataclass
class RequestOptions(RunOptions, JobToRun):
    """The options of a request for a job or a schedule. None means: use the contract's default."""

    __slots__ = ()
    max_retries: int | None = option(
        None, "Retries after the first attempt.", integer(0, MAX_RETRIES), code="MAX_RETRIES_INVALID"
    )


@dataclass
class JobOptions(JobKeys, RequestOptions):
    """The options of a request for a job."""

    __slots__ = ()
    schedule_type: str | None = option(
        None, "Always at: cron and every are types of schedules.", {"enum": ["at"]}, interfaces=(REST,)
    )
    scheduled_at: datetime | str | None = option(
        None,
        "Do not start before this time: 2030-01-31T12:00:00Z.",
        {**_MOMENT, "examples": ["2030-01-31T12:00:00Z"]},
        name="at",
    )
    delay: float = option(
        0.0,
        "Do not start for this many seconds.",
        number(0),
        interfaces=(PYTHON, COMMAND),
        convert=lambda value: seconds_of(value, "delay", code="DELAY_INVALID"),
    )
    deadline: datetime | str | float | None = option(
        None,
        "Seconds from now, or a time in the future. A job that has not started by then is ended.",
        {"anyOf": [number(0.001, MAX_SPAN_MS // 1_000), _MOMENT]},
        convert=lambda value: value.total_seconds() if isinstance(value, timedelta) else value,
    )
    hold: bool = option(False, "Require an approval before the first execution.", FLAG)


STORED_WITH_JOBS = tuple(field.name for field in fields(JobKeys))
_JOB_OF_SCHEDULES = tuple(field.name for field in fields(RequestOptions))
KEPT_BY_REQUEUES = tuple(field.name for field in fields(JobRunOptions))


class DeclaredOptions(TypedDict, total=False):
    """The options that both `Detent.job` and `using` take, for type checkers."""

    queue: str | None
    max_retries: int | None
    timeout: Seconds | None
    priority: int | None
    backoff: Backoff | None


class UsingOptions(DeclaredOptions, total=False):
    """The options of `JobDefinition.using`, described there."""

    delay: Seconds
    at: datetime | str | None
    key: str | None
    scope: str | None
    tenant: str
    trace_id: str | None
    task_id: str | None
    hold: bool
    limit_key: str
    deadline: datetime | timedelta | str | float | None
