"""Builds and runs the statement that inserts new jobs and their first events in one round trip."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import asyncpg

from detent.core.contract.model import Phase
from detent.core.errors import InvalidInput
from detent.core.job import TASK, Change, Event, Job, Micros
from detent.core.times import DAY, first_id
from detent.core.uniform_batch import UniformBatch
from detent.stores.listing_queries import needs_trace_row
from detent.stores.rows import CREATED, TRACE_PREFIX, as_text

from .connections import STATEMENT_SECONDS
from .dialect import is_uuid
from .names import PLAIN_COLUMNS, Names, sql_type

_PLAIN = tuple(name for name in CREATED if name in PLAIN_COLUMNS)
_plain_values = attrgetter(*_PLAIN)
_JOB_COLUMNS = (*_PLAIN, "state", "lane")
_JOB_TYPES = {name: sql_type(name) for name in _JOB_COLUMNS}
_EVENT_PLAIN = ("job_id", "seq", "at", "execution_no", "retries")
_event_values = attrgetter(*_EVENT_PLAIN)
_EVENT_COLUMNS = (*_EVENT_PLAIN, "edge", "actor", "data", "lane")
_EVENT_TYPES = {name: sql_type(name) for name in _EVENT_COLUMNS}
_FEW_JOBS = 1_000
_SECONDS_PER_JOB = 0.002
"""Added to the time limit of a statement that inserts many jobs."""
"""The shortest width of a partition, and so the least age of a job whose events are left when it is pruned."""
_DROP_LEFT_EVENTS = """DELETE FROM {0}events e WHERE job_id = ANY (CAST($1::text[] AS uuid[]))
  AND NOT EXISTS (SELECT 1 FROM {0}jobs j WHERE j.id = e.job_id)"""
_PLACES = {
    "queue": ("lane, due_at, id", "state & 3 = 0 AND due_at <= created_at"),
    "timers": (
        "wakes, due_at, id",
        "state & 3 = 0 AND due_at > created_at OR state & 3 = 2 AND due_at IS NOT NULL",
    ),
    "deadlines": ("deadline_at, id", "deadline_at IS NOT NULL"),
    "awaiting_approval": ("id", "state & 3 = 2 AND due_at IS NULL"),
    "job_traces": ("trace_id, job_id", "trace_id IS NOT NULL AND strpos(trace_id, id::text) = 0"),
}
"""Thin table -> (its columns, the new jobs that belong there)."""


class Outbox(NamedTuple):
    """Which new jobs get an item in the outbox."""

    states: tuple[int, ...] = ()
    hold: Micros = 0
    """How long the items of jobs that are due are hidden from orchestrators."""

    @staticmethod
    def of(names: Names, changes: Iterable[Change]) -> "Outbox":
        """The hold is the shortest of all: an item that is published twice does no harm."""
        tasks = [change for change in changes if change.outbox_item is not None]
        if not tasks:
            return NO_OUTBOX
        states = {names.state_ids[change.after.contract, change.after.status] for change in tasks}
        return Outbox(
            tuple(sorted(states)), min((change.outbox_hold for change in tasks if change.after.ready), default=0)
        )

    def insert(self, namespace: str) -> str:
        if not self.states:
            return ""
        return f""", in_outbox AS (
  INSERT INTO {namespace}outbox (job_id, kind, version, due_at)
  SELECT id, '{TASK}', version, CASE WHEN due_at <= created_at THEN due_at + {self.hold} ELSE due_at END FROM made
  WHERE state IN ({", ".join(map(str, self.states))})
)"""


NO_OUTBOX = Outbox()
Destinations = tuple[frozenset[str], Outbox]
"""The thin tables that new jobs belong to, and which of them get an item in the outbox."""


def places_of(job: Job) -> tuple[str, ...]:
    """The thin tables that a new job belongs to."""
    if job.phase is Phase.CLAIMABLE:
        place = "queue" if job.ready else "timers"
    elif job.phase is Phase.BLOCKED:
        place = "awaiting_approval" if job.due_at is None else "timers"
    else:
        place = ""
    deadline, trace = "deadlines" if job.deadline_at is not None else "", "job_traces" if needs_trace_row(job) else ""
    return tuple(name for name in (place, deadline, trace) if name)


class Shape(NamedTuple):
    """How the columns of some rows are passed to the statement; columns in none of the three are NULL."""

    ids: tuple[str, ...]
    """Equal to the job's id, which is the first parameter."""
    arrays: tuple[str, ...]
    """Different from row to row: one array parameter each."""
    constants: tuple[str, ...]
    """The same in all rows: one plain parameter each."""


