"""The keywords of `@app.job` and `using`, spelled out so that type checkers know them."""

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TypedDict, Unpack

from detent.core.limits import Limit, limit_of


@dataclass(frozen=True, slots=True)
class Using:
    """How one enqueue differs from the job's declaration."""

    delay: float = 0.0
    at: datetime | str | None = None
    key: str | None = None
    scope: str | None = None
    tenant: str = "default"
    priority: int | None = None
    queue: str | None = None
    max_retries: int | None = None
    timeout: float | None = None
    trace_id: str | None = None
    task_id: str | None = None
    hold: bool = False
    limit_key: str = ""
    deadline: datetime | str | float | None = None
    """A moment, or seconds from now: if nobody has begun the job by then, it ends."""


class UsingOptions(TypedDict, total=False):
    """The same as keywords, for type checkers."""

    delay: float
    at: datetime | str | None
    key: str | None
    scope: str | None
    tenant: str
    priority: int | None
    queue: str | None
    max_retries: int | None
    timeout: float | None
    trace_id: str | None
    task_id: str | None
    hold: bool
    limit_key: str
    deadline: datetime | str | float | None


class JobOptions(TypedDict, total=False):
    """What @app.job takes besides the name."""

    queue: str
    contract: str | None
    max_retries: int | None
    timeout: float | None
    priority: int
    permanent_errors: tuple[type[BaseException], ...]
    retryable_errors: tuple[type[BaseException], ...]
    capture_logs: bool
    park_seconds: float
    strict_steps: bool


class LimitOptions(TypedDict, total=False):
    """What app.limit takes: what it bounds (nothing named: everything), and by how much."""

    queue: str | None
    job_type: str | None
    tenant: str | None
    key: str | None
    per: str | None
    concurrency: int | None
    rate: tuple[int, float] | None


class Limited:
    """Part of an application: the limits its code declares, brought to the database when it opens."""

    @cached_property
    def limits(self) -> list[Limit]:
        return []

    def limit(self, **said: Unpack[LimitOptions]) -> Limit:
        """Declare a limit: queue=, job_type=, tenant=, key= (on what), per=, concurrency=, rate=(N, seconds)."""
        self.limits.append(limit_of(**said))
        return self.limits[-1]
