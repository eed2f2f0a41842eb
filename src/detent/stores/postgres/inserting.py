"""New jobs and their first events in one statement, made for what they have in common; callers share commits."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple, get_args

import asyncpg

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


_JOB_TYPES = {name: _type_of(Job, name) for name in (*CREATED, "lane")}
_EVENT_COLUMNS = ("job_id", *EVENT_COLUMNS[1:], "lane")
_EVENT_TYPES = {name: _type_of(Event, name) for name in _EVENT_COLUMNS}
_ZERO = "execution_no, failures, retries, interruptions, wait_parked"


class Shape(NamedTuple):
    """Which columns differ from row to row, and which are said once for all; what is left out is null."""

    many: tuple[str, ...]
    once: tuple[str, ...]


def shaped(names: Sequence[str], columns: Iterable[Sequence[Any]]) -> tuple[Shape, list[Any]]:
    """The shape of some rows, and their values in its order."""
    many, once, arrays, singles = [], [], [], []
    for name, values in zip(names, columns, strict=True):
        first = values[0]
        if len(values) > 1 and (values.count(first) != len(values) or name in ("id", "job_id")):
            many.append(name)
            arrays.append(values)
        elif first is not None:
            once.append(name)
            singles.append(first)
    return Shape(tuple(many), tuple(once)), [*arrays, *singles]


@lru_cache(maxsize=256)
def statement(jobs: Shape, events: Shape) -> str:
    """Of rows of these shapes. It answers the ids made if some were there already, else null."""
    first = 1 + len(jobs.many) + len(jobs.once)
    made, from_jobs = _selected(jobs, _JOB_TYPES, 1)
    logged, from_events = _selected(events, _EVENT_TYPES, first)
    number = "cardinality($1)" if jobs.many else "1"
    return f"""
WITH made AS (
  INSERT INTO jobs ({", ".join((*jobs.many, *jobs.once))}, {_ZERO})
  SELECT {made}, 0, 0, 0, 0, false {from_jobs}
  ON CONFLICT (id) DO NOTHING RETURNING id
), logged AS (
  INSERT INTO events ({", ".join((*events.many, *events.once))}, xid)
  SELECT * FROM (SELECT {logged}, (SELECT pg_current_xact_id()::text::bigint) {from_events}) e (job_id)
  WHERE (e.job_id IN (SELECT id FROM made)) IS TRUE  -- so it is hashed, never joined in a loop
)
SELECT CASE WHEN count(*) < {number} THEN coalesce(array_agg(id::text), ARRAY[]::text[]) END FROM made"""


def _selected(shape: Shape, types: dict[str, str], first: int) -> tuple[str, str]:
    """The select list and the from clause; parameters count from `first`. Only arrays of text need no asking about."""
    arrays = ", ".join(f"${n}::{types[name]}[]" for n, name in enumerate(shape.many, first))
    values = [f"u.{name}::uuid" if name in ("id", "job_id") else f"u.{name}" for name in shape.many]
    for n, name in enumerate(shape.once, first + len(shape.many)):
        values.append(f"${n}::text::uuid" if name in ("id", "job_id") else f"${n}::{types[name]}")
    return ", ".join(values), f"FROM unnest({arrays}) u ({', '.join(shape.many)})" if shape.many else ""


async def insert(connection: Any, changes: Sequence[Change], lanes: Sequence[int]) -> set[str]:
    """New jobs and their first events in one round trip; returns the ids that were there already."""
    if not changes:
        return set()
    jobs = [change.after for change in changes]
    for job in jobs:
        if not is_uuid(job.id):
            raise InvalidInput(f"{job.id!r} is no UUID; leave the id out, or make a UUIDv7", code="JOB_ID_INVALID")
    events = [event for change in changes for event in change.events]
    rows, values = shaped((*CREATED, "lane"), (*_columns(map(created_values, jobs)), list(lanes)))
    data = [as_text(event.data) for event in events]
    of_events = [lane for change, lane in zip(changes, lanes, strict=True) for _ in change.events]
    logged, more = shaped(_EVENT_COLUMNS, (*_columns(map(_EVENT, events)), data, of_events))
    found = await connection.fetch(statement(rows, logged), *values, *more)
    made: list[str] | None = found[0][0]
    return set() if made is None else {job.id for job in jobs} - set(made)


def _columns(rows: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
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