def shape_of(names: Sequence[str], columns: Sequence[Sequence[Any]], ids: Sequence[str]) -> tuple[Shape, list[Any]]:
    """The shape of some rows, and its parameters in order: arrays, then constants."""
    id_columns, array_columns, constant_columns, arrays, constants = [], [], [], [], []
    for name, values in zip(names, columns, strict=True):
        if name == "trace_id" and len(values) == len(ids):
            values = [_stored_trace(trace, job_id) for trace, job_id in zip(values, ids, strict=True)]
        first = values[0]
        if first is None and len(values) == 1:
            continue
        if values == ids:
            if name != "effect_root":  # NULL stands for the job's own id
                id_columns.append(name)
        elif len(values) > 1 and (values.count(first) != len(values) or name == "job_id"):
            array_columns.append(name)
            arrays.append(values)
        elif first is not None:
            constant_columns.append(name)
            constants.append(first)
    shape = Shape(tuple(id_columns), tuple(array_columns), tuple(constant_columns))
    return shape, [*arrays, *constants]


@lru_cache(maxsize=256)
def queued_statement(jobs: Shape, events: Shape, single: bool, namespace: str) -> str:
    """The statement for new jobs that are all queued at once; an id that exists already makes it fail.

    Three plain inserts, each from the parameters: ON CONFLICT and reading back what was inserted cost a third more.
    """
    job_values, from_jobs = _select(jobs, _JOB_TYPES, 2, single)
    event_values, from_events = _select(events, _EVENT_TYPES, 2 + len(jobs.arrays) + len(jobs.constants), single)
    queue = tuple(name for name in (*jobs.ids, *jobs.arrays, *jobs.constants) if name in ("id", "lane", "due_at"))
    queue_values, from_queue = _select(jobs, _JOB_TYPES, 2, single, queue)
    parsed = "" if single else "named AS MATERIALIZED (SELECT $1::text[]::uuid[] AS ids), "
    return f"""
WITH {parsed}made AS (
  INSERT INTO {namespace}jobs ({_column_list(jobs)}) SELECT {job_values} {from_jobs}
), queued AS (
  INSERT INTO {namespace}queue ({", ".join(queue)}) SELECT {queue_values} {from_queue}
)
INSERT INTO {namespace}events ({_column_list(events)}, xid)
SELECT {event_values}, (SELECT pg_current_xact_id()::text::bigint) {from_events}""".replace(
        "unnest($1::text[]", "unnest((SELECT ids FROM named)"
    )


@lru_cache(maxsize=256)
def statement(
    jobs: Shape, events: Shape, single: bool, places: frozenset[str], namespace: str, outbox: Outbox = NO_OUTBOX
) -> str:
    """The statement for rows of these shapes. It returns NULL, or the inserted ids if some jobs existed already."""
    first = 2 + len(jobs.arrays) + len(jobs.constants)
    job_values, from_jobs = _select(jobs, _JOB_TYPES, 2, single)
    event_values, from_events = _select(events, _EVENT_TYPES, first, single)
    returned = "id, version, lane, due_at, created_at, deadline_at, state"
    returned += ", trace_id" if "job_traces" in places else ""
    placed = "".join(_place(namespace, table) for table in sorted(places)) + outbox.insert(namespace)
    return f"""
WITH made AS (
  INSERT INTO {namespace}jobs ({_column_list(jobs)})
  SELECT {job_values} {from_jobs}
  ON CONFLICT (id) DO NOTHING RETURNING {returned}
){placed}, logged AS (
  INSERT INTO {namespace}events ({_column_list(events)}, xid)
  SELECT {event_values}, (SELECT pg_current_xact_id()::text::bigint) {from_events}
  WHERE ({_id_of(events, single)} IN (SELECT id FROM made)) IS TRUE  -- IS TRUE: a hashed subplan, not a nested loop
)
SELECT CASE WHEN count(*) < {"1" if single else "cardinality($1)"}
  THEN coalesce(array_agg(id::text), ARRAY[]::text[]) END FROM made"""


