"""Rows and filters of the lists that people read: jobs, workers, backlog."""

from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from detent.core.job import Micros

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs a listing shows; None means any. Pages run by id, newest first."""

    contract: str | None = None
    status: str | None = None
    phase: str | None = None
    queue: str | None = None
    tenant_id: str | None = None
    job_type: str | None = None
    text: str | None = None
    before: str | None = None
    limit: int = 50
    error_code: str | None = None
    since: Micros | None = None
    """Made at this moment or later; until: at this moment or before."""
    until: Micros | None = None
    text_outside: str | None = None
    """The same as text, but found in ids, keys and codes only: for people who may not see payloads."""


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker as others see it; gone when it has not been seen for three leases."""

    id: str
    host: str
    pid: int
    version: str
    queues: str | None
    job_types: str
    slots: int
    busy: int
    state: str
    started_at: Micros
    seen_at: Micros
    lease: Micros


class Backlog(NamedTuple):
    """What is left to do of one kind of job: due now, due or waking by itself later, held by a worker."""

    contract: str
    queue: str
    job_type: str
    due: int
    later: int
    held: int
    oldest_due: Micros | None
