"""Filters and rows of listings: jobs, workers, backlog."""

from dataclasses import dataclass
from typing import NamedTuple

from detent.core.job import Micros


@dataclass(frozen=True, slots=True)
class Filter:
    """Which jobs a listing shows; None matches any. Pages are ordered by id, newest first."""

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
    """Created at or after this time; `until`: at or before that time."""
    until: Micros | None = None
    text_outside: str | None = None
    """Like `text`, but searched in ids, keys and codes only: for callers that may not see payloads."""


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A registered worker. It counts as gone after three leases without a heartbeat."""

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
    """Unfinished jobs of one contract, queue and type: due now, due or waking later, held by workers."""

    contract: str
    queue: str
    job_type: str
    due: int
    later: int
    held: int
    oldest_due: Micros | None