def _place(namespace: str, table: str) -> str:
    columns, condition = _PLACES[table]
    values = columns.replace("wakes", "state & 3 = 2").replace("job_id", "id")
    return f""", in_{table} AS (
  INSERT INTO {namespace}{table} ({columns}) SELECT {values} FROM made WHERE {condition}
)"""


def _column_list(shape: Shape) -> str:
    return ", ".join((*shape.ids, *shape.arrays, *shape.constants))


def _id_of(shape: Shape, single: bool) -> str:
    """The job's id as a uuid: from the first parameter, unless job_id is an array (jobs with several events)."""
    if "job_id" in shape.arrays:
        return "u.job_id::uuid"
    return "$1::text::uuid" if single else "u.named::uuid"


def _select(
    shape: Shape, types: dict[str, str], first: int, single: bool, only: Sequence[str] | None = None
) -> tuple[str, str]:
    """The select list and the FROM clause; parameters are numbered from `first`. only: the columns to select.

    Ids are passed as text[], because asyncpg looks up the type of other arrays on the server before the first call.
    """
    uuid, text = _id_of(shape, single), "$1::text" if single else "u.named::text"
    values = {name: uuid if name in ("id", "job_id") else text for name in shape.ids}
    values |= {name: uuid if name == "job_id" else f"u.{name}" for name in shape.arrays}
    values |= {name: f"${n}::{types[name]}" for n, name in enumerate(shape.constants, first + len(shape.arrays))}
    arrays = {name: f"${n}::{types[name]}[]" for n, name in enumerate(shape.arrays, first)}
    if only is not None:
        values, arrays = ({name: some[name] for name in only if name in some} for some in (values, arrays))
    if shape.ids and not single:
        arrays = {"named": "$1::text[]", **arrays}
    source = f"FROM unnest({', '.join(arrays.values())}) u ({', '.join(arrays)})" if arrays else ""
    return ", ".join(values.values()), source


async def insert(
    connection: Any,
    namespace: str,
    names: Names,
    changes: Sequence[Change],
    lanes: Sequence[int],
    *,
    in_transaction: bool = True,
) -> set[str]:
    """Insert new jobs and their first events in one round trip; returns the ids that existed already.

    in_transaction: a statement that fails would end a transaction of the caller.
    """
    if not changes:
        return set()
    samples = [changes.first] if isinstance(changes, UniformBatch) else changes
    await _drop_left_events(connection, namespace, changes)
    plain = not in_transaction and all(_is_plain(change) for change in samples)
    if plain:
        with suppress(asyncpg.UniqueViolationError):
            return await _insert(connection, namespace, names, changes, lanes, None)
    places = frozenset([place for change in samples for place in places_of(change.after)])
    return await _insert(connection, namespace, names, changes, lanes, (places, Outbox.of(names, samples)))


async def _drop_left_events(connection: Any, namespace: str, changes: Sequence[Change]) -> None:
    """Make room for jobs whose ids are old enough that a pruned job may have had them, and has left its events."""
    bound = first_id(changes[0].after.created_at - DAY)
    ids = changes.ids if isinstance(changes, UniformBatch) else [change.after.id for change in changes]
    old = [job_id for job_id in ids if job_id < bound and is_uuid(job_id)]
    if old:
        await connection.execute(_DROP_LEFT_EVENTS.format(namespace), old)


def _is_plain(change: Change) -> bool:
    return change.outbox_item is None and places_of(change.after) == ("queue",)


async def _insert(
    connection: Any,
    namespace: str,
    names: Names,
    changes: Sequence[Change],
    lanes: Sequence[int],
    destinations: Destinations | None,
) -> set[str]:
    """destinations: None if all jobs go to the queue and nowhere else."""
    if len(changes) == 1 and len(changes[0].events) == 1:
        return await _insert_one(connection, namespace, names, changes[0], lanes[0], destinations)
    if isinstance(changes, UniformBatch):
        jobs, events = await _uniform(names, changes, lanes[0])
    else:
        jobs, events = await _individual(names, changes, lanes)
    ids: list[str] = jobs[0]
    for job_id in ids:
        _check_id(job_id)
    single = len(ids) == 1
    job_shape, job_parameters = shape_of(_JOB_COLUMNS, jobs, ids)
    event_shape, event_parameters = shape_of(_EVENT_COLUMNS, events, ids)
    text = _statement(job_shape, event_shape, single, destinations, namespace)
    seconds = STATEMENT_SECONDS + len(ids) * _SECONDS_PER_JOB if len(ids) > _FEW_JOBS else None
    rows = await connection.fetch(text, ids[0] if single else ids, *job_parameters, *event_parameters, timeout=seconds)
    inserted: list[str] | None = rows[0][0] if rows else None
    return set() if inserted is None else set(ids) - set(inserted)


