"""Builds the statement that inserts new jobs and their first events in one round trip."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple, get_args

from detent.core.errors import InvalidInput
from detent.core.job import Change, Event, Job
from detent.core.uniform_batch import UniformBatch
from detent.stores.rows import CREATED, EVENT_COLUMNS, as_text, created_values

from .dialect import is_uuid

_BIG = {"created_at", "updated_at", "due_at", "timeout_ms", "scheduled_at", "deadline_at", "at", "lane"}
_KINDS = {bool: "boolean", int: "integer"}
_EVENT = attrgetter(*EVENT_COLUMNS[:-1])


def _type_of(owner: type[Job] | type[Event], column: str) -> str:
    if column in _BIG:
        return "bigint"
    annotation = next((field.type for field in fields(owner) if field.name == column), str)
    return next((sql for kind, sql in _KINDS.items() if kind in (annotation, *get_args(annotation))), "text")


_JOB_COLUMNS = (*CREATED, "lane")
_JOB_TYPES = {name: _type_of(Job, name) for name in _JOB_COLUMNS}
_EVENT_COLUMNS = ("job_id", *EVENT_COLUMNS[1:], "lane")
_EVENT_TYPES = {name: _type_of(Event, name) for name in _EVENT_COLUMNS}
_ZERO = "execution_no, failures, retries, interruptions, wait_parked"


class Shape(NamedTuple):
    """Which columns bear the job's id, which differ from row to row, which are said once for all; the rest is null."""

    named: tuple[str, ...]
    many: tuple[str, ...]
    once: tuple[str, ...]


def shaped(names: Sequence[str], columns: Sequence[Sequence[Any]], ids: Sequence[str]) -> tuple[Shape, list[Any]]:
    """The shape of some rows, and their values in its order; ids is the first of all values."""
    named, many, once, arrays, singles = [], [], [], [], []
    for name, values in zip(names, columns, strict=True):
        first = values[0]
        if first is None and len(values) == 1:
            continue
        if values == ids:
            named.append(name)
        elif len(values) > 1 and (values.count(first) != len(values) or name == "job_id"):
            many.append(name)
            arrays.append(values)
        elif first is not None:
            once.append(name)
            singles.append(first)
    return Shape(tuple(named), tuple(many), tuple(once)), [*arrays, *singles]


@lru_cache(maxsize=256)
def statement(jobs: Shape, events: Shape, single: bool) -> str:
    """Of rows of these shapes. It answers the ids made if some were there already, else null."""
    first = 2 + len(jobs.many) + len(jobs.once)
    made, from_jobs = _selected(jobs, _JOB_TYPES, 2, single)
    logged, from_events = _selected(events, _EVENT_TYPES, first, single)
    return f"""
WITH made AS (
  INSERT INTO jobs ({_listed(jobs)}, {_ZERO})
  SELECT {made}, 0, 0, 0, 0, false {from_jobs}
  ON CONFLICT (id) DO NOTHING RETURNING id
), logged AS (
  INSERT INTO events ({_listed(events)}, xid)
  SELECT {logged}, (SELECT pg_current_xact_id()::text::bigint) {from_events}
  WHERE ({_id_of(events, single)} IN (SELECT id FROM made)) IS TRUE  -- so it is hashed, never joined in a loop
)
SELECT CASE WHEN count(*) < {"1" if single else "cardinality($1)"}
  THEN coalesce(array_agg(id::text), ARRAY[]::text[]) END FROM made"""


def _listed(shape: Shape) -> str:
    return ", ".join((*shape.named, *shape.many, *shape.once))


def _id_of(shape: Shape, single: bool) -> str:
    """The job's id as a uuid: the first parameter, unless some jobs have more rows than others."""
    if "job_id" in shape.many:
        return "u.job_id::uuid"
    return "$1::text::uuid" if single else "u.named::uuid"


def _selected(shape: Shape, types: dict[str, str], first: int, single: bool) -> tuple[str, str]:
    """The select list and the from clause; parameters count from `first`. Only arrays of text need no asking about."""
    own, named = _id_of(shape, single), "$1::text" if single else "u.named"
    values = [own if name in ("id", "job_id") else named for name in shape.named]
    values += [own if name == "job_id" else f"u.{name}" for name in shape.many]
    values += [f"${n}::{types[name]}" for n, name in enumerate(shape.once, first + len(shape.many))]
    arrays = [f"${n}::{types[name]}[]" for n, name in enumerate(shape.many, first)]
    names = list(shape.many)
    if shape.named and not single:
        arrays, names = ["$1::text[]", *arrays], ["named", *names]
    return ", ".join(values), f"FROM unnest({', '.join(arrays)}) u ({', '.join(names)})" if names else ""


async def insert(connection: Any, changes: Sequence[Change], lanes: Sequence[int]) -> set[str]:
    """New jobs and their first events in one round trip; returns the ids that were there already."""
    if not changes:
        return set()
    jobs, events = _alike(changes, lanes[0]) if isinstance(changes, UniformBatch) else _each(changes, lanes)
    ids: list[str] = jobs[0]
    for job_id in ids:
        if not is_uuid(job_id):
            raise InvalidInput(f"{job_id!r} is no UUID; leave the id out, or make a UUIDv7", code="JOB_ID_INVALID")
    single = len(ids) == 1
    (rows, values), (logged, more) = shaped(_JOB_COLUMNS, jobs, ids), shaped(_EVENT_COLUMNS, events, ids)
    text = statement(rows, logged, single)
    found = await connection.fetch(text, ids[0] if single else ids, *values, *more)
    made: list[str] | None = found[0][0]
    return set() if made is None else set(ids) - set(made)


Columns = list[list[Any]]


def _each(changes: Sequence[Change], lanes: Sequence[int]) -> tuple[Columns, Columns]:
    """The columns of jobs and of events."""
    events = [event for change in changes for event in change.events]
    data = [as_text(event.data) for event in events]
    of_events = [lane for change, lane in zip(changes, lanes, strict=True) for _ in change.events]
    jobs = _columns(created_values(change.after) for change in changes)
    return [*jobs, list(lanes)], [*_columns(map(_EVENT, events)), data, of_events]


def _alike(changes: UniformBatch, lane: int) -> tuple[Columns, Columns]:
    """The same without a job or an event being made: what they share stands there once."""
    first, (event,) = changes.first, changes.first.events
    jobs = [changes.own.get(name, [value]) for name, value in zip(CREATED, created_values(first.after), strict=True)]
    _, *common = _EVENT(event)
    return [*jobs, [lane]], [changes.ids, *([value] for value in common), [as_text(event.data)], [lane]]


def _columns(rows: Iterable[tuple[Any, ...]]) -> Columns:
    return [list(column) for column in zip(*rows, strict=True)]
