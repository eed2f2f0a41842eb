"""The state of a queue or job type: one function decides it for REST, the command line and the pages."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from detent.core.job import Micros
from detent.core.limits import JobKind, Limit, Meter
from detent.ports.limits import Pause
from detent.ports.listing import Backlog

from .operations import StateName
from .why import LiveWorker

_SHARED_SCOPES = (None, "queue", "job_type")


class FullLimit(NamedTuple):
    """A limit that is reached now, for one subject of it; see Limit.subject."""

    limit: Limit
    subject: str


def full_limits(
    limits: Iterable[Limit], backlog: Sequence[Backlog], meters: Iterable[tuple[str, Meter]], now: Micros
) -> list[FullLimit]:
    """The reached limits that apply to whole queues and types; limits of tenants and keys hold back only some jobs.

    meters: of rate limits, with their subjects.
    """
    full: list[FullLimit] = []
    for limit in limits:
        if limit.concurrency is None or not is_shared(limit):
            continue
        held: dict[str, int] = {}
        for row in backlog:
            subject = limit.subject(_kind(row)) if row.held else None
            if subject is not None:
                held[subject] = held.get(subject, 0) + row.held
        full += [FullLimit(limit, subject) for subject, number in held.items() if number >= limit.concurrency]
    full += [FullLimit(meter.limit, subject) for subject, meter in meters if meter.opens_at(now) is not None]
    return full


def is_shared(limit: Limit) -> bool:
    """True for a limit that does not depend on the tenant or the limit key."""
    return limit.tenant_id is None and limit.limit_key is None and limit.per in _SHARED_SCOPES


def _kind(row: Backlog) -> JobKind:
    return JobKind(row.queue, row.job_type, "", "")


@dataclass(frozen=True, slots=True)
class QueueState:
    """The state of the jobs in `rows`: of one queue, or of one job type in every queue."""

    name: StateName
    unserved: list[Backlog] = field(default_factory=list)
    """Jobs that wait for a worker: none that is live runs them."""
    limited_by: list[Limit] = field(default_factory=list)


def state_of(
    rows: Sequence[Backlog], workers: Sequence[LiveWorker], pauses: Iterable[Pause], full: Sequence[FullLimit]
) -> QueueState:
    """The most important state: paused, no worker, draining, at its limit; else active, or idle without such jobs.

    A queue is at its limit if no ready job may start because of limits, and draining if all workers that could run its
    jobs claim no more. Jobs of paused types and ready jobs of paused tenants do not count; if there are no other ready
    or running jobs, it is paused.
    """
    paused = {(pause.kind, pause.name) for pause in pauses}
    open_rows = [row for row in rows if _is_open(row)]
    unpaused = [row._replace(due=row.due - row.due_paused) for row in open_rows]
    running = [
        row for row in unpaused if _is_open(row) and not {("queue", row.queue), ("job_type", row.job_type)} & paused
    ]
    if open_rows and not running:
        return QueueState("paused")
    capable = {id(row): [worker for worker in workers if worker.can_run(row.queue, row.job_type)] for row in running}
    unserved = [row for row in running if not capable[id(row)] and (row.due or row.later)]
    limits = {id(row): [f.limit for f in full if f.limit.subject(_kind(row)) == f.subject] for row in running}
    due = [row for row in running if row.due]
    limited_by = list({limit.scope: limit for row in due for limit in limits[id(row)]}.values())
    if unserved:
        return QueueState("no_worker", unserved, limited_by)
    if running and all(not any(worker.claims for worker in capable[id(row)]) for row in running):
        return QueueState("draining", limited_by=limited_by)
    if due and all(limits[id(row)] for row in due):
        return QueueState("at_limit", limited_by=limited_by)
    if any(row.due or row.held for row in running):
        return QueueState("active", limited_by=limited_by)
    return QueueState("paused" if any(row.due for row in rows) else "idle")


def _is_open(row: Backlog) -> bool:
    return bool(row.due or row.later or row.held)


def state_text(state: str, unserved: Sequence[str]) -> str:
    """The state in English, for the command line."""
    if state == "no_worker":
        return f"no worker for {len(unserved)} type{'' if len(unserved) == 1 else 's'}"
    return {"at_limit": "at its limit"}.get(state, state)