def _statement(jobs: Shape, events: Shape, single: bool, destinations: Destinations | None, namespace: str) -> str:
    if destinations is None:
        return queued_statement(jobs, events, single, namespace)
    places, outbox = destinations
    return statement(jobs, events, single, places, namespace, outbox)


async def _insert_one(
    connection: Any,
    namespace: str,
    names: Names,
    change: Change,
    lane: int,
    destinations: Destinations | None,
) -> set[str]:
    """The same for one job with one event, which is what single submits insert, with fewer steps."""
    job, (event,) = change.after, change.events
    _check_id(job.id)
    numbers = names.state_ids[job.contract, job.status], lane
    job_shape, job_parameters = _shape_of_row(_JOB_COLUMNS, (*_plain_values(job), *numbers), job.id)
    numbers_of_event = await names.edge(event), await _actor(names, event)
    event_row = (*_event_values(event), *numbers_of_event, as_text(event.data), lane)
    event_shape, event_parameters = _shape_of_row(_EVENT_COLUMNS, event_row, job.id)
    text = _statement(job_shape, event_shape, True, destinations, namespace)
    rows = await connection.fetch(text, job.id, *job_parameters, *event_parameters)
    return {job.id} if rows and rows[0][0] is not None else set()


def _shape_of_row(names: Sequence[str], row: Sequence[Any], job_id: str) -> tuple[Shape, list[Any]]:
    """As `shape_of`, for one row."""
    ids, constants, parameters = [], [], []
    for name, value in zip(names, row, strict=True):
        if value == job_id:
            if name != "effect_root":
                ids.append(name)
        elif value is not None and not (name == "trace_id" and _stored_trace(value, job_id) is None):
            constants.append(name)
            parameters.append(value)
    return Shape(tuple(ids), (), tuple(constants)), parameters


def _stored_trace(trace: str | None, job_id: str) -> str | None:
    """What column trace_id holds: NULL stands for the usual trace id, which names the job."""
    return None if trace == TRACE_PREFIX + job_id else trace


def _check_id(job_id: str) -> None:
    if not is_uuid(job_id):
        raise InvalidInput(f"{job_id!r} is not a UUID; leave the id out, or pass a UUIDv7", code="JOB_ID_INVALID")


Columns = list[list[Any]]


async def _individual(names: Names, changes: Sequence[Change], lanes: Sequence[int]) -> tuple[Columns, Columns]:
    """The columns of the jobs and of their events."""
    states = [names.state_ids[change.after.contract, change.after.status] for change in changes]
    jobs = _columns(_plain_values(change.after) for change in changes)
    events = [event for change in changes for event in change.events]
    await names.intern_actors(event.actor for event in events if event.actor is not None)
    numbers = _columns([(await names.edge(event), await _actor(names, event)) for event in events])
    data = [as_text(event.data) for event in events]
    event_lanes = [lane for change, lane in zip(changes, lanes, strict=True) for _ in change.events]
    return [*jobs, states, list(lanes)], [*_columns(map(_event_values, events)), *numbers, data, event_lanes]


async def _uniform(names: Names, changes: UniformBatch, lane: int) -> tuple[Columns, Columns]:
    """The same for a uniform batch, without building its jobs and events; a shared value is a column of length 1."""
    first, (event,) = changes.first, changes.first.events
    state = names.state_ids[first.after.contract, first.after.status]
    jobs = [changes.columns.get(name, [value]) for name, value in zip(_PLAIN, _plain_values(first.after), strict=True)]
    _, *common = _event_values(event)
    numbers = await names.edge(event), await _actor(names, event)
    events = [changes.ids, *([value] for value in (*common, *numbers, as_text(event.data), lane))]
    return [*jobs, [state], [lane]], events


async def _actor(names: Names, event: Event) -> int | None:
    return None if event.actor is None else await names.actor(event.actor)


def _columns(rows: Iterable[tuple[Any, ...]]) -> Columns:
    return [list(column) for column in zip(*rows, strict=True)]
