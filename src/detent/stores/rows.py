"""Conversion between rows and jobs, events, notes, signals and steps; the same for every store."""

import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from detent.core.contract.model import Phase
from detent.core.job import Event, Job, Note, Signal, Step
from detent.core.options.job_options import JobKeys

T = TypeVar("T")

TRACE_PREFIX = "trace-"
"""Before the job's id, in the trace id of a job that was submitted without one. Rows do not hold it."""


def columns_of(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


JOB_COLUMNS, EVENT_COLUMNS, NOTE_COLUMNS = columns_of(Job), columns_of(Event), columns_of(Note)

FIXED = frozenset(columns_of(JobKeys)) | {
    *("id", "contract", "job_type", "payload", "created_at", "max_retries"),
    *("task_attempt", "schedule_type", "scheduled_at", "deadline_at"),
}
"""Columns of a job that never change after the insert."""
MUTABLE = tuple(name for name in JOB_COLUMNS if name not in FIXED)

READY = next(field.name for field in fields(Job) if field.type is bool)
"""The column that is true while a job may be claimed."""

CREATED = tuple(
    name
    for name in JOB_COLUMNS
    if name in FIXED or name in ("status", "phase", "version", "updated_at", "due_at", READY)
)
"""The columns written by an insert; all others start as NULL, zero or false."""

_PHASES = {str(phase): phase for phase in Phase}
_PHASE_AT = JOB_COLUMNS.index("phase")
_FLAGS_AT = tuple(position for position, field in enumerate(fields(Job)) if field.type is bool)


def with_json(kind: Callable[..., T], row: Sequence[Any]) -> T:
    """Build `kind` from a row whose last column is JSON text or NULL."""
    *rest, data = row
    return kind(*rest, None if data is None else json.loads(data))


def job_from(row: Sequence[Any]) -> Job:
    values = list(row)
    values[_PHASE_AT] = _PHASES[values[_PHASE_AT]]
    for position in _FLAGS_AT:
        values[position] = bool(values[position])
    return Job(*values)


def event_from(row: Sequence[Any]) -> Event:
    return with_json(Event, row)


def event_values(event: Event) -> dict[str, Any]:
    return {**{name: getattr(event, name) for name in EVENT_COLUMNS}, "data": as_text(event.data)}


def note_from(row: Sequence[Any]) -> Note:
    return with_json(Note, row)


def note_values(note: Note) -> dict[str, Any]:
    return {**{name: getattr(note, name) for name in NOTE_COLUMNS}, "data": as_text(note.data)}


def signal_from(*row: Any) -> Signal:
    job_id, name, data, actor, at, timed_out = row
    return Signal(job_id, name, data, actor, at, bool(timed_out))


def step_from(*row: Any) -> Step:
    job_id, name, digest, result, finished, execution_no, at, started_at = row
    return Step(job_id, name, digest, result, bool(finished), execution_no, at, started_at)


def as_text(data: Any) -> str | None:
    if data is None:
        return None
    return _encode(data).encode("utf-8", "backslashreplace").decode()


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str).encode
