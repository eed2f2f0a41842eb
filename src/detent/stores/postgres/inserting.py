"""New jobs and their first events in one statement, made for what they have in common; callers share commits."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple, get_args

import asyncpg

from ...core.alike import Alike
from ...core.errors import InvalidInput, StoreRefused
from ...core.job import Change, Event, Job
from ..rows import CREATED, EVENT_COLUMNS, as_text, created_values
from .connections import drop
from .dialect import is_uuid
from .trouble import told

_BIG = {"created_at", "updated_at", "due_at", "timeout_ms", "scheduled_at", "deadline_at", "at", "lane"}
_KINDS = {bool: "boolean", int: "integer"}
_AT_MOST = 1_000
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
    jobs, events = _alike(changes, lanes[0]) if isinstance(changes, Alike) else _each(changes, lanes)
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


def _alike(changes: Alike, lane: int) -> tuple[Columns, Columns]:
    """The same without a job or an event being made: what they share stands there once."""
    first, (event,) = changes.first, changes.first.events
    jobs = [changes.own.get(name, [value]) for name, value in zip(CREATED, created_values(first.after), strict=True)]
    _, *common = _EVENT(event)
    return [*jobs, [lane]], [changes.ids, *([value] for value in common), [as_text(event.data)], [lane]]


def _columns(rows: Iterable[tuple[Any, ...]]) -> Columns:
    return [list(column) for column in zip(*rows, strict=True)]


_TURNS = 4
"""Turns of the loop before a shared commit: on a busy one callers on their way come along, an idle one has none."""
Batch = tuple[Sequence[Change], Sequence[int]]


class Inserts:
    """A connection for inserting. Callers that come while one is under way go into the next: one commit for all."""

    def __init__(self, connect: Callable[[], Awaitable[Any]]) -> None:
        self._connect = connect
        self._connection: Any = None
        self._waiting: list[tuple[Batch, asyncio.Future[set[str]]]] = []
        self._busy = False
        self._task: asyncio.Task[None] | None = None

    async def insert(self, changes: Sequence[Change], lanes: Sequence[int]) -> set[str]:
        if self._busy:
            answer: asyncio.Future[set[str]] = asyncio.get_running_loop().create_future()
            self._waiting.append(((changes, lanes), answer))
            return await answer
        self._busy = True
        try:
            return await self._write(changes, lanes)
        finally:
            self._next()

    def _next(self) -> None:
        if self._waiting:
            self._task = asyncio.create_task(self._serve())
        else:
            self._busy = False

    async def _serve(self) -> None:
        """Everybody who waits, up to a bound. One whose rows the database refuses must not take the others along."""
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        taken: list[tuple[Batch, asyncio.Future[set[str]]]] = []
        rows = 0
        while self._waiting and (not taken or rows + len(self._waiting[0][0][0]) <= _AT_MOST):
            taken.append(self._waiting.pop(0))
            rows += len(taken[-1][0][0])
        try:
            try:
                present = await self._write(
                    [change for (changes, _), _ in taken for change in changes],
                    [lane for (_, lanes), _ in taken for lane in lanes],
                )
                for (changes, _), answer in taken:
                    _tell(answer, {change.after.id for change in changes} & present)
            except StoreRefused:
                for batch, answer in taken:
                    await self._alone(batch, answer)
        except BaseException as error:
            for _, answer in taken:
                _tell(answer, error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._next()

    async def _alone(self, batch: Batch, answer: "asyncio.Future[set[str]]") -> None:
        try:
            _tell(answer, await self._write(*batch))
        except Exception as error:
            _tell(answer, error)

    async def _write(self, changes: Sequence[Change], lanes: Sequence[int]) -> set[str]:
        try:
            if self._connection is None or self._connection.is_closed():
                self._connection = await self._connect()
            return await insert(self._connection, changes, lanes)
        except asyncpg.PostgresError as error:
            raise told(error) from error
        except BaseException as error:
            drop(self._connection)
            raise told(error) from error

    async def close(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        drop(self._connection)


def _tell(answer: "asyncio.Future[set[str]]", said: "set[str] | BaseException") -> None:
    if answer.done():  # its caller has gone
        return
    if isinstance(said, BaseException):
        answer.set_exception(said)
    else:
        answer.set_result(said)
